"""The notebooks run from top to bottom, as scripts in the percent format that Jupyter (by jupytext) opens."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_ends_in_a_picture(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="pictures need the extra report")
    text = path.read_text()
    assert text.startswith("# ---\n# jupyter:")
    assert text.count("\n# %% [markdown]\n") >= 3
    assert "\n# # " in text  # a title
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(path))
    assert isinstance(found["figure"], figure.Figure)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
