"""Tables of a benchmark, from results that a reader can add up."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from deccaf.benchmark import tables
from deccaf.benchmark.first_plan import MonthOfPlans
from deccaf.benchmark.results import TYPES, as_stored, variation_of
from deccaf.benchmark.sections import figures
from deccaf.benchmark.sections.month import month_headline, month_sections
from deccaf.benchmark.sections.rivals import rival_sections
from deccaf.errors import DataError
from deccaf.policies import MIXTURES
from deccaf.report.figures import percent


def results(
    costs: dict[str, float], *, shares=(1.0,), noise: float = 0.0, expected: bool = True
) -> pd.DataFrame:
    """Four variations of one scenario; each policy costs what is said, give or take a little."""
    rng, rows = np.random.default_rng(0), []
    for share, seed, capacity in itertools.product(shares, (0, 1), (0, 1)):
        for policy, cost in costs.items():
            value = cost + noise * rng.normal()
            rows.append(
                (
                    0.05,
                    0.057,
                    share,
                    seed,
                    capacity,
                    policy,
                    100,
                    0,
                    0,
                    0,
                    100,
                    value,
                    value if expected else None,
                    0.1,
                    "",
                )
            )
    return pd.DataFrame(rows, columns=list(TYPES)).astype(TYPES)


FOUR = {
    "ova": 4.0,
    "ova-optimal": 3.5,
    "deccaf-paper": 3.0,
    "deccaf": 2.25,
    "oracle": 2.0,
    "oracle-without-limits": 1.5,
}


def test_the_gain_is_shared_among_what_was_changed():
    """Costs that add up factor by factor give each factor its own share, whatever the order."""
    worth = {"paper": 0.0, "ours": 0.2, "hem": 0.0, "decisions": 0.9, "correct": 0.0, "cost": 0.1}
    costs = {name: 4.0 - sum(worth[part] for part in made_of) for made_of, name in MIXTURES.items()}
    corners = tables.mixtures(results(costs))
    shares = tables.shares_of_gain(corners)
    assert shares == pytest.approx({"classifier": 0.05, "experts": 0.225, "objective": 0.025})
    assert corners.set_index("policy")["saved"]["deccaf"] == pytest.approx(sum(shares.values()))
    assert tables.mixtures(results(FOUR)).empty  # not all of them were run


def test_savings_wins_and_the_gap():
    found = tables.closed(results(FOUR)).iloc[0]
    assert found["saved_paper"] == pytest.approx(0.25)
    assert found["saved_ova"] == pytest.approx(1 - 2.25 / 4)
    assert found["won_paper"] == 1.0
    assert found["closed"] == pytest.approx(0.75)


def test_the_gap_is_split_into_solver_model_and_capacity():
    rows = tables.gaps(results(FOUR)).set_index("policy")
    assert rows.loc["ova", ["solver", "model", "capacity"]].tolist() == [0.5, 1.5, 0.5]
    assert rows.loc["deccaf", ["solver", "model", "capacity"]].tolist() == [0.0, 0.25, 0.5]
    parts = rows[["solver", "model", "capacity"]].sum(axis=1)
    assert np.allclose(rows["cost"] - parts, 1.5)


def test_wins_come_with_a_binomial_test():
    rows = tables.wins(results(FOUR), "deccaf").set_index("policy")
    assert rows.loc["ova", "won"] == 1.0
    assert rows.loc["oracle", "won"] == 0.0
    assert rows.loc["ova", "p_value"] == pytest.approx(2 * 0.5**4)  # four heads or four tails


def test_a_rival_that_beats_deccaf_is_named():
    found = tables.rivals(results({**FOUR, "rejection": 4.5, "nguyen-em": 2.0, "nguyen-em-optimal": 4.5}))
    assert found["policy"].tolist() == ["rejection", "nguyen-em", "nguyen-em-optimal"]
    assert found["saved"].tolist() == pytest.approx([0.5, 1 - 2.25 / 2, 0.5])
    assert found["scenarios_won"].tolist() == [0, 1, 0]
    (section,) = rival_sections(results({**FOUR, "nguyen-em": 2.0}))
    assert section.title == "Rivals that cost less than deccaf: nguyen-em in 1 of 1 scenarios"
    assert tables.rivals(results({**FOUR, "rejection": 4.5})).empty


def test_intervals_and_differences():
    noisy = results(FOUR, noise=0.05)
    intervals = tables.cost_intervals(noisy).set_index("policy")
    own = noisy[noisy["policy"] == "ova"]["expected_cost_per_100"]
    assert intervals.loc["ova", "half"] == pytest.approx(1.96 * own.std() / 2)
    saved = tables.differences(noisy).set_index("policy")
    assert (saved["low"] <= saved["saved"]).all()
    assert (saved["saved"] <= saved["high"]).all()
    assert saved.loc["ova", "low"] > 0 > saved.loc["oracle", "high"]


def test_without_true_chances_the_decisions_count():
    real = results({"ova": 4.0, "deccaf": 2.0}, expected=False)
    assert tables.cost_column(real) == "cost_per_100"
    assert tables.cost_table(real)["5%, 0.057"].tolist() == [4.0, 2.0]
    assert tables.gaps(real).empty
    assert tables.closed(real).empty


def test_a_column_per_share_where_there_are_several():
    both = results({"ova": 4.0, "deccaf": 2.0}, shares=(0.25, 1.0))
    assert list(tables.cost_table(both)) == ["policy", "5%, 0.057 (100% data)", "5%, 0.057 (25% data)"]
    assert set(tables.largest_share(both)["train_share"]) == {1.0}


def test_a_folder_names_its_variation():
    found = variation_of("cells/rate-0.05_ratio-0.0114_share-25_seed-3_capacity-4")
    assert list(found.values()) == [0.05, 0.0114, 0.25, 3, 4, ""]
    other = variation_of("cells/rate-0.05_ratio-0.0114_share-25_seed-3_workload-half-days_capacity-4")
    assert other == {**found, "workload": "half-days"}
    with pytest.raises(DataError, match="not the folder of a cell"):
        variation_of("cells/other")


def test_ticks_of_shares_are_not_rounded() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.set_xticks([-0.05, 0.0, 0.025, 0.05, 0.075])
    percent(axes.xaxis)
    labels = [axes.xaxis.get_major_formatter()(tick, None) for tick in axes.get_xticks()]
    assert labels == ["\N{MINUS SIGN}5%", "0%", "2.5%", "5%", "7.5%"]


@pytest.mark.parametrize("rates", [(0.05,), (0.05, 0.15)])
def test_the_legend_of_the_models_is_whole(rates: tuple[float, ...]) -> None:
    """With one alert rate, and all models in it, the names are inside of the picture."""
    rows = [
        {"alert_rate": rate, "ratio": 0.057, "model": model, "auc": 0.6, "ece": 0.1}
        for rate in rates
        for model in figures.MODELS
        for _ in range(2)
    ]
    figure = figures.expert_models(pd.DataFrame(rows), "A title")
    figure.canvas.draw()
    (legend,) = figure.legends
    inside, box = figure.bbox, legend.get_window_extent()
    assert inside.x0 <= box.x0 < box.x1 <= inside.x1
    assert len(legend.get_texts()) == len(figures.MODELS)


def test_without_workloads_the_file_has_the_columns_that_others_build_on() -> None:
    plain = pd.DataFrame([[0] * len(TYPES)], columns=list(TYPES)).assign(workload="")
    assert list(as_stored(plain)) == [
        "alert_rate", "ratio", "train_share", "training_seed", "capacity_seed", "policy", "n", "fp", "fn", "tp",
        "tn", "cost_per_100", "expected_cost_per_100", "assign_seconds",
    ]  # fmt: skip
    assert list(as_stored(plain.assign(workload="busy")))[-1] == "workload"


def test_the_demos_first_page_can_be_added_up_by_hand() -> None:
    """Two days of ten cases; an hour is 2.5 cases, and one more case a day of ann's saves 0.2."""
    ways = pd.DataFrame(
        {"missed": [4.0, 3.0, 2.0], "refused": [0.0, 10.0, 10.0], "cost": [4.0, 3.5, 2.5]},
        index=["the machine alone", "analysts at random", "deccaf"],
    )
    makers = pd.DataFrame(
        {
            "cases": [5, 9, 6],
            "frauds": [1, 2, 2],
            "missed": [0.0, 1.0, 1.0],
            "refused": [2.0, 4.0, 4.0],
            "price": [0.0, 0.2, 0.1],
        },
        index=["machine", "ann", "bob"],
    )
    found = MonthOfPlans(ways, makers, days=2, ratio=0.05)
    assert found.per_100.tolist() == pytest.approx([20.0, 17.5, 12.5])
    many, people, saved, hour = month_headline(found)
    assert many == ("20", "cases to decide in 2 days; one in 4 is fraud")
    assert people[0] == "75%"
    assert saved[0] == "29% less"
    assert "as bad as 2.5 missed frauds, not 3.5" in saved[1]
    assert hour == ("1.00", "missed frauds: what one more hour a day of ann would save in all, at most")
    by_way, by_maker = month_sections(found)
    assert by_way.title == "Its plans cost 29% less than the next best way (analysts at random)"
    assert "20 people refused are as bad as one fraud" in by_way.text
    assert by_maker.table["An hour more saves"].tolist() == ["", "1.00", "0.50"]
