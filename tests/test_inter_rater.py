"""Agreement: published examples, scikit-learn, an independent count, what models expect, and the meeting."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score

from deccaf.errors import DataError
from deccaf.evaluate import inter_rater as ir


def ratings(said, classes: int, unit=None, chances=None) -> ir.Ratings:
    table = np.asarray(said)
    case = pd.Index([f"c{i}" for i in range(len(table))])
    people = tuple("abcdefgh"[: table.shape[1]])
    unit = np.arange(len(table)) if unit is None else np.asarray(unit)
    return ir.Ratings(table, people, tuple(range(classes)), case, unit, chances)


def values(found: ir.Ratings) -> dict[str, float]:
    return dict(ir.agreement(found).set_index("measure")["value"])


def test_published_examples():
    # Krippendorff 2011, four observers and twelve units, nominal: 0.743; the unit with one value is left out
    table = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
            [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
        ]
    ).T
    found = values(ratings(table[:11] - 1, 5))
    assert found[ir.ALPHA] == pytest.approx(0.743, abs=5e-4)
    assert found[ir.SHARE] == pytest.approx(0.8182, abs=5e-5)
    # Gwet 2014, two abstractors and 100 patients: kappa 0.7964 (0.680 to 0.913), AC1 0.8493 (0.764 to 0.935)
    cells = {(0, 0): 13, (1, 1): 20, (1, 2): 7, (2, 1): 4, (2, 2): 56}
    said = [pair for pair, count in cells.items() for _ in range(count)]
    both = ir.agreement(ratings(said, 3)).set_index("measure")
    assert both.loc[ir.KAPPA, ["value", "low", "high"]].tolist() == pytest.approx(
        [0.7964, 0.680, 0.913], abs=4e-3
    )
    assert both.loc[ir.AC1, ["value", "low", "high"]].tolist() == pytest.approx(
        [0.8493, 0.764, 0.935], abs=4e-3
    )
    pair = ir.by_pair(ratings(said, 3)).iloc[0]
    assert pair["kappa"] == pytest.approx(cohen_kappa_score(*np.array(said).T))
    assert (pair["kappa"], pair["ac1"]) == pytest.approx(
        (both.at[ir.KAPPA, "value"], both.at[ir.AC1, "value"])
    )


def test_against_a_count_of_all_pairs():
    """Alpha from the pairs of decisions themselves; kappa of a team as the weighed mean of scikit-learn's."""
    rng = np.random.default_rng(0)
    said = np.where(rng.random((60, 4)) < 0.7, (rng.random((60, 1)) + 0.6 * rng.random((60, 4))) // 0.55, -1)
    said = np.minimum(said, 2).astype(int)
    said = said[(said >= 0).sum(axis=1) > 1]
    differ = total = 0.0
    for row in said:
        mine = row[row >= 0]
        pairs = [a != b for a, b in permutations(mine.tolist(), 2)]
        differ += sum(pairs) / (len(mine) - 1)
        total += len(mine)
    every = said[said >= 0].tolist()
    chance = np.mean([a != b for a, b in permutations(every, 2)])
    found = values(ratings(said, 3))
    assert found[ir.ALPHA] == pytest.approx(1 - differ / total / chance)
    weight, kappa = [], []
    for a in range(4):
        for b in range(a):
            both = (said[:, a] >= 0) & (said[:, b] >= 0)
            weight.append(both.sum())
            kappa.append(cohen_kappa_score(said[both, a], said[both, b], labels=[0, 1, 2]))
    assert found[ir.KAPPA] == pytest.approx(np.average(kappa, weights=weight))


def test_intervals_hold_the_truth_and_groups_widen_them():
    rng, inside, draws = np.random.default_rng(1), {ir.ALPHA: 0, ir.AC1: 0, ir.KAPPA: 0}, 80
    whole = None
    for n in (50_000, *([150] * draws)):
        hard = rng.random(n) < 0.3
        base = (rng.random(n) < 0.2).astype(int)
        flip = rng.random((n, 3)) < np.where(hard, 0.35, 0.03)[:, None]
        table = ir.agreement(ratings(np.where(flip, 1 - base[:, None], base[:, None]), 2)).set_index(
            "measure"
        )
        whole = table if whole is None else whole
        for name in inside:
            inside[name] += table.at[name, "low"] <= whole.at[name, "value"] <= table.at[name, "high"]
    assert min(inside.values()) / (draws + 1) > 0.88
    doubled = np.repeat(ratings(np.where(flip, 1 - base[:, None], base[:, None]), 2).said, 2, axis=0)
    alone = ir.agreement(ratings(doubled, 2)).set_index("measure").loc[ir.ALPHA]
    grouped = ir.agreement(ratings(doubled, 2, np.arange(300) // 2)).set_index("measure").loc[ir.ALPHA]
    assert grouped["high"] - grouped["low"] > 1.3 * (alone["high"] - alone["low"])


def test_what_the_models_expect_is_met_where_they_are_right():
    rng, n = np.random.default_rng(2), 20_000
    chance = np.clip(rng.random((n, 3)), 0.05, 0.95)
    said = (rng.random((n, 3)) < chance).astype(int)
    said[rng.random(n) < 0.5, 2] = -1
    found = ratings(said, 2, chances=np.stack([1 - chance, chance], axis=2))
    table = ir.agreement(found)
    assert np.abs(table["value"] - table["expected"]).max() < 0.02
    assert np.abs(ir.by_pair(found)["kappa"] - ir.by_pair(found)["expected"]).max() < 0.03
    kinds = ir.by_kind(found, np.where(np.arange(n) < 5000, "A", "B"))
    assert kinds.groupby("kind")["cases"].first().to_dict() == {"A": 5000, "B": 15000}


def test_nobody_disagrees():
    table = ir.agreement(ratings([[1, 1]] * 30 + [[0, 0]] * 10, 2)).set_index("measure")
    assert (table["value"] == 1).all()
    assert ((table["low"] > 0.85) & (table["low"] < 0.95)).all()
    same = ir.agreement(ratings([[1, 1]] * 40, 2)).set_index("measure")["value"]
    assert np.isnan(same[ir.KAPPA])
    assert np.isnan(same[ir.ALPHA])
    assert same[ir.AC1] == 1
    with pytest.raises(DataError, match="no case was decided by several people"):
        ir.agreement(ratings(np.empty((0, 2), int), 2))


def test_the_meeting_talks_about_what_costs_most():
    # c0: one of three differs on 9; c1: two of two differ on 4; c2: all agree; c3: one of three differs on 3
    found = ratings([[0, 0, 1], [0, 1, -1], [1, 1, 1], [0, 1, 1]], 2)
    table = ir.for_a_meeting(found, [[0.0, 9.0], [4.0, 0.0], [9.0, 0.0], [3.0, 0.0]])
    assert table["case_id"].tolist() == ["c0", "c1", "c3"]
    assert table["at_stake"].tolist() == pytest.approx([9 * 2 / 3, 4.0, 3 * 2 / 3])
    assert table["apart"].tolist() == pytest.approx([2 / 3, 1.0, 2 / 3])
    assert table["said"].iloc[0] == "0: a, b; 1: c"
