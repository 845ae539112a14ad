"""What people's decisions go by, in a world where that is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from deccaf.evaluate.dependence import dependence, group_of


def test_everybody_goes_by_what_they_go_by() -> None:
    """Ann goes by the score, bob by the country, cy always says no; nobody goes by noise."""
    rng, n = np.random.default_rng(0), 4000
    score, country = rng.uniform(size=n), rng.choice(["a", "b", "c"], n)
    truth = rng.integers(0, 2, n)
    ann = rng.random(n) < 1 / (1 + np.exp(-(6 * (score - 0.5) + truth)))
    bob = rng.random(n) < np.where(country == "b", 0.9, 0.2)
    said = np.column_stack([ann, bob, np.zeros(n)]).astype(np.int64)
    features = pd.DataFrame({"score": score, "country": country, "noise": rng.normal(size=n)})
    features.loc[::7, "noise"] = np.nan
    found = dependence(features, truth, said, ["ann", "bob", "cy"])
    assert found.loc["ann", "score"] == pytest.approx(6, abs=1)
    assert found.loc["ann"].abs().idxmax() == "score"
    assert found.loc["bob"].abs().idxmax() == "country"
    assert found.loc["bob", "country"] > 1
    assert (found["noise"].abs() < 0.5).all()
    assert (found.loc["cy"] == 0).all()


@pytest.mark.parametrize(
    ("name", "group"), [("standard#12", "standard"), ("unfair_3", "unfair"), ("ann", "ann"), ("7", "7")]
)
def test_names_tell_groups(name: str, group: str) -> None:
    assert group_of(name) == group
