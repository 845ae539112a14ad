"""The report of a benchmark: one page from the stored results alone, with the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from deccaf.benchmark import published, tables
from deccaf.benchmark.formatting import MEASURED, PAPER_ROW, heads, plus, scenario_of
from deccaf.benchmark.results import collect
from deccaf.benchmark.sections import figures as pictures
from deccaf.benchmark.sections.claims import claim_sections
from deccaf.benchmark.sections.groups import group_sections, workload_sections
from deccaf.benchmark.sections.models import model_sections
from deccaf.benchmark.sections.rivals import rival_sections
from deccaf.benchmark.store import Store
from deccaf.benchmark.tables import OURS, PAPER
from deccaf.errors import DataError
from deccaf.planning.comparing import compared, direction
from deccaf.policies import RIVALS
from deccaf.report.page import Report, Section


def bench_report(folder: str | Path, *, drawn: bool = False) -> Report:
    """The page of a finished, or half finished, benchmark; `drawn`: with the cost of drawn decisions."""
    store = Store(folder)
    results = collect(store)
    if results.empty:
        raise DataError(f"{folder}: no finished cells; run `deccaf bench run --out {folder}` first")
    if drawn:
        results = results.assign(**{tables.COST: np.nan})
    most = tables.largest_share(tables.one_batch(results))
    count = len(most[tables.SCENARIO].drop_duplicates())
    variations = len(most[["training_seed", "workload", "capacity_seed"]].drop_duplicates())
    return Report(
        title="Who should decide: the benchmark",
        lead=f"{variations} variations of {count} scenarios, {most['n'].iloc[0]:,} cases to decide in each. "
        "An alert rate and the cost of a false alarm relative to a missed fraud make a scenario; a history "
        f"and everybody's capacity make a variation. {searched(store)}",
        figures=_headline(tables.one_batch(results)),
        sections=bench_sections(store, results),
        footer="deccaf bench report: made from stored results alone; the same results give the same page.",
    )


def searched(store: Store) -> str:
    """With which budget the settings of the paper's models were found, in a sentence."""
    search = store.identity().get("search", {})
    asked = {name: search.get(name, "none") for name in ("classifier", "expertise")}
    if set(asked.values()) <= {"none", 0}:
        return "The paper's models had fixed settings; nothing was searched."
    most = search.get("most")
    if search.get("as_published") and set(asked.values()) == {"paper"}:
        ended = (
            "" if most is None else f"; each ended after {most:,} trials where it had more (1,700 at most)"
        )
        how = f"for every history, expert and start{ended}"
        return f"The paper's models had the searches of its appendix, {how}."
    words = {n: f"{b} trials" if isinstance(b, int) else f"the budget {b!r}" for n, b in asked.items()}
    each = " for every history, expert and start" if search.get("as_published") else ""
    return (
        f"The settings of the paper's models were searched{each}: classifier {words['classifier']}, models "
        f"of the experts {words['expertise']} (the paper: 2,000 for each of 11 starts, and 120)."
    )


def bench_sections(store: Store, results: pd.DataFrame) -> tuple[Section, ...]:
    """All sections that the results allow."""
    everything, whole = results, tables.one_batch(results)
    results = whole[~whole["policy"].isin(tables.MIXED)]
    found = [
        *_costs(results),
        *_summary(results),
        *_wins(results),
        *_differences(results),
        *_mixtures(whole),
        *rival_sections(results),
        *_gaps(results),
        *claim_sections(store, results),
        *_training_data(results),
        *workload_sections(everything[~everything["policy"].isin(tables.MIXED)]),
        *group_sections(store),
        *model_sections(store, results),
    ]
    return tuple(found)


def _headline(results: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    table = tables.closed(results)
    if table.empty:
        return ()
    mean = table.iloc[-1]
    found = [
        (
            f"{abs(mean['saved_paper']):.1%}",
            f"{direction(mean['saved_paper'])} cost than the paper's DeCCaF, mean over scenarios",
        ),
        (f"{abs(mean['saved_ova']):.1%}", f"{direction(mean['saved_ova'])} than one-vs-all"),
        (f"{mean['won_paper']:.0%}", "of the variations won against the paper's DeCCaF"),
    ]
    if "closed" in table:
        found.append((f"{mean['closed']:.0%}", "of the gap to knowing every expert, same classifier"))
    return tuple(found)


def _costs(results: pd.DataFrame) -> Iterable[Section]:
    """The paper's table 3, on its side: a row for each policy, as there are more of them than scenarios."""
    intervals = tables.cost_intervals(tables.largest_share(results))
    order = list(dict.fromkeys(results["policy"]))
    measured: dict[str, dict[str, str]] = {name: {} for name in order}
    paper: dict[str, dict[str, str]] = {name: {} for name in order}
    for rate, ratio, part in tables.by_scenario(intervals):
        scenario = f"{rate:.0%}, {ratio:g}"
        for name, mean, half in zip(part["policy"], part["mean"], part["half"], strict=True):
            measured[name][scenario] = plus(mean, half)
        for name, figures in published.COSTS.get((rate, ratio), {}).items():
            if name in paper:
                paper[name][scenario] = plus(*figures)
    rows = []
    for name in order:
        rows.append({"Policy": name, "": MEASURED, **measured[name]})
        if paper[name]:
            rows.append({"Policy": name, "": PAPER_ROW, **paper[name]})
    saved = tables.closed(results)
    text = (
        "Expected cost of errors per 100 cases, with the 95 % interval over the variations, by alert rate "
        "and cost of a false alarm."
    )
    title = "Cost per 100 cases, by who decides"
    if not saved.empty:
        gain = float(saved.iloc[-1]["saved_paper"])
        title = "deccaf costs " + compared(gain, "the paper's DeCCaF", 1)
    shown = [
        name
        for name in order
        if name not in {"machine", "hem-greedy"}
        and name.removesuffix("-optimal") not in RIVALS
        and (_within_reach(name) or "oracle" in name)
    ]
    drawn = tables.cost_column(results) == "cost_per_100"
    yield Section(
        title=title,
        text="Cost of the decisions that were made." if drawn else text,
        table=pd.DataFrame(rows).fillna(""),
        pictures={"costs": partial(pictures.costs, intervals, shown, title)},
        note=published.NOTE + " A missed fraud costs 1, a false alarm the ratio.",
        name="costs",
    )


def _within_reach(policy: str) -> bool:
    """Whether a policy can be followed: it knows what can be known, and keeps to everybody's limits."""
    return "oracle" not in policy and not policy.endswith("without-limits")


def _summary(results: pd.DataFrame) -> Iterable[Section]:
    table = tables.closed(results)
    if table.empty:
        return
    shown = pd.DataFrame(
        {
            "Scenario": [scenario_of(row) for _, row in table.iterrows()],
            "Saved against deccaf-paper": table["saved_paper"].map("{:.1%}".format),
            "Variations won": table["won_paper"].map("{:.0%}".format),
            "Saved against ova": table["saved_ova"].map("{:.1%}".format),
        }
    )
    if "closed" in table:
        shown["Gap to the oracle closed"] = table["closed"].map("{:.0%}".format)
    yield Section(
        title="What deccaf saves, scenario by scenario",
        text="The gap is that from deccaf-paper to the oracle, which knows everybody's true chance of error.",
        table=shown,
        name="summary",
    )


def _wins(results: pd.DataFrame) -> Iterable[Section]:
    """The paper's table 4, for its DeCCaF and for ours."""
    for policy in (OURS, PAPER):
        table = tables.wins(results, policy)
        if table.empty:
            continue
        table["cell"] = [
            f"{won:.2f}{'*' if p < 0.05 and won != 0.5 else ''}"
            for won, p in zip(table["won"], table["p_value"], strict=True)
        ]
        wide = table.pivot(index=tables.SCENARIO, columns="policy", values="cell")
        wide = wide[[name for name in dict.fromkeys(table["policy"]) if _within_reach(name)]]
        rows = []
        for rate, ratio, one in tables.by_scenario(wide):
            head = {"Alerts": f"{rate:.0%}", "Ratio": f"{ratio:g}"}
            rows.append({**head, "": MEASURED, **one.iloc[0]})
            known = published.WON.get((rate, ratio)) if policy == PAPER else None
            if known:
                rows.append({**head, "": PAPER_ROW, **{n: f"{v:.2f}" for n, v in known.items() if n in wide}})
        yield Section(
            title=f"Share of the variations in which {policy} is better",
            text="A star marks what a binomial test tells from a coin (5 %, two-sided).",
            table=pd.DataFrame(rows).fillna(""),
            note=published.NOTE if policy == PAPER else "",
            name=f"won-by-{policy}",
        )


def _differences(results: pd.DataFrame) -> Iterable[Section]:
    table = tables.differences(results)
    if table.empty:
        return
    rivals = [
        n for n in ("random", "ova", "ova-optimal", PAPER, "deccaf-paper-refit") if n in set(table["policy"])
    ]
    table = table[table["policy"].isin(rivals)]
    sure = int((table["low"] > 0).sum())
    title = f"The whole interval of the saving lies above zero in {sure} of {len(table)} comparisons"
    table["cell"] = [
        f"{saved:.1%} ({low:.1%} to {high:.1%})"
        for saved, low, high in zip(table["saved"], table["low"], table["high"], strict=True)
    ]
    wide = table.pivot(index=tables.SCENARIO, columns="policy", values="cell")[rivals].reset_index()
    yield Section(
        title="How much less deccaf costs, variation against variation",
        text="Relative saving with the 95 % interval of a bootstrap over histories and capacities, paired: "
        "both policies decide the same cases within the same limits.",
        table=heads(wide),
        pictures={"savings": partial(pictures.savings, table, rivals, title)} if rivals else {},
        name="differences",
    )


_WORDS = {
    "paper": "the paper's",
    "ours": "ours",
    "hem": "the paper's (HEM)",
    "decisions": "our decision model",
    "correct": "P~(right)",
    "cost": "expected cost",
}


def _mixtures(results: pd.DataFrame) -> Iterable[Section]:
    """Where our gain comes from: the paper's parts replaced by ours in every combination."""
    table = tables.mixtures(results)
    if table.empty:
        return
    shares = tables.shares_of_gain(table)
    largest = max(shares, key=lambda name: shares[name])
    said = {
        "classifier": "the classifier",
        "experts": "the model of the experts",
        "objective": "the objective",
    }
    parts = ", ".join(f"{said[name]} {100 * share:+.1f}" for name, share in shares.items())
    shown = pd.DataFrame(
        {
            "Classifier": table["classifier"].map(_WORDS),
            "Experts by": table["experts"].map(_WORDS),
            "The plan minimises": table["objective"].map(_WORDS),
            "Policy": table["policy"],
            "Saved against deccaf-paper": table["saved"].map("{:.1%}".format),
            "Scenarios": [f"{a:.1%} to {b:.1%}" for a, b in zip(table["least"], table["most"], strict=True)],
        }
    )
    yield Section(
        title=f"Most of the gain is {said[largest]}: {100 * shares[largest]:.1f} "
        f"of {100 * table['saved'].iloc[-1]:.1f} points",
        text=f"The paper's three parts replaced by ours in every combination. In points: {parts}, each the "
        "mean over the orders in which the three can be changed.",
        table=shown,
        name="mixtures",
    )


def _gaps(results: pd.DataFrame) -> Iterable[Section]:
    table = tables.gaps(results)
    if table.empty:
        return
    text = (
        "How far each method is from perfect knowledge of the experts and no limits, in cost per 100 cases."
    )
    costs = table.pivot(index=tables.SCENARIO, columns="policy", values="cost")
    if {"ova", "ova-optimal", PAPER} <= set(costs):
        solver, both = ((1 - costs[name] / costs["ova"]).mean() for name in ("ova-optimal", PAPER))
        text += (
            f" Against one-vs-all as published, the exact plan alone saves {solver:.1%} on average; the "
            f"paper's method, joint model and exact plan together, saves {both:.1%}."
        )
    shown = heads(table)
    for name in ("cost", "solver", "model", "capacity"):
        shown[name] = table[name].map("{:.3f}".format).to_numpy()
    yield Section(
        title="Where the rest is lost: model, solver, capacity",
        text=text,
        table=shown,
        pictures={
            "gaps": partial(pictures.gaps, table, "What the model, a greedy solver and the limits cost")
        },
        note="solver: greedy against exact with the same model. model: the exact plan against the oracle's. "
        "capacity: the oracle within limits against the oracle without them.",
        name="gaps",
    )


def _training_data(results: pd.DataFrame) -> Iterable[Section]:
    if results["train_share"].nunique() < 2:
        return
    intervals = tables.cost_intervals(results)
    shown = [n for n in ("random", "ova", PAPER, OURS, "oracle") if n in set(results["policy"])]
    wide = intervals[intervals["policy"].isin(shown)].copy()
    wide["cell"] = [plus(mean, half) for mean, half in zip(wide["mean"], wide["half"], strict=True)]
    wide = wide.pivot(index=[*tables.SCENARIO, "train_share"], columns="policy", values="cell")[shown]
    shares = sorted(results["train_share"].unique())
    title = f"Cost against training data, {shares[0]:.0%} to {shares[-1]:.0%} of the past"
    if {OURS, PAPER} <= set(results["policy"]):
        means = results.groupby([*tables.SCENARIO, "train_share", "policy"])[
            tables.cost_column(results)
        ].mean()
        least, whole = (
            means.xs(share, level="train_share").unstack("policy") for share in shares[:: len(shares) - 1]
        )
        if (least[OURS] < whole[PAPER]).all():
            title = f"deccaf with {shares[0]:.0%} of the data costs less than deccaf-paper with all of it"
    yield Section(
        title=title,
        text="Everything was learned from a part of the past cases; smaller parts lie within larger ones.",
        table=heads(wide.reset_index()),
        pictures={"training-data": partial(pictures.training_data, intervals, shown, title)},
        name="training-data",
    )
