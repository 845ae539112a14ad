"""Sections of a benchmark's report that hold what the paper says against what was found here."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from deccaf.benchmark import published, tables
from deccaf.benchmark.store import Store
from deccaf.benchmark.tables import PAPER
from deccaf.report.page import Section

_CLAIMS = [
    (PAPER, "random"),
    (PAPER, "only-classifier"),
    (PAPER, "only-classifier-fixed"),
    ("ova", "random"),
    ("ova", "only-classifier"),
    ("ova", "only-classifier-fixed"),
    (PAPER, "ova"),
    ("ova-optimal", "ova"),
    (PAPER, "ova-optimal"),
]
"""What the paper says of its own methods (the first cheaper than the second), and what splits its gain."""


def claim_sections(store: Store, results: pd.DataFrame) -> Iterable[Section]:
    """Its orderings, and what it says in numbers."""
    yield from _orderings(results)
    yield from _said_by_the_paper(store, results)


def _orderings(results: pd.DataFrame) -> Iterable[Section]:
    """Whether what the paper found of its own methods holds here."""
    cost = (
        tables.largest_share(results)
        .groupby([*tables.SCENARIO, "policy"])[tables.cost_column(results)]
        .mean()
    )
    wide = cost.unstack("policy")
    rows = []
    for better, worse in _CLAIMS:
        if {better, worse} <= set(wide):
            ratio = wide[better] / wide[worse]
            rows.append(
                {
                    "Claim": f"{better} below {worse}",
                    "Mean over the scenarios": f"{ratio.mean() - 1:+.1%}",
                    "Holds on average": "yes" if ratio.mean() < 1 else "no",
                    "In scenarios": f"{int((ratio < 1).sum())} of {len(ratio)}",
                }
            )
    if rows:
        yield Section(
            title="The paper's orderings, for its own methods",
            text="Relative difference of the mean cost; the last two lines take model and solver apart.",
            table=pd.DataFrame(rows),
            name="orderings",
        )


def _said_by_the_paper(store: Store, results: pd.DataFrame) -> Iterable[Section]:
    """What the paper says in numbers of its own method, beside what was found here."""
    wide = tables.by_variation(tables.largest_share(results))
    if not {PAPER, "ova"} <= set(wide):
        return
    means = wide.groupby(tables.SCENARIO).mean()
    less = float((1 - means[PAPER] / means["ova"]).mean())
    won = tables.wins(results, PAPER)
    rivals = won[won["policy"].isin(["ova", "random", "full-rejection", "only-classifier"])]
    sure = (rivals["p_value"] < 0.05) & (rivals["won"] > 0.5)
    scenarios = sure.groupby([rivals[name] for name in tables.SCENARIO]).all()
    rows = [
        (
            "deccaf-paper costs less than ova, on average",
            f"{published.REDUCTION:.1%}",
            f"{less:.1%}",
            less > 0,
        ),
        (
            "deccaf-paper is significantly better than every other method (5 %, binomial)",
            f"{published.SIGNIFICANT} of 6 scenarios",
            f"{int(scenarios.sum())} of {len(scenarios)}",
            bool(scenarios.mean() >= published.SIGNIFICANT / 6),
        ),
        *_ranks(tables.expert_models(store)),
    ]
    table = pd.DataFrame(rows, columns=["The paper says", "Paper", "Here", "Holds"])
    yield Section(
        title="What the paper says in numbers",
        text="The paper's own method against its baselines, on its data there and on these data here.",
        table=table.assign(Holds=table["Holds"].map({True: "yes", False: "no"})),
        note=published.NOTE,
        name="claims",
    )


def _ranks(models: pd.DataFrame) -> list[tuple[str, str, str, bool]]:
    """AUC and ECE of the models of the experts, as figure 2 and the text about it have them."""
    if models.empty or not {"hem", "ova"} <= set(models["model"]):
        return []
    means = models.groupby(["ratio", "model"])[["auc", "ece"]].mean().unstack("model")
    auc, ece, rows = means["auc"], means["ece"], []
    least = min(auc.index)
    if len(auc) > 1:
        worst = float(auc.loc[least, ["hem", "ova"]].max())
        rows.append((f"AUC below one half at ratio {least:g}", "both", f"{worst:.2f} at most", worst < 0.5))
    ahead = int((auc["hem"] > auc["ova"]).sum())
    rows.append(
        (
            "the HEM ranks better than ova (AUC)",
            "almost all",
            f"{ahead} of {len(auc)} ratios",
            2 * ahead > len(auc),
        )
    )
    for ratio, better, worse in ((0.057, "hem", "ova"), (0.285, "ova", "hem")):
        if ratio in ece.index:
            here = ece.loc[ratio]
            rows.append(
                (
                    f"{better} is better calibrated than {worse} at ratio {ratio:g} (ECE)",
                    "lower",
                    f"{here[better]:.3f} against {here[worse]:.3f}",
                    bool(here[better] < here[worse]),
                )
            )
    return rows
