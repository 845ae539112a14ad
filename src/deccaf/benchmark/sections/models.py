"""Sections of a benchmark's report about what was learned: models, experts, alerts, settings, time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from deccaf.benchmark import published, tables
from deccaf.benchmark.formatting import MEASURED, PAPER_ROW, heads
from deccaf.benchmark.sections import figures as pictures
from deccaf.benchmark.sections.scheme import scheme
from deccaf.benchmark.store import Store
from deccaf.report import figures
from deccaf.report.page import Section


def model_sections(store: Store, results: pd.DataFrame) -> tuple[Section, ...]:
    """All of them that the results allow."""
    return (
        *_expert_models(store),
        *_classifiers(store),
        *_outcomes(store),
        *_prices(store),
        *_teams(store),
        *_alert_model(store),
        *_settings(store),
        *_alone(store),
        *_chosen(store),
        *_seconds(store, results),
        Section(
            title="How it works",
            text="The paper's scheme with deccaf's parts. The paper learns whether an expert is right, not "
            "what it decides, and its plan adds up chances of being right, not costs.",
            pictures={"scheme": scheme},
        ),
    )


def _expert_models(store: Store) -> Iterable[Section]:
    table = tables.expert_models(store)
    if table.empty:
        return
    means = table.groupby(["model"])[["auc", "ece", "log_loss"]].mean()
    best = str(means["auc"].idxmax())
    title = f"{pictures.MODELS.get(best, best)} ranks best: AUC {means['auc'].max():.3f}"
    by = (
        table.groupby([*tables.SCENARIO, "model"], sort=False)[["auc", "ece", "log_loss"]]
        .mean()
        .reset_index()
    )
    shown = heads(by)
    shown["model"] = by["model"].map(lambda name: pictures.MODELS.get(name, name))
    for name in ("auc", "ece", "log_loss"):
        shown[name] = by[name].map("{:.3f}".format)
    yield Section(
        title="How well the models know the experts",
        text="P(the expert is right) on the test month against what every expert decided there, under the "
        "reweighted distribution, expert by expert; mean over experts and histories.",
        table=shown,
        pictures={"expert-models": partial(pictures.expert_models, table, title)},
        name="expert-models",
    )


def _classifiers(store: Store) -> Iterable[Section]:
    """The paper's table 2."""
    table = tables.classifiers(store)
    rows = []
    for rate, ratio, part in tables.by_scenario(table):
        head = {"Alerts": f"{rate:.0%}", "Ratio": f"{ratio:g}"}
        names = {"paper": "the paper's, measured", "refit": "the same, refit", "deccaf": "deccaf's"}
        for _, row in part.iterrows():
            name = names[str(row["model"])]
            rows.append(
                {**head, "Classifier": name, "ROC-AUC": f"{row['auc']:.3f}", "ECE": f"{row['ece']:.1%}"}
            )
        known = published.CLASSIFIER.get((rate, ratio))
        if known:
            rows.append(
                {**head, "Classifier": PAPER_ROW, "ROC-AUC": f"{known[0]:.2f}", "ECE": f"{known[1]:.1%}"}
            )
    if rows:
        yield Section(
            title="How well the classifiers know the truth",
            text="On the test month, under the distribution reweighted by the costs. The paper's classifier "
            "does not see the alert model's score; deccaf's does.",
            table=pd.DataFrame(rows),
            note=published.NOTE,
            name="classifiers",
        )


def _outcomes(store: Store) -> Iterable[Section]:
    """The paper's table 1."""
    table, rows = tables.outcomes(store), []
    for _, row in table.iterrows():
        scenario = (float(row["alert_rate"]), float(row["ratio"]))
        head = {"Alerts": f"{scenario[0]:.0%}", "Ratio": f"{scenario[1]:g}"}
        rows.append({**head, "": MEASURED, **{n: f"{row[n]:.1%}" for n in ("fp", "fn", "tp", "tn")}})
        if scenario in published.OUTCOMES:
            known = published.OUTCOMES[scenario]
            rows.append({**head, "": PAPER_ROW, **{n: f"{v:.1%}" for n, v in known.items()}})
    if rows:
        yield Section(
            title="Outcomes of the experts' decisions in the histories",
            text="One random expert decided each past case.",
            table=pd.DataFrame(rows),
            note=published.NOTE,
            name="outcomes",
        )


def _prices(store: Store) -> Iterable[Section]:
    table = tables.prices(store)
    if table.empty:
        return
    wide = table.pivot(index=tables.SCENARIO, columns="maker", values="price")
    wide = wide[list(dict.fromkeys(table["maker"]))]
    spread = (wide.max(axis=1) - wide.min(axis=1)).mean()
    shown = wide.map(lambda value: f"{value:.2f}").reset_index()
    yield Section(
        title="Whose time is worth most",
        text="What 100 more cases of each maker's room would save, as the plans of deccaf price it; mean "
        f"over the variations. Between the dearest and the cheapest lie {spread:.2f} on average.",
        table=heads(shown),
        note="All loads are fixed in this protocol, so prices are relative: a case moved from one maker to "
        "another saves the difference.",
        name="prices",
    )


def _teams(store: Store) -> Iterable[Section]:
    found = {_key(where): (key, report) for key, (where, report) in _team_reports(store)}
    if not found:
        return
    rates = {s: (store.table(key, "rates"), report["stakes"]) for s, (key, report) in found.items()}
    right = {s: store.table(key, "complementarity") for s, (key, _) in found.items()}
    apart = [t.to_numpy(np.float64)[~np.eye(len(t), dtype=bool)] for t in right.values()]
    least, most = min(float(a.min()) for a in apart), max(float(a.max()) for a in apart)
    shown = {
        "rates": partial(pictures.rates, rates, "Experts err in different ways at a similar cost"),
        "complementarity": partial(
            pictures.complementarity,
            right,
            f"Where one errs another is right, on {least:.0%} to {most:.0%} of the cases",
        ),
    }
    key, report = next(iter(found.values()))
    if (store.folder / key / "weights.parquet").is_file():
        weights = store.table(key, "weights")
        order = weights.abs().mean().sort_values(ascending=False)
        order = order[order > 0]
        shown["weights"] = partial(
            figures.heatmap, weights[list(order.index)].to_numpy(np.float64), report["experts"],
            list(order.index),
            f"What each expert goes by; {order.index[0]!r} sways the team most", diverging=True,
            label="weight / length",
        )  # fmt: skip
    dependent = store.table(key, "dependence")
    sway = dependent.abs().mean().sort_values(ascending=False)
    shown["dependence"] = partial(
        figures.heatmap, dependent[list(sway.index)].to_numpy(np.float64), report["experts"],
        list(sway.index),
        f"What decisions go by, as estimated from them; {sway.index[0]!r} moves them most", diverging=True,
        label="log-odds, lowest to highest",
    )  # fmt: skip
    yield Section(
        title="The experts",
        text="On the test month. Full lines are as costly as rejecting everything (green: cheaper, red: "
        "dearer), dashed lines 70 % and 40 % of it; h is the paper's classifier.",
        pictures=shown,
        table=_people({s: table for s, (table, _) in rates.items()}),
        note="Means of each group of people over the scenarios, from the decisions drawn.",
        name="experts",
    )


def _people(rates: Mapping[tuple[float, float], pd.DataFrame]) -> pd.DataFrame:
    """Error rates by group of people, mean over scenarios."""
    every = pd.concat(rates.values())
    parts = every.groupby("group", sort=False)
    return pd.DataFrame(
        {
            "Group": list(parts.groups),
            "Makers": parts["maker"].nunique().to_numpy(),
            "False-positive rate": parts["fpr"].mean().map("{:.1%}".format).to_numpy(),
            "False-negative rate": parts["fnr"].mean().map("{:.1%}".format).to_numpy(),
        }
    )


def _team_reports(store: Store) -> Iterable[tuple[str, tuple[dict[str, float], dict[str, Any]]]]:
    return zip(store.finished("teams"), tables.reports(store, "teams"), strict=True)


def _alert_model(store: Store) -> Iterable[Section]:
    for key in store.finished("world"):
        report = store.report(key)
        if "roc" not in report:
            return
        rate = float(key.rsplit("-", 1)[-1])
        fpr, tpr = np.array(report["roc"]["fpr"]), np.array(report["roc"]["tpr"])
        at = report["at_threshold"]
        months = store.table(key, "months")
        marked = {f"the {rate:.0%} threshold": (at[0], at[1])}
        span = f"months {months['month'].min()}-{months['month'].max()}"
        yield Section(
            title=f"The alert model at a {rate:.0%} alert rate",
            text=f"The threshold {report['threshold']:.4f} says that a false alarm costs "
            f"{report['cost_ratio']:.4f} of a missed fraud.",
            table=_months(months),
            pictures={
                f"alerts-by-month-{rate:g}": partial(figures.alerts_by_month, months.set_index("month")),
                f"alert-model-{rate:g}": partial(figures.roc, fpr, tpr, marked, span),
            },
            note="The paper's model: recall 57.9 % in validation and 52.1 % in deployment at 5 %. "
            + _alert_settings(report),
            name=f"alerts-{rate:g}",
        )


def _alert_settings(report: Mapping[str, Any]) -> str:
    """The paper's table 5: what was selected."""
    if "alert_model" not in report:
        return "Its settings are those that the paper selected."
    chosen = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in report["alert_model"].items()
    )
    return f"Settings chosen in {report['alert_trials']} trials: {chosen}."


def _months(months: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Month": months["month"],
            "Applications": months["applications"].map("{:,}".format),
            "Alerts": months["alerts"].map("{:,}".format),
            "Honest applicants alerted": months["fpr"].map("{:.2%}".format),
            "Fraud caught": months["tpr"].map("{:.1%}".format),
            "Fraud among alerts": months["fraud_share"].map("{:.1%}".format),
        }
    )


def _settings(store: Store) -> Iterable[Section]:
    table = tables.validation_losses(store)
    if table.empty:
        return
    shown = heads(table)
    for name in ("fixed", "chosen"):
        shown[name] = table[name].map("{:.4f}".format)
    yield Section(
        title="The settings of the paper's models",
        text="Weighted log-loss on the validation month with the best of the fixed settings, and with those "
        "chosen among these and the settings that the searches found; mean over histories.",
        table=shown,
        name="settings",
    )


def _alone(store: Store) -> Iterable[Section]:
    table = tables.classifiers_alone(store)
    if table.empty:
        return
    shown = heads(table[[*tables.SCENARIO, "settings"]])
    for name, title, style in (
        ("loss", "Log-loss", "{:.4f}"),
        ("cost", "Cost", "{:.2f}"),
        ("rejecting", "Rejecting everything", "{:.2f}"),
        ("passed", "Let pass", "{:.1%}"),
        ("passed_test", "Let pass, test month", "{:.1%}"),
    ):
        shown[title] = table[name].map(style.format)
    yield Section(
        title="The paper's classifier alone",
        text="Settings are chosen by log-loss on the validation month, as in the paper; what its decisions "
        "cost there, per 100 cases, need not be least with them. Where a classifier lets pass cases that "
        "barely pay, a larger share of the costly truth in the test month makes it dearer than rejecting "
        "everything. Compare with the cheaper of only-classifier and only-classifier-fixed.",
        table=shown,
        name="classifier-alone",
    )


_TUNED = (
    "n_estimators",
    "max_depth",
    "num_leaves",
    "min_child_samples",
    "learning_rate",
    "reg_alpha",
    "reg_lambda",
    "offset",
)


def _chosen(store: Store) -> Iterable[Section]:
    """The paper's tables 5 to 7 give spaces and, for the alert model, what was selected; here all of them."""
    table = tables.chosen_settings(store)
    names = [name for name in _TUNED if name in table]
    if table.empty or not names:
        return
    by = table.groupby([*tables.SCENARIO, "model"], sort=False)[names].median().reset_index()
    shown = heads(by)
    for name in names:
        shown[name] = by[name].map(lambda value: "" if pd.isna(value) else f"{value:.4g}")
    yield Section(
        title="The settings that were chosen",
        text="Of the paper's models, on the validation month: the fixed settings and those of the searches "
        "compete. Medians over histories, and for one-vs-all over experts too; `offset` is what was added to "
        "the classifier's initial score.",
        table=shown,
        name="chosen-settings",
    )


def _seconds(store: Store, results: pd.DataFrame) -> Iterable[Section]:
    table = tables.seconds(store, results)
    shown = pd.DataFrame(
        {
            "Stage": table["stage"],
            "Times": table["count"].map("{:,}".format),
            "Seconds each": table["mean"].map("{:.3f}".format),
            "Seconds in all": table["sum"].map("{:,.1f}".format),
        }
    )
    yield Section(
        title="Where the time goes",
        text="Seconds of one process on a shared machine, as they passed.",
        table=shown,
        name="seconds",
    )


def _key(where: Mapping[str, float]) -> tuple[float, float]:
    return where["alert_rate"], where["ratio"]
