"""The fraud model: its risk, and its calibration against the published alert model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq, minimize
from scipy.special import expit

from deccaf.simulate.alerts import AlertModel
from deccaf.simulate.applications import World
from deccaf.simulate.baf import CATEGORIES, LABEL, MONTH, MONTHS
from worldfit.bins import Link, as_numbers, rounded
from worldfit.chain import Design

TURNS = 3  # of tilting the months and generating anew
OFFSET_ROWS = 8_000_000
DRAWS = 3  # of labels to train the alert model on


def fit_fraud(links: list[Link], sample: pd.DataFrame, alerts: pd.DataFrame) -> dict[str, Any]:
    """Logistic risk on the sample and the alerts together.

    Whether an application was alerted is a function of its features, so P(fraud | features) is the same
    among alerts and elsewhere. The alert model's own score, learned from months 0-2 that we do not have,
    counts as half of each alert's label.
    """
    tables = (sample, alerts)
    months = np.concatenate([t[MONTH].to_numpy(dtype=int) for t in tables])
    design = Design.of_months(months)
    for link in links:
        bins = np.concatenate([link.encode(as_numbers(t, link.spec.name)) for t in tables])
        design.add(link.spec.name, link.code[bins])
    label = np.concatenate([t[LABEL].to_numpy(dtype=float) for t in tables])
    label[len(sample) :] = (label[len(sample) :] + alerts["model_score"].to_numpy()) / 2
    ridge = np.full(design.matrix.shape[1], 1.0 / len(label))
    ridge[design.columns[MONTH]] = 0.0
    weights = solve_logistic(design.matrix, label, ridge)
    parts = {n: rounded(weights[c]) for n, c in design.columns.items() if n != MONTH}
    return {"weights": parts, "offset": [0.0] * MONTHS, "scale": [1.0] * MONTHS}


def solve_logistic(matrix: np.ndarray, label: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """Ridge logistic regression; labels may be probabilities."""

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        logit = matrix @ w
        loss = (np.logaddexp(0, logit) - label * logit).mean() + 0.5 * (ridge * w**2).sum()
        return loss, matrix.T @ (expit(logit) - label) / len(label) + ridge * w

    return minimize(
        objective, np.zeros(matrix.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 400}
    ).x


def draw_blocks(
    world: World, months: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Generated columns without labels, and every row's risk index, block by block."""
    for start in range(0, len(months), 50_000):
        columns, basis = world.draw_features(months[start : start + 50_000], rng)
        yield columns, world.fraud.index(basis)


def world_rows(world: World, rows: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """A generated table without labels, and every row's risk index."""
    parts, risks = zip(*draw_blocks(world, world.months(rows), rng), strict=True)
    table = pd.concat([pd.DataFrame(part) for part in parts], ignore_index=True)
    for name, levels in CATEGORIES.items():
        table[name] = pd.Categorical.from_codes(table[name], categories=list(levels))
    return table.assign(device_fraud_count=0), np.concatenate(risks)


def offset_for(risk: np.ndarray, rate: float) -> float:
    """Offset at which the mean chance of fraud is `rate`."""
    return float(brentq(lambda b: expit(b + risk).mean() - rate, -40, 40))


def month_offsets(
    world: World, scales: np.ndarray, rates: list[float], rng: np.random.Generator
) -> list[float]:
    """Offset of each month. Few rows carry most of the fraud, so this takes more of them than the rest."""
    months = np.repeat(np.arange(MONTHS), OFFSET_ROWS // MONTHS)
    risk = np.concatenate([r for _, r in draw_blocks(world, months, rng)]).reshape(MONTHS, -1)
    return [offset_for(scale * r, rate) for scale, r, rate in zip(scales, risk, rates, strict=True)]


@dataclass
class Screening:
    """A generated table, its risk, and how often the alert model alerts each row.

    Which rows are alerted depends on the labels that the alert model happened to be trained on; so several
    models are trained on as many draws of the labels, and `alerted` is the share that alerts a row.
    """

    table: pd.DataFrame
    risk: np.ndarray
    facts: dict[str, Any]
    alerted: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        month = self.table[MONTH].to_numpy()
        self.months = [month == m for m in range(MONTHS)]

    def offset(self, m: int, scale: float) -> float:
        """Offset at which the month's mean chance of fraud is the published rate."""
        return offset_for(scale * self.risk[self.months[m]], self.facts["per_month"][m]["fraud_rate"])

    def chance(self, m: int, scale: float) -> np.ndarray:
        """Chance of fraud of the month's rows."""
        return expit(self.offset(m, scale) + scale * self.risk[self.months[m]])

    def screen(self, scale: float) -> None:
        """Train alert models on labels drawn with one scale for all months; average their 5 % alerts."""
        chance = np.concatenate([self.chance(m, scale) for m in range(MONTHS)])
        self.alerted = np.zeros(len(chance))
        for seed in range(DRAWS):
            label = np.random.default_rng(seed).random(len(chance)) < chance
            model = AlertModel().fit(self.table.assign(**{LABEL: label.astype(int)}))
            self.alerted += (model.score(self.table) >= model.threshold(0.05)) / DRAWS

    def recall(self, m: int, scale: float) -> float:
        """Share of the month's frauds alerted."""
        return float(np.average(self.alerted[self.months[m]], weights=self.chance(m, scale)))

    def false_positives(self, m: int, scale: float, tilt: float = 0.0) -> float:
        """Share of legitimate cases alerted, when cases of risk r are exp(tilt r) times as frequent."""
        here = self.months[m]
        legitimate = (1 - self.chance(m, scale)) * np.exp(tilt * self.risk[here])
        return float(np.average(self.alerted[here], weights=legitimate))

    def common_scale(self) -> float:
        """Scale of months 0-3: the alert model's recall on month 3 is the published one."""

        def gap(scale: float) -> float:
            self.screen(scale)
            print(f"scale {scale:.3f}: recall on month 3 is {self.recall(3, scale):.4f}", flush=True)
            return self.recall(3, scale) - self.facts["alert_TPR_by_month"]["3"]

        scale = float(brentq(gap, 1.0, 2.0, xtol=0.02))
        self.screen(scale)
        return scale

    def month_scale(self, m: int) -> float:
        """Scale of a later month: fraud drifts away from what the alert model has learned."""
        wanted = self.facts["alert_TPR_by_month"][str(m)]
        return float(brentq(lambda v: self.recall(m, v) - wanted, 0.1, 4.0, xtol=1e-3))

    def month_tilt(self, m: int, scale: float) -> float:
        """Tilt of the features along the risk that gives the month its published false-positive rate."""
        wanted = self.facts["alert_FPR_by_month"][str(m)]
        return float(brentq(lambda v: self.false_positives(m, scale, v) - wanted, -3.0, 3.0, xtol=1e-3))


def settle(
    content: dict[str, Any], links: list[Link], facts: dict[str, Any], rng: np.random.Generator
) -> None:
    """Calibrate months against the published behaviour of the alert model; fills in the fraud model."""
    for turn in range(TURNS):
        content["features"] = [link.to_json() for link in links]
        world = World.parse(json.dumps(content))
        screening = Screening(*world_rows(world, 1_000_000, rng), facts)
        scales = [screening.common_scale()] * 4 + [screening.month_scale(m) for m in range(4, MONTHS)]
        for m in range(3, MONTHS):
            recall, false = screening.recall(m, scales[m]), screening.false_positives(m, scales[m])
            print(
                f"month {m}: scale {scales[m]:.3f}, recall {recall:.3f}, false-positive rate {false:.4f}",
                flush=True,
            )
        if turn < TURNS - 1:
            for m in range(4, MONTHS):
                tilt_month(links, content["fraud"]["weights"], m, screening.month_tilt(m, scales[m]))
    rates = [month["fraud_rate"] for month in facts["per_month"]]
    scale = rounded(np.array(scales))
    offset = rounded(np.array(month_offsets(world, np.array(scale), rates, rng)))
    content["fraud"] |= {"offset": offset, "scale": scale}


def tilt_month(links: list[Link], risk: dict[str, Any], month: int, tilt: float) -> None:
    """Make risky cases of a month rarer or more frequent, by the same exponential tilt in every feature."""
    for link in links:
        effect = link.code @ np.asarray(risk[link.spec.name])
        scores = np.column_stack([link.score, np.ones(len(effect))])
        link.weights[MONTH][month] += tilt * np.linalg.lstsq(scores, effect, rcond=None)[0][:-1]
