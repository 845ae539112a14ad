"""A small world for the tests of the models: cases, a team whose chances are known, a log."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import softmax

from deccaf.models.model_file import read_model_file, write_model_file


@dataclass
class World:
    features: pd.DataFrame
    truth: np.ndarray
    expert: np.ndarray
    decision: np.ndarray
    time: pd.Series
    chance: np.ndarray
    """True q[i, j, y, m] of every expert on every case."""
    names: list[str]

    @property
    def log(self) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
        return self.features, self.truth, self.expert, self.decision

    def take(self, rows: np.ndarray) -> World:
        return World(
            self.features[rows],
            self.truth[rows],
            self.expert[rows],
            self.decision[rows],
            self.time[rows],
            self.chance[rows],
            self.names,
        )


def make_world(n: int = 3000, experts: int = 5, classes: int = 2, seed: int = 0) -> World:
    rng = np.random.default_rng(seed)
    truth = rng.choice(classes, size=n, p=[0.6] + [0.4 / (classes - 1)] * (classes - 1))
    features = pd.DataFrame(
        {
            "x": rng.normal(size=n) + 0.8 * truth,
            "noise": rng.normal(size=n),
            "gap": np.where(rng.random(n) < 0.2, np.nan, rng.exponential(size=n)),
            "kind": pd.Categorical(rng.choice(["p", "q", "r"], n)),
        }
    )
    slope = rng.normal(0.5, 0.7, size=(experts, classes))
    eta = features["x"].to_numpy()[:, None, None, None] * slope[None, :, None, :]
    eta = eta + (2.0 + 0.5 * rng.normal(size=(1, experts, classes, 1))) * np.eye(classes)
    chance = softmax(eta, axis=-1)
    who = rng.integers(experts, size=n)
    mine = chance[np.arange(n), who, truth]
    said = (mine.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    names = [f"e{j}" for j in range(experts)]
    return World(features, truth, np.array(names)[who], said, pd.Series(np.arange(n) * 8 // n), chance, names)


def excess(q: np.ndarray, world: World) -> float:
    """Expected log-loss of the decision given the truth, above that of the true chances."""
    rows = np.arange(len(world.truth))
    true = world.chance[rows, :, world.truth]
    return float((true * (np.log(true) - np.log(q[rows, :, world.truth]))).sum(axis=-1).mean())


def stored(data: dict[str, object]) -> dict[str, object]:
    """What `to_dict` gave, after it was written to a model file and read again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.deccaf"
        write_model_file(path, data, schema=[], training={}, deccaf_version="0")
        return read_model_file(path).model
