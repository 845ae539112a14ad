"""Selective labels: rejects whose truth nobody saw are weighed, guessed or bounded, and never just dropped."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone

from deccaf import Cases, Columns, History
from deccaf.backtest.options import Options
from deccaf.backtest.run import backtest
from deccaf.data.config import Config
from deccaf.errors import ConfigError, DataError
from deccaf.estimator import DeCCaF, learn_from
from deccaf.evaluate.audit import audit
from deccaf.evaluate.hidden_truth import counted, possible_truths
from deccaf.evaluate.sentinels import find_sentinels

ROWS, SHARE = 2000, 0.1


def desk(share: float, hidden: bool = True, seed: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Applications; four reviewers who see more than the features do; rejects without a label."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 2))
    truth = (rng.random(ROWS) < expit(x[:, 0] - 0.5)).astype(int)
    who = rng.integers(0, 4, ROWS)
    lean = np.array([-1.2, -0.2, 0.2, 0.6])[who]
    said = (rng.random(ROWS) < expit(0.5 * x[:, 0] + lean + 1.5 * (2 * truth - 1))).astype(int)
    let = (said == 1) & (rng.random(ROWS) < share)
    label = pd.Series(truth, dtype="Int64").mask((said == 1) & ~let & hidden)
    cases = pd.DataFrame({"case_id": np.arange(ROWS), "a": x[:, 0], "b": x[:, 1], "label": label})
    cases["let_through"], cases["time"] = np.where(let & hidden, share, np.nan), np.arange(ROWS)
    log = pd.DataFrame(
        {"case_id": np.arange(ROWS), "expert_id": np.array(list("abcd"))[who], "decision": said}
    )
    return cases, log


def config(selective: object = "positive") -> Config:
    tables: dict[str, object] = {
        "costs": {"false_positive": 0.3, "false_negative": 1.0},
        "model": {"case_parts": ["logistic"], "decision_parts": ["rates"]},
    }
    return Config.model_validate({**tables, **({"labels": {"selective": selective}} if selective else {})})


def history(share: float, hidden: bool = True, settings: Config | None = None) -> History:
    return History.from_frames(*desk(share, hidden), settings or config())


def level(share: float, hidden: bool, selective: object) -> float:
    """The mean chance of a bad case that is learned."""
    settings = config(selective)
    found = history(share, hidden, settings)
    return float(learn_from(found, settings, lambda _: None).predict_proba(found.features)[:, 1].mean())


@pytest.mark.filterwarnings("ignore")
def test_the_level_comes_back() -> None:
    full, naive = level(0.0, False, None), level(0.0, True, None)
    assert naive < 0.65 * full
    assert level(SHARE, True, "positive") == pytest.approx(full, rel=0.12)
    assert naive < level(0.0, True, "positive") < 1.3 * full


@pytest.mark.filterwarnings("ignore")
def test_arrays_learn_what_tables_learn() -> None:
    cases, log = desk(SHARE)
    settings, x = config(), cases[["a", "b"]]
    by_table = learn_from(history(SHARE), settings, lambda _: None)
    model = DeCCaF.from_config(settings)
    assert model.selective == "positive"
    assert clone(model).selective == "positive"
    by_array = clone(model).fit(
        x,
        cases["label"],
        expert=log["expert_id"],
        decision=log["decision"],
        time=cases["time"],
        let_through=cases["let_through"],
    )
    np.testing.assert_allclose(by_array.predict_proba(x), by_table.predict_proba(x), atol=1e-6)
    with pytest.raises(DataError, match="let_through"):
        model.fit(x, cases["label"], let_through=np.full(len(x), 7.0))
    with pytest.raises(ConfigError, match="selective"):
        DeCCaF(settings.costs.build(), selective="rejected").fit(x, cases["label"])


def test_let_through_cases_stand_for_the_rejected() -> None:
    found = counted(history(SHARE), config().labels)
    rejected = int((found.history.decision == 1).sum())
    stands, guess = found.history.stands, found.history.guess
    assert stands is not None
    assert guess is not None
    unseen = found.history.label < 0
    np.testing.assert_array_equal(stands[unseen], 0.0)
    np.testing.assert_allclose(np.unique(stands), [0.0, 1.0, 1 / SHARE])
    assert stands[stands > 1].sum() == pytest.approx(rejected, rel=0.3)
    np.testing.assert_array_equal(np.isfinite(guess[:, 0]), unseen)
    np.testing.assert_allclose(guess[unseen].sum(axis=1), 1.0)
    assert "together for" in found.notes[0]
    learned = found.history.to_learn_from()  # every unseen case once for every truth, all rejects together
    assert len(learned.cases) == ROWS + unseen.sum()
    assert learned.weight is not None
    assert learned.weight.sum() == pytest.approx(ROWS)
    assert learned.weight[learned.case].sum() == pytest.approx(ROWS)
    assert (learned.label >= 0).all()
    twins = pd.Series(learned.group.to_numpy()).groupby(learned.cases.ids).nunique()  # type: ignore[union-attr]
    assert (twins == 1).all()


def test_wrong_chances_and_stray_labels_are_said() -> None:
    cases, log = desk(SHARE)
    cases["let_through"] = cases["let_through"] / 5
    said = counted(History.from_frames(cases, log, config()), config().labels).notes
    assert any("cannot be right" in note for note in said)
    cases["let_through"] = (5 * cases["let_through"]).where(cases.index < ROWS // 2)
    said = counted(History.from_frames(cases, log, config()), config().labels).notes
    assert any("no fair sample" in note for note in said)
    cases["let_through"] = 1.5
    with pytest.raises(DataError, match=r"let_through.*outside \(0, 1\]"):
        History.from_frames(cases, log, config())


def test_leniency_bounds_hold_the_truth() -> None:
    whole = history(0.0, hidden=False)
    true = float((whole.label == 1).mean())
    shown = history(0.0)
    found = counted(shown, config().labels)
    assert found.ends is not None
    assert found.history.stands is None
    labels = possible_truths(found.history, config().labels, seed=0)
    middle, least, most = (float((one == 1).mean()) for one in labels)
    assert least < middle < most
    assert least < true < most
    trivial = float((shown.label == 1).mean()), float(((shown.label == 1) | (shown.label < 0)).mean())
    assert most < trivial[1] - 0.01  # the lenient reviewer's accepts tell about the others' rejects
    assert least >= trivial[0] - 1e-9
    assert "leave open whether" in found.notes[0]


def test_nothing_hidden_is_nothing_changed() -> None:
    plain = history(0.0, hidden=False)
    assert counted(plain, config().labels).history is plain
    assert counted(history(0.0), config(None).labels).history.guess is None
    np.testing.assert_array_equal(possible_truths(plain, config().labels, 0)[0], plain.label)


@pytest.mark.filterwarnings("ignore")
def test_backtests_count_all_rejects_or_bound_them() -> None:
    options = Options(policies=("machine", "deccaf"), test_share=0.4)
    full = backtest(history(0.0, hidden=False), config(None), options)
    naive = backtest(history(0.0), config(None), options)
    open_ = backtest(history(0.0), config(), options)
    drawn = backtest(history(0.3), config(), options)
    past = {
        name: one.costs["cost"]["as it was"] for name, one in zip("fnd", (full, naive, drawn), strict=True)
    }
    assert abs(past["d"] - past["f"]) < abs(past["n"] - past["f"])
    assert drawn.costs["low"]["as it was"] < past["f"] < drawn.costs["high"]["as it was"]
    assert drawn.open is None
    assert open_.open is not None
    assert open_.open["cost_low"]["as it was"] < past["f"] < open_.open["cost_high"]["as it was"]
    assert "can only be bounded" in open_.verdict.sentences[0]
    assert open_.verdict.kind == "cannot tell"
    assert open_.to_dict()["open"] is not None


@pytest.mark.filterwarnings("ignore")
def test_a_desk_that_saw_hardly_any_bad_case() -> None:
    cases, log = desk(0.0)
    cases["label"] = cases["label"].mask(cases["label"] == 1)  # no bad case was ever seen
    log["decision"] = np.where(cases["label"].isna(), 1, log["decision"])
    with pytest.raises(DataError, match="nothing can be learned: one class only"):
        learn_from(History.from_frames(cases, log, config()), config(), lambda _: None)
    cases.loc[cases.index[:3], "label"] = 1
    model = learn_from(History.from_frames(cases, log, config()), config(), lambda _: None)
    assert 0.0 < model.predict_proba(cases[["a", "b"]])[:, 1].mean() < 1.0


def test_values_that_stand_for_missing_are_named() -> None:
    rng = np.random.default_rng(0)
    age, ratio = rng.integers(18, 99, 300).astype(float), rng.random(300)
    age[:4], age[4:6], ratio[:3] = -999.0, 9999.0, -99.0
    cases = pd.DataFrame({"case_id": np.arange(300), "age": age, "ratio": ratio, "label": np.arange(300) % 2})
    cases["wide"] = rng.normal(0, 2000, 300).round()  # 999 would be nothing odd here
    cases.loc[:2, "wide"] = 999.0
    cases["when"] = pd.date_range("2024-01-01", periods=300)
    cases.loc[:1, "when"] = pd.Timestamp("1900-01-01")
    roles = Columns(time="when")
    found = find_sentinels(History.of(Cases.from_frame(cases, columns=roles)))
    assert [(one.column, one.value, one.count) for one in found] == [
        ("age", "-999", 4),
        ("age", "9999", 2),
        ("ratio", "-99", 3),
        ("when", "1900-01-01", 2),
    ]
    clean = cases.iloc[6:].assign(month=1)
    looked = audit(History.of(Cases.from_frame(clean, columns=roles)), roles)
    assert looked.sentinels == ()
    with_note = audit(History.of(Cases.from_frame(cases, columns=roles)), roles)
    assert any("'age': -999 in 4 case(s)" in note for note in with_note.faults)
    np.testing.assert_array_equal(with_note.history.features["age"], age)  # nothing is changed
