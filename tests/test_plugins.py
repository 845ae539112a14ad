"""Parts and policies of others: as objects, added by name, and brought by an installed package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from deccaf import Costs, DeCCaF, ModelFileError
from deccaf.errors import ConfigError, DeccafWarning
from deccaf.models.protocols import CasePart, DecisionPart
from deccaf.plugins import CASE_PARTS, DECISION_PARTS, METHODS
from models_world import World, make_world

PACKAGE = '''
import numpy as np

from deccaf.models.protocols import DecisionPart
from deccaf.policies import optimal, policy


class TeamRates(DecisionPart):
    """What the team decides given the truth, whoever is asked."""

    name = "team-rates"

    def fit(self, rows, validation=None):
        counts = np.ones((rows.classes, rows.classes))
        np.add.at(counts, (rows.truth, rows.decision), rows.weight)
        self.rates_ = counts / counts.sum(axis=1, keepdims=True)
        return self

    def log_rows(self, features, truth, expert):
        return np.log(self.rates_)[truth]

    def log_table(self, features, expert):
        shape = (len(features), len(expert), *self.rates_.shape)
        return np.broadcast_to(np.log(self.rates_), shape)

    def to_dict(self):
        return {"rates": self.rates_}

    @classmethod
    def from_dict(cls, data):
        part = cls()
        part.rates_ = data["rates"]
        return part


@policy("people-first", needs=("q",))
def people_first(beliefs, room, seed):
    """As deccaf, but people are preferred to the machine."""
    loss = beliefs.loss(beliefs.q)
    loss[:, 0] += 1.0
    return optimal(loss, beliefs.machine_says(), room, seed)
'''
ENTRY_POINTS = """
[deccaf.parts]
team-rates = tiny_deccaf:TeamRates

[deccaf.policies]
people-first = tiny_deccaf:people_first
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package as an installer leaves it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "tiny_deccaf.py").write_text(PACKAGE)
    facts = folder / "tiny_deccaf-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-deccaf\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def deccaf(*arguments: object, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with or without the package."""
    paths = [*([str(site)] if site else []), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, "-c", "from deccaf.cli import main; main()", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )


def done(*arguments: object, site: Path) -> str:
    found = deccaf(*arguments, site=site)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_a_part_of_an_installed_package_from_fit_to_assign(installed: Path, tmp_path: Path) -> None:
    world = make_world(400, 3)
    ids = [f"c{k}" for k in range(400)]
    world.features.assign(case_id=ids, label=world.truth).to_parquet(tmp_path / "cases.parquet")
    pd.DataFrame({"case_id": ids, "expert_id": world.expert, "decision": world.decision}).to_csv(
        tmp_path / "decisions.csv", index=False
    )
    pd.DataFrame({"expert_id": ["e0", "e1"], "upper": [30, 20]}).to_csv(tmp_path / "roster.csv", index=False)
    config = tmp_path / "config.toml"
    config.write_text(
        "[costs]\nfalse_positive = 0.3\nfalse_negative = 1.0\n"
        '[model]\ncase_parts = ["logistic"]\ndecision_parts = ["team-rates"]\n'
    )
    model, plan = tmp_path / "m.deccaf", tmp_path / "plan.csv"
    fit = ("fit", "--cases", tmp_path / "cases.parquet", "--decisions", tmp_path / "decisions.csv",
           "--config", config, "--out", model)  # fmt: skip
    done(*fit, site=installed)
    assign = ("assign", "--model", model, "--cases", tmp_path / "cases.parquet", "--capacity",
              tmp_path / "roster.csv", "--out", plan)  # fmt: skip
    done(*assign, site=installed)
    assert set(pd.read_csv(plan)["maker"]) <= {"machine", "e0", "e1"}
    explain = ("explain", *assign[1:-2], "--case", "c3", "--json")
    assert json.loads(done(*explain, site=installed))["case"] == "c3"
    # without the package nothing of this is known, and the messages say what is missing
    without = deccaf(*fit)
    assert without.returncode == 2
    assert (
        "[model] decision_parts: decision part 'team-rates' is not installed; known are rates,"
        in without.stderr
    )
    without = deccaf(*assign)
    assert without.returncode == 6
    assert "needs the decision part 'team-rates', which is not installed here: install" in without.stderr


@pytest.mark.long
def test_a_part_and_a_policy_of_an_installed_package_in_the_benchmark(
    installed: Path, tmp_path: Path
) -> None:
    profile, out = tmp_path / "tiny.toml", tmp_path / "out"
    profile.write_text(
        "[world]\nrows = 20000\n[team]\nsize = 2\n"
        "[grid]\nalert_rates = [0.15]\nratios = [0.057]\nseeds = [0]\ncapacities = [0]\n"
        'policies = ["machine", "people-first", "deccaf"]\n'
        '[model]\ncase_parts = ["logistic"]\ndecision_parts = ["rates", "team-rates"]\n'
    )
    run = ("bench", "run", "--profile", profile, "--out", out, "--json")
    rows = json.loads(done(*run, site=installed))
    assert [row["policy"] for row in rows] == ["machine", "people-first", "deccaf"]
    done("bench", "report", out, "--out", tmp_path / "page", site=installed)
    assert "people-first" in set(pd.read_csv(tmp_path / "page" / "costs.csv")["Policy"])
    assert "people-first" in (tmp_path / "page" / "report.html").read_text()
    weights = json.loads(next(out.glob("experts/*/report.json")).read_text())["weights"]
    assert set(weights) == {"rates", "team-rates"}
    without = deccaf(*run)
    assert without.returncode == 2
    assert "policy 'people-first': known are" in without.stderr


# Objects, in one process


class Prevalence(CasePart):
    """How frequent each truth is, whatever the case."""

    name = "prevalence"

    def fit(self, rows: Any, validation: Any = None) -> Prevalence:
        shares = np.bincount(rows.label, rows.weight, minlength=rows.classes) + 1.0
        self.shares_ = shares / shares.sum()
        return self

    def log_chances(self, features: pd.DataFrame) -> np.ndarray:
        return np.tile(np.log(self.shares_), (len(features), 1))

    def to_dict(self) -> dict[str, Any]:
        return {"shares": self.shares_}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Prevalence:
        part = cls()
        part.shares_ = data["shares"]
        return part


class Right(DecisionPart):
    """Everybody is right with the same chance, which is a setting and not learned."""

    name = "right"
    fewest_rows = 100

    def __init__(self, chance: float = 0.8) -> None:
        self.chance = chance

    def fit(self, rows: Any, validation: Any = None) -> Right:
        wrong = (1.0 - self.chance) / (rows.classes - 1)
        self.table_ = np.where(np.eye(rows.classes, dtype=bool), self.chance, wrong)
        return self

    def log_rows(self, features: pd.DataFrame, truth: np.ndarray, expert: np.ndarray) -> np.ndarray:
        return np.log(self.table_)[truth]

    def log_table(self, features: pd.DataFrame, expert: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.log(self.table_), (len(features), len(expert), *self.table_.shape))

    def to_dict(self) -> dict[str, Any]:
        return {"chance": self.chance, "table": self.table_}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Right:
        part = cls(data["chance"])
        part.table_ = data["table"]
        return part


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(500, 3, 3)


def fitted(world: World, **parts: Any) -> DeCCaF:
    costs = Costs.from_matrix((1 - np.eye(3)).tolist(), [0, 1, 2])
    return DeCCaF(costs, **parts).fit(
        world.features, world.truth, expert=world.expert, decision=world.decision
    )


@pytest.fixture
def added() -> Iterator[None]:
    """Both parts known in this process by name."""
    CASE_PARTS.add("prevalence", Prevalence())
    DECISION_PARTS.add("right", Right())
    yield
    del CASE_PARTS.known["prevalence"], DECISION_PARTS.known["right"]


def test_objects_are_blended_with_the_others(world: World) -> None:
    model = fitted(world, case_parts=("logistic", Prevalence()), decision_parts=("rates", Right(0.7)))
    assert set(model.learned_.classifier.weights_) == {"logistic", "prevalence"}
    assert set(model.learned_.decisions.held_out_) == {"rates", "right", "blend"}
    alone = fitted(world, case_parts=(Prevalence(),), decision_parts=(Right(0.7),))
    p = np.bincount(world.truth) / 500
    np.testing.assert_allclose(alone.predict_proba(world.features[:3]), np.tile(p, (3, 1)), atol=0.01)
    q = alone.learned_.decision_chances(world.features[:3], ["e0", "stranger"])
    assert q.shape == (3, 2, 3, 3)
    assert alone.explain(world.features.iloc[[0]]).features["total"].abs().max() == 0
    low, high = alone.learned_.decisions.interval(world.features[:3])
    np.testing.assert_allclose(low, high)  # a part that does not know how sure it is


def test_a_part_that_needs_more_rows_is_not_tried(world: World) -> None:
    short = world.take(np.arange(500) < 60)
    model = fitted(short, case_parts=("logistic",), decision_parts=("rates", Right()))
    assert set(model.learned_.decisions.weights_) == {"rates"}
    only = fitted(short, case_parts=("logistic",), decision_parts=(Right(),))
    assert set(only.learned_.decisions.weights_) == {"right"}


def test_scikit_learn_can_clone_a_model_with_objects(world: World) -> None:
    model = fitted(world, case_parts=("logistic",), decision_parts=("rates", Right(0.6)))
    again = clone(model)
    assert again.get_params()["decision_parts"][1].chance == 0.6
    assert again.get_params()["decision_parts"][1] is not model.decision_parts[1]
    again.fit(world.features, world.truth, expert=world.expert, decision=world.decision)
    new = world.features[:20]
    np.testing.assert_array_equal(again.expected_loss(new), model.expected_loss(new))
    assert not hasattr(model.decision_parts[1], "table_"), "what is passed is not changed"


def test_a_model_file_names_its_parts(world: World, added: None, tmp_path: Path) -> None:
    model = fitted(world, case_parts=("prevalence",), decision_parts=(Right(0.6),))
    model.save(tmp_path / "m.deccaf")
    again = DeCCaF.load(tmp_path / "m.deccaf")
    new = world.features[:20]
    np.testing.assert_array_equal(again.expected_loss(new), model.expected_loss(new))
    assert again.get_params()["decision_parts"] == ("right",)
    again.save(tmp_path / "again.deccaf")
    assert (tmp_path / "again.deccaf").read_bytes() == (tmp_path / "m.deccaf").read_bytes()


def test_a_part_that_nobody_else_knows_is_told_when_it_is_saved(world: World, tmp_path: Path) -> None:
    model = fitted(world, case_parts=("logistic",), decision_parts=(Right(),))
    with pytest.warns(DeccafWarning, match="'right' is known to this process alone"):
        model.save(tmp_path / "m.deccaf")
    with pytest.raises(ModelFileError, match="needs the decision part 'right'"):
        DeCCaF.load(tmp_path / "m.deccaf")


def test_what_is_no_part_is_named(world: World) -> None:
    with pytest.raises(ConfigError, match="decision part 'raets': known are .*did you mean 'rates'"):
        fitted(world, decision_parts=("raets",))
    with pytest.raises(ConfigError, match="is no decision part"):
        fitted(world, case_parts=("logistic",), decision_parts=(Prevalence(),))
    with pytest.raises(ConfigError, match="two have the same name"):
        fitted(world, case_parts=("logistic",), decision_parts=("rates", Right(), Right()))
    with pytest.raises(ConfigError, match="registered already"):
        DECISION_PARTS.add("rates", Right())
    with pytest.raises(ConfigError, match="did you mean 'paper'"):
        METHODS.find("papre")


def test_names_are_known_before_anything_is_imported() -> None:
    code = (
        "import sys; from deccaf.plugins import CASE_PARTS, DECISION_PARTS, METHODS\n"
        "print(*CASE_PARTS, *DECISION_PARTS, *METHODS)\n"
        "print([name for name in ('lightgbm', 'sklearn', 'deccaf.models') if name in sys.modules])"
    )
    names, loaded = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    assert names.split() == ["logistic", "boosted", "rates", "pooled", "boosted", "deccaf", "paper", "ova"]
    assert loaded == "[]"
