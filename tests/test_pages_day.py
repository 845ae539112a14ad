"""A whole day as a newcomer, in Chromium: an empty installation, own history, the first plan, the next model.

Each act is a function of the page that the day stands at, so that further acts can be put between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, expect

from test_pages_browser import CHROMIUM, Desk, browser, check_accessible, sign_in  # noqa: F401 a fixture

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; `sh tools/test-packages` installs it")

VIPER = Path(__file__).parents[2] / "shared" / "data" / "viper_mammography"
PATIENCE = 240_000
"""Milliseconds for a model to be fitted in the background, on a machine that does much else."""


class EmptyDesk(Desk):
    """A service on which nobody has done anything yet."""

    def _furnish(self, folder: Path) -> None:
        """Leave it as it is."""


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[EmptyDesk]:
    found = EmptyDesk(tmp_path)
    yield found
    found.close()


def own_history(cases: int = 150, people: int = 6) -> pd.DataFrame:
    """Several decisions for each case, with a patient's number and a column of the decision: simulated."""
    rng = np.random.default_rng(11)
    one = pd.DataFrame(
        {
            "case_id": [f"h{k}" for k in range(cases)],
            "patient_number": rng.integers(70_000, 70_000 + cases // 2, cases),
            "density": rng.normal(size=cases).round(3),
            "age": rng.integers(40, 75, cases),
            "ward": rng.choice(["north", "south"], cases),
        }
    )
    one["label"] = (one["density"] + rng.normal(size=cases) > 0.4).astype(int)
    rows = one.loc[np.repeat(np.arange(cases), 3)].reset_index(drop=True)
    rows["expert_id"] = [f"reader{1 + (k + k // 3) % people}" for k in range(len(rows))]
    skill = rng.random(len(rows)) < 0.8
    rows["decision"] = np.where(skill, rows["label"], 1 - rows["label"])
    rows["mood"] = rng.normal(size=len(rows)).round(2)
    return rows


def enters_history(page: Page, file: Path, rows: str, bad: bool) -> None:
    """Looks at a file, corrects what was guessed, enters it; nothing is written before."""
    page.set_input_files("#history-file", str(file))
    page.click("text=Look at the file")
    preview = page.locator("#history-preview")
    expect(preview.locator("h3")).to_contain_text(rows, timeout=PATIENCE)  # the first file waits for a reader
    check_accessible(page)
    if bad:
        expect(preview).to_contain_text("is no name for a person")
        preview.locator("button", has_text="Enter").click()  # the browser asks for the tick first
        expect(preview.locator("input[name=skip]")).to_be_focused()
        preview.locator("input[name=skip]").check()
    preview.locator("button", has_text="Enter").click()
    page.wait_for_url("**/setup?entered=yes#model", timeout=PATIENCE)


def fits_a_model(page: Page, false_positive: str, false_negative: str) -> None:
    """Says what errors cost, and waits for the model."""
    page.fill("#fp", false_positive)
    page.fill("#fn", false_negative)
    page.click("#model-step button:has-text('Fit')")
    expect(page.locator("#model-step")).to_contain_text("is being fitted")


def opens_a_shift(page: Page, percent: str) -> None:
    page.fill("#random", percent)
    page.click("text=Open the shift")
    page.wait_for_url("**/setup#cases")


def brings_cases(page: Page, file: Path) -> None:
    page.set_input_files("#cases-file", str(file))
    page.locator("#cases").get_by_text("Enter the rows").click()
    expect(page.locator("h1")).to_contain_text("Today")


def plans(page: Page) -> None:
    """Sees what the lot costs before it is drawn, draws it, and goes without it."""
    page.click("#plan")
    expect(page.locator("#lot-title")).to_contain_text("of the cases would cost about")
    check_accessible(page)
    page.click("text=Draw the lot, and show that plan")
    expect(page.locator("main")).to_contain_text("by lot: this plan costs")
    page.click("text=Plan without the lot")
    expect(page.locator("#commit")).to_have_text("Commit without the lot: give the cases out")
    page.click("#commit")
    expect(page.locator("text=Nothing waits for a plan")).to_be_visible()


def compares_and_activates(page: Page) -> None:
    """Sees the candidate beside the model in force, notes why, puts it in force, and goes back."""
    page.click("#model-step a:has-text('compare version 2')")
    expect(page.locator("h1")).to_have_text("Version 2: next model, beside version 1 in force")
    expect(page.locator("#compared h2").first).to_contain_text("would go to somebody else")
    expect(page.locator("#compared")).to_contain_text("Calibration")
    check_accessible(page)
    page.fill("#text", "a missed case costs more now")
    page.click("text=Add the note")
    expect(page.locator("#notes")).to_contain_text("a missed case costs more now")
    page.click("#activate")
    expect(page.locator("h1")).to_have_text("next model (version 2) is in force")
    page.click("text=Go back to the version before this one")
    expect(page.locator("h1")).to_have_text("first model (version 1) is in force")


def test_a_newcomers_day(browser: Browser, empty: EmptyDesk, tmp_path: Path) -> None:  # noqa: F811
    past = own_history()
    past.loc[7, "expert_id"] = "machine"
    past.to_csv(tmp_path / "past.csv", index=False)
    page = sign_in(browser, empty, empty.secret)
    expect(page.locator("h1")).to_have_text("4 steps to your first plan")
    rows = "450 rows: 150 cases and 449 decisions of 6 people can be entered, 1 row cannot"
    enters_history(page, tmp_path / "past.csv", rows, bad=True)
    expect(page.locator("#history h2")).to_contain_text("6 people known, 150 labelled cases")
    expect(page.get_by_label("patient_number", exact=True)).to_have_value("group")
    expect(page.get_by_label("mood", exact=True)).to_have_value("-")
    expect(page.get_by_label("age", exact=True)).to_have_value("feature")
    page.get_by_label("ward", exact=True).select_option("-")
    fits_a_model(page, "0.2", "1")
    expect(page.locator("#model-step")).to_contain_text("first model is in force", timeout=PATIENCE)
    expect(page.locator("#fn")).to_have_value("1")
    opens_a_shift(page, "20")
    today = past.drop_duplicates("case_id")[["case_id", "patient_number", "density", "age", "ward"]][:40]
    today.assign(case_id="n" + today["case_id"]).to_csv(tmp_path / "today.csv", index=False)
    brings_cases(page, tmp_path / "today.csv")
    plans(page)
    page.goto(f"{empty.address}/setup")
    expect(page.locator("#fp")).to_have_value("0.2")
    fits_a_model(page, "0.2", "9")
    ready = page.locator("#model-step", has_text="A new version is ready and not in force")
    expect(ready).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#model h2")).to_contain_text("first model is in force")
    compares_and_activates(page)
    page.goto(f"{empty.address}/setup")
    page.click("summary:has-text('Take it back')")
    page.click("text=Take the whole entry back")
    expect(page.locator("#history")).to_contain_text("taken back")
    expect(page.locator("#history")).to_contain_text("fit a new one (step 2), which learns without it")
    assert page.wrong == []  # type: ignore[attr-defined]
    page.context.close()


@pytest.mark.skipif(not VIPER.exists(), reason="no VIPER data")
def test_the_readings_of_29_radiologists_go_in_whole(
    browser: Browser,  # noqa: F811
    empty: EmptyDesk,
    tmp_path: Path,
) -> None:
    cases, log = (pd.read_parquet(VIPER / f"{name}.parquet") for name in ("cases", "decisions"))
    log.merge(cases, on="case_id").to_parquet(tmp_path / "viper.parquet")
    page = sign_in(browser, empty, empty.secret)
    rows = "13,905 rows: 3,340 cases and 13,905 decisions of 29 people can be entered"
    enters_history(page, tmp_path / "viper.parquet", rows, bad=False)
    expect(page.locator("#history h2")).to_contain_text("29 people known, 3,340 labelled cases")
    expect(page.locator("#model-step").get_by_label("group", exact=True)).to_have_value("group")
    page.context.close()
