"""A few cases as plain arrays give the numbers that a table gives."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deccaf import DataError
from deccaf.data.kinds import Feature
from deccaf.data.rows import CaseRows, check_row
from deccaf.data.schema import Columns, Schema
from deccaf.models import BoostedDecisions, CaseClassifier, DecisionModel
from deccaf.models.decisions.log import DecisionLog
from deccaf.models.linear.encoding import LinearEncoder

SCHEMA = Schema((Feature("amount", "number"), Feature("channel", "category", ("branch", "phone", "web"))))

rows = st.lists(
    st.fixed_dictionaries(
        {
            "amount": st.none() | st.floats(-1e6, 1e6) | st.integers(-5, 5),
            "channel": st.none() | st.sampled_from(["branch", "web", "fax"]),
        }
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None)
@given(rows)
def test_values_are_those_of_the_schema(cases: list[dict[str, object]]) -> None:
    frame = pd.DataFrame(cases, columns=["amount", "channel"])
    cast, found = SCHEMA.cast(frame), CaseRows(SCHEMA, cases)
    np.testing.assert_array_equal(found.numbers("amount"), cast["amount"].to_numpy())
    np.testing.assert_array_equal(
        found.places("channel", ["branch", "phone", "web"]), cast["channel"].cat.codes
    )
    assert len(found) == len(frame)
    assert found.columns == SCHEMA.names


def test_levels_are_found_in_any_order_and_numbers_can_be_names() -> None:
    schema = Schema((Feature("branch", "category", ("1", "2", "30")),))
    found = CaseRows(
        schema, [{"branch": 30.0}, {"branch": 2}, {"branch": "1"}, {"branch": 7}, {"branch": None}]
    )
    assert found.places("branch", ["30", "1"]).tolist() == [0, -1, 1, -1, -1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"amount": 1.0}, "column 'channel': missing"),
        ({"amuont": 1.0, "channel": "web"}, "column 'amount': missing; did you mean 'amuont'"),
        ({"amount": "much", "channel": "web"}, "column 'amount': 'much' is no number"),
        ({"amount": float("inf"), "channel": "web"}, "column 'amount': infinite"),
        ({"amount": 10**400, "channel": "web"}, "is no number"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(row: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_row(SCHEMA, row)


def test_models_give_the_same_numbers_as_for_a_table() -> None:
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame({"amount": rng.normal(size=n), "channel": rng.choice(["web", "phone", "branch"], n)})
    frame.loc[::7, "amount"] = np.nan
    schema = Schema.infer(frame, Columns(), set())
    features, truth = schema.cast(frame), (rng.random(n) < 0.3).astype(int)
    expert = pd.Series(rng.choice(["ann", "bob", "cat"], n))
    decision = np.where(rng.random(n) < 0.2, 1 - truth, truth)
    classifier = CaseClassifier().fit(features, truth)
    model = DecisionModel(parts=["rates", "pooled", "boosted"]).fit(features, truth, expert, decision)
    model.parts_["boosted"] = BoostedDecisions([{"n_estimators": 20, "num_leaves": 4}]).fit(
        _log(features, truth, expert, decision)
    )
    model.weights_["boosted"] = 0.5
    records = frame.astype(object).where(frame.notna(), None).to_dict("records")
    for count in (1, 9, 40):  # a few are encoded value by value
        plain, table = CaseRows(schema, records[:count]), features.iloc[:count]
        np.testing.assert_allclose(classifier.predict(plain), classifier.predict(table), rtol=1e-12)
        for experts in (["cat", "ann"], ["bob", "nobody"], ["cat", "ann"]):
            found, expected = model.predict(plain, experts), model.predict(table, experts)
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@settings(deadline=None)
@given(
    st.lists(st.floats(-100, 100) | st.just(float("nan")), min_size=2, max_size=30),
    st.lists(st.floats(-150, 150) | st.just(float("nan")), min_size=1, max_size=16),
)
def test_values_are_encoded_alike_one_by_one_and_together(seen: list[float], values: list[float]) -> None:
    schema = Schema((Feature("amount", "number"),))
    encoder = LinearEncoder().fit(schema.cast(pd.DataFrame({"amount": seen})))
    table = schema.cast(pd.DataFrame({"amount": values}))
    rows = CaseRows(schema, [{"amount": value} for value in values])
    np.testing.assert_allclose(encoder.transform(rows), encoder.transform(table), rtol=1e-12, atol=1e-15)


def _log(features: pd.DataFrame, truth: np.ndarray, expert: pd.Series, decision: np.ndarray) -> DecisionLog:
    return DecisionLog.of(features, truth, expert, decision, classes=2)
