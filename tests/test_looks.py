"""Plots and notebook cards: one style, safe colours, everything from outside escaped."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from deccaf import ConfigError, Costs, DeCCaF
from deccaf.assign import solve
from deccaf.backtest.results import Backtest
from deccaf.data.notebook import card
from deccaf.report import figures

EVIL = "<script>ann & co</script>"


@pytest.fixture(scope="module")
def fitted() -> SimpleNamespace:
    rng, n = np.random.default_rng(0), 300
    y = (rng.random(n) < 0.3).astype(int)
    X = pd.DataFrame({"amount": rng.normal(size=n) + y}, index=[f"<b>{k}</b>" for k in range(n)])
    who = np.array([EVIL, "bob"])[rng.integers(2, size=n)]
    said = np.where(rng.random(n) < 0.8, y, 1 - y)
    model = DeCCaF(
        Costs.binary(false_positive=0.3, false_negative=1.0, unit="<i>EUR</i>"),
        case_parts=("logistic",),
        decision_parts=("rates",),
    ).fit(X, y, expert=who, decision=said)
    plan = model.assign(X.iloc[:40], {EVIL: 10, "bob": 10})
    staffing = model.staff(X, {"wage": 0.4, "minutes": 10, "cases": 60, "hours": 2})
    return SimpleNamespace(model=model, plan=plan, staffing=staffing, X=X, y=y)


def test_cards_are_escaped_and_say_what_matters(fitted: SimpleNamespace) -> None:
    explained = fitted.model.explain(fitted.X, fitted.plan, case="<b>3</b>")
    loss = pd.DataFrame([[1.0, 0.0], [0.0, 1.0]], columns=["machine", EVIL])
    cards = {
        "plan": fitted.plan._repr_html_(),
        "model": fitted.model._repr_html_(),
        "explanation": explained._repr_html_(),
        "assignment": solve(loss, [2, 2])._repr_html_(),
        "staffing": fitted.staffing._repr_html_(),
    }
    for name, html in cards.items():
        assert "&lt;script&gt;ann &amp; co&lt;/script&gt;" in html, name
        assert not {"<script", "<b>", "<i>"} & {tag for tag in ("<script", "<b>", "<i>") if tag in html}, name
    assert "proved: no plan" in cards["plan"]
    assert "300 cases, 2 people" in cards["model"]
    assert "not fitted yet" in DeCCaF()._repr_html_()
    assert "and 8 more rows" in card("many", (), pd.DataFrame({"a": range(20)}))


def test_every_plot_states_its_finding(fitted: SimpleNamespace) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra report")
    drawn_ones = {
        "less than with the machine alone": fitted.plan.plot(),
        "errs least": fitted.model.plot_people(),
        "is off by": fitted.model.plot_calibration(fitted.X, fitted.y),
        "hours are worth their wages": fitted.staffing.plot(),
    }
    for words, figure in drawn_ones.items():
        titles = [axes.get_title(loc="left") for axes in figure.axes] + [figure.get_suptitle()]
        assert any(words in title for title in titles), titles
        assert len(figures.as_png(figure, dpi=40)) > 1000


def test_a_backtest_draws_what_its_report_draws() -> None:
    with pytest.raises(ConfigError, match="expected one of costs, hours, calibration, got 'people'"):
        Backtest.plot(SimpleNamespace(), "people")  # type: ignore[arg-type]


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, fitted: SimpleNamespace
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(
        ConfigError, match=r"a picture needs matplotlib.figure, which comes with deccaf\[report\]"
    ):
        fitted.plan.plot()


# Machado, Oliveira, Fernandes (2009), severity 1, on linear RGB
BLIND = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def lab(color: str, matrix: list[list[float]] | None) -> np.ndarray:
    """CIE L*a*b* of a colour as somebody sees it."""
    rgb = np.array([int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear if matrix is None else np.array(matrix) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = np.cbrt(xyz / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", [None, *BLIND])
def test_colours_can_be_told_apart(sight: str | None) -> None:
    matrix = None if sight is None else BLIND[sight]
    for one, other in itertools.combinations(figures.PALETTE[:6], 2):
        apart = float(np.linalg.norm(lab(one, matrix) - lab(other, matrix)))
        assert apart > 10, f"{one} and {other} are alike to {sight or 'everybody'}: {apart:.0f}"


def test_colours_are_dark_enough_for_print() -> None:
    for color in (*figures.PALETTE, figures.INK, figures.MUTED):
        assert lab(color, None)[0] < 68, color
