"""A whole day in Chromium: a newcomer's, from an empty installation to the audit; and one with the keyboard alone.

Each act is a function of the page that the day stands at, so that further acts can be put between them.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from service_databases import Postgres
from service_faults import ledger_faults
from test_pages_browser import (
    Desk,
    browser,
    check_accessible,
    get,
    heading,
    press_key,
    put,
    pytestmark,
    sign_in,
)

__all__ = ["browser", "pytestmark"]  # a fixture, and the mark of the other file

VIPER = Path(__file__).parents[2] / "shared" / "data" / "viper_mammography"
PATIENCE = 240_000
"""Milliseconds for a model to be fitted in the background, on a machine that does much else."""
SENT = 6
"""Cases that a program sends during the day."""


class EmptyDesk(Desk):
    """A service on which nobody has done anything yet."""

    def _furnish(self, folder: Path) -> None:
        """Leave it as it is."""


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[EmptyDesk]:
    found = EmptyDesk(tmp_path)
    yield found
    found.close()
    assert ledger_faults(found.url) == []


@pytest.fixture
def on_postgresql(postgres: Postgres, tmp_path: Path) -> Iterator[Desk]:
    """A service with a model, a shift and 120 cases that wait."""
    found = Desk(tmp_path, postgres.new_database(f"t{uuid.uuid4().hex[:12]}"))
    yield found
    found.close()
    assert ledger_faults(found.url) == []


@dataclass(frozen=True)
class OwnHistory:
    """A file with several decisions for each case, and what its columns should be taken for."""

    rows: pd.DataFrame
    roles: dict[str, str]
    unwanted: str
    """A column that the lead leaves out."""

    def today(self) -> pd.DataFrame:
        """New cases like these."""
        known = self.rows.drop_duplicates("case_id").drop(columns=["expert_id", "decision", "label"])[:40]
        return known.assign(case_id="n" + known["case_id"])


def viper(cases: int = 200) -> OwnHistory:
    """Some of the mammographies that 29 radiologists have read, with all their readings."""
    known, log = (pd.read_parquet(VIPER / f"{name}.parquet") for name in ("cases", "decisions"))
    rows = log.merge(known[known["case_id"].isin(sorted(known["case_id"])[:cases])], on="case_id")
    return OwnHistory(rows, {"group": "group"}, "subStudyLabel")


def simulated(cases: int = 150, people: int = 6) -> OwnHistory:
    """The same without data: with a patient's number and a column of the decision."""
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
    return OwnHistory(rows, {"patient_number": "group", "mood": "-", "age": "feature"}, "ward")


# --- the lead's morning -----------------------------------------------------------------------------------


def enters_history(page: Page, file: Path, rows: str) -> None:
    """Looks at a file in which one row cannot be used, and enters the others; nothing is written before."""
    page.set_input_files("#history-file", str(file))
    page.click("text=Look at the file")
    preview = page.locator("#history-preview")
    expect(preview.locator("h3")).to_contain_text(rows, timeout=PATIENCE)  # the first file waits for a reader
    check_accessible(page)
    expect(preview).to_contain_text("is no name for a person")
    preview.locator("button", has_text="Enter").click()  # the browser asks for the tick first
    expect(preview.locator("input[name=skip]")).to_be_focused()
    preview.locator("input[name=skip]").check()
    preview.locator("button", has_text="Enter").click()
    page.wait_for_url("**/setup?entered=yes#model", timeout=PATIENCE)


def fits_a_model(page: Page, false_positive: str, false_negative: str) -> None:
    """Says what errors cost, and has a model fitted."""
    page.fill("#fp", false_positive)
    page.fill("#fn", false_negative)
    page.click("#model-step button:has-text('Fit')")
    expect(page.locator("#model-step")).to_contain_text("is being fitted")


def adds_somebody(page: Page, desk: Desk) -> None:
    """A new person with a name to show."""
    page.goto(f"{desk.address}/people")
    page.fill("#name", "dora")
    page.fill("#display", "Dora Új")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("row", name="Dora Új")).to_be_visible()


def makes_a_key(page: Page, desk: Desk, name: str) -> str:
    """A key for somebody; it is shown once."""
    page.goto(f"{desk.address}/people")
    page.select_option("#key-person", name)
    page.get_by_role("button", name="Make a key").click()
    secret = page.locator("#secret").inner_text()
    page.get_by_text("I have written it down").click()
    expect(page.locator("#secret")).to_have_count(0)
    return secret


def opens_a_shift(page: Page, desk: Desk, percent: str) -> None:
    page.goto(f"{desk.address}/setup")
    page.fill("#random", percent)
    page.fill("#expected", "60")  # else prices would expect the morning's pace to go on
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


def sends_cases(desk: Desk, readers: list[str], like: pd.DataFrame) -> None:
    """A program's cases for the first of three; one that the second, and one that the third could get too."""
    put(desk, "/v1/shifts/1", {"random_share": 0.0}, "PATCH")  # nothing more by lot
    first, second, third = readers
    also = {0: {second: 2.0}, 1: {third: 2.0}}
    for k, features in enumerate(json.loads(like.drop(columns="case_id")[:SENT].to_json(orient="records"))):
        losses = {"machine": 90.0, first: 0.1, **also.get(k, {})}
        body = {"case_id": f"p{k}", "losses": losses, "machine_decision": 0, "features": features}
        assert desk._post("/v1/cases", body)["maker"] == first


# --- moving work, and second opinions ---------------------------------------------------------------------


def moves_a_case(page: Page, desk: Desk, case: str, to: str) -> None:
    """Sees what it costs, and does it; another one is made urgent, and a third gets a second opinion."""
    page.goto(f"{desk.address}/cases?find=p&status=assigned")
    page.get_by_label(f"Choose {case}", exact=True).check()
    page.select_option("#to", to)
    page.get_by_role("button", name="See what it costs").click()
    expect(page.locator("h1")).to_contain_text("Moving 1 case")
    check_accessible(page)
    page.fill("#reason", "a storm")
    page.click("#do-move")
    expect(page.get_by_role("status")).to_contain_text("1 case moved")
    expect(page).to_have_url(re.compile("find=p"))


def wants_a_second_opinion(page: Page, desk: Desk, case: str) -> None:
    """For one case, which also comes first; and the lead decides where two disagree."""
    page.goto(f"{desk.address}/queue")
    page.get_by_role("link", name="Second opinions").click()
    page.select_option("#disagreement", "lead")
    page.get_by_role("button", name="Keep this").click()
    expect(page.get_by_role("status")).to_contain_text("So it is from now on")
    page.goto(f"{desk.address}/cases?find=p&status=assigned")
    page.get_by_label(f"Choose {case}", exact=True).check()
    page.select_option("#priority", "urgent")
    page.get_by_role("button", name="Set priority").click()
    expect(page.get_by_role("row", name=re.compile(rf"{case} urgent"))).to_be_visible()
    page.get_by_label(f"Choose {case}", exact=True).check()
    page.get_by_role("button", name="Want second opinions").click()
    expect(page.locator("h1")).to_have_text("Cases")


def settles(page: Page, desk: Desk, case: str, names: list[str]) -> None:
    """Both answers side by side; the lead takes one."""
    page.goto(desk.address)
    expect(page.locator("#alerts")).to_contain_text("1 case waits for your word")
    page.goto(f"{desk.address}/opinions")
    answers = page.locator(".answers .tile")
    expect(answers).to_have_count(2)
    assert [answers.nth(k).locator("h3").inner_text() for k in (0, 1)] == names
    check_accessible(page)
    answers.nth(1).get_by_role("button").click()
    expect(page.get_by_role("status")).to_contain_text("Settled")
    found = get(desk, f"/v1/cases/{case}")
    assert (found["status"], found["decision"]["maker"]) == ("decided", names[1])


# --- three analysts ---------------------------------------------------------------------------------------


def decides_undoes_notes_and_parks(page: Page, desk: Desk, case: str) -> None:
    """The first analyst: the urgent case, with a change of mind; then others."""
    takes_the_next(page)
    expect(heading(page)).to_have_text(f"Case {case}")
    ready(page)
    press_key(page, "0")
    expect(page.locator(".undo")).to_contain_text(f"Case {case}: you decided 0")
    ready(page)
    press_key(page, "u")
    expect(heading(page)).to_have_text(f"Case {case}")
    expect(page.locator(".undo")).to_have_count(0)
    ready(page)
    press_key(page, "m")
    expect(page.locator("#note")).to_be_focused()
    page.keyboard.type("Called her: 0 typed here decides nothing")
    page.click("text=Write it down")
    expect(page.locator("main")).to_contain_text("decides nothing")
    ready(page)
    press_key(page, "?")
    expect(page.locator(".keys")).to_contain_text("undo the last decision")
    expect(page.locator(".left")).to_contain_text("left")
    press_key(page, "e")
    expect(heading(page)).to_have_text(f"Case {case}")
    check_accessible(page)
    ready(page)
    press_key(page, "p")
    expect(page.locator("#park-reason")).to_be_focused()
    page.keyboard.type("waiting for a call")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("1 parked case")
    page.click("text=Take it up")
    expect(heading(page)).to_have_text(f"Case {case}")
    ready(page)
    press_key(page, "1")
    expect(page.locator(".undo")).to_contain_text(f"Case {case}: you decided 1")


def is_second_and_knows_nothing(page: Page, first: str, case: str) -> None:
    """The second analyst gets it like any other case, and decides otherwise."""
    takes_the_next(page)
    expect(heading(page)).to_have_text(f"Case {case}")
    for word in (first, "decides nothing", "opinion", "second"):
        expect(page.locator("body")).not_to_contain_text(word)
    ready(page)
    press_key(page, "0")
    expect(page.locator(".undo")).to_contain_text(f"Case {case}: you decided 0")


def hands_back(page: Page) -> None:
    """The third analyst knows the person: the case goes to somebody else."""
    takes_the_next(page)
    expect(heading(page)).to_contain_text("Case ")
    first = heading(page).inner_text()
    ready(page)
    press_key(page, "b")
    expect(page.locator("#reason")).to_be_focused()
    page.keyboard.type("I know her")
    page.keyboard.press("Enter")
    expect(heading(page)).not_to_have_text(first)


def takes_the_next(page: Page) -> None:
    """As soon as there is one: an empty queue looks for new cases by itself."""
    expect(page.locator("#waiting")).to_contain_text("waiting for you")
    press_key(page, "n")


def ready(page: Page) -> None:
    """Keys work once the script is there."""
    page.wait_for_load_state("load")


# --- the afternoon ----------------------------------------------------------------------------------------


def leaves_and_returns(page: Page, desk: Desk, name: str) -> None:
    page.goto(desk.address)
    page.get_by_role("link", name=f"Away {name}", exact=True).click()
    expect(page.locator("h2").first).to_contain_text(f"If {name} leaves now")
    page.click("#confirm-away")
    page.get_by_role("link", name=f"Back {name}", exact=True).click()
    expect(page.locator("h1")).to_have_text(f"{name} is back")
    check_accessible(page)
    page.click("#with-work, #without-work >> nth=0")
    expect(page.get_by_role("link", name=f"Away {name}", exact=True)).to_be_visible()


def looks_at_the_watch(page: Page, desk: Desk) -> None:
    """Labels have come; a limit is changed."""
    page.goto(f"{desk.address}/watch")
    page.get_by_role("button", name="Look now").click()
    page.fill("#limit-drift", "0.001")
    page.get_by_role("button", name="Put in force").click()
    expect(page.locator("#limit-drift")).to_have_value("0.001")
    check_accessible(page)


def compares_and_activates(page: Page, desk: Desk) -> None:
    """Sees the candidate beside the model in force, notes why, puts it in force, and goes back."""
    page.goto(f"{desk.address}/setup")
    expect(page.locator("#fp")).to_have_value("0.2")
    fits_a_model(page, "0.2", "9")
    waits = page.locator("#model-step", has_text="A new version is ready and not in force")
    expect(waits).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#model h2")).to_contain_text("first model is in force")
    page.click("#model-step a:has-text('compare version 2')")
    expect(page.locator("h1")).to_have_text("Version 2: next model, beside version 1 in force")
    expect(page.locator("#compared h2").first).to_contain_text("would go to somebody else")
    check_accessible(page)
    page.fill("#text", "a missed case costs more now")
    page.click("text=Add the note")
    expect(page.locator("#notes")).to_contain_text("a missed case costs more now")
    page.click("#activate")
    expect(page.locator("h1")).to_have_text("next model (version 2) is in force")


def looks_into_the_trail(page: Page, desk: Desk, case: str, words: list[str]) -> None:
    """Everything that happened to a case stands there, and in the CSV."""
    page.goto(f"{desk.address}/audit")
    page.fill("#case", case)
    page.get_by_role("button", name="Look").click()
    for word in words:
        expect(page.locator("table")).to_contain_text(word)
    check_accessible(page)
    with page.expect_download() as got:
        page.get_by_text("CSV of all that match").click()
    text = Path(got.value.path()).read_text()
    assert all(word in text for word in words)


def erases(page: Page, desk: Desk, name: str) -> None:
    """The name is typed once more, and then gone."""
    page.goto(f"{desk.address}/person?name={name}")
    page.fill("#again", "nobody")
    page.get_by_role("button", name="Erase the name").click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was changed")
    page.goto(f"{desk.address}/person?name={name}")
    page.fill("#again", name)
    page.get_by_role("button", name="Erase the name").click()
    expect(page.locator("table")).to_contain_text("person erased")


def test_a_whole_day(browser: Browser, empty: EmptyDesk, tmp_path: Path) -> None:
    desk, page = empty, sign_in(browser, empty, empty.secret)
    expect(page.locator("h1")).to_have_text("4 steps to your first plan")
    own = viper() if VIPER.exists() else simulated()
    past = own.rows.copy()
    past.loc[7, "expert_id"] = "machine"
    past.to_csv(tmp_path / "past.csv", index=False)
    people, cases = past["expert_id"].nunique() - 1, past["case_id"].nunique()
    rows = (
        f"{len(past):,} rows: {cases} cases and {len(past) - 1:,} decisions of {people} people can be entered"
    )
    enters_history(page, tmp_path / "past.csv", f"{rows}, 1 row cannot")
    expect(page.locator("#history h2")).to_contain_text(f"{people} people known, {cases} labelled cases")
    for column, role in own.roles.items():
        expect(page.locator("#model-step").get_by_label(column, exact=True)).to_have_value(role)
    page.locator("#model-step").get_by_label(own.unwanted, exact=True).select_option("-")
    fits_a_model(page, "0.2", "1")
    expect(page.locator("#model-step")).to_contain_text("first model is in force", timeout=PATIENCE)
    adds_somebody(page, desk)
    opens_a_shift(page, desk, "20")
    own.today().to_csv(tmp_path / "today.csv", index=False)
    brings_cases(page, tmp_path / "today.csv")
    plans(page)
    readers = sorted(own.rows["expert_id"].unique())[:3]
    sends_cases(desk, readers, own.today())
    wants_a_second_opinion(page, desk, "p0")
    moves_a_case(page, desk, "p1", readers[2])
    analysts = [sign_in(browser, desk, makes_a_key(page, desk, name)) for name in readers]
    decides_undoes_notes_and_parks(analysts[0], desk, "p0")
    is_second_and_knows_nothing(analysts[1], readers[0], "p0")
    hands_back(analysts[2])
    settles(page, desk, "p0", readers[:2])
    leaves_and_returns(page, desk, readers[0])
    desk._post("/v1/labels", {"labels": [{"case_id": "p0", "label": 0}]})
    looks_at_the_watch(page, desk)
    compares_and_activates(page, desk)
    looks_into_the_trail(page, desk, "p0", ["undone", "note", "parked", "settled", "labelled"])
    looks_into_the_trail(page, desk, "p1", ["a storm"])
    erases(page, desk, readers[1])
    for one in (page, *analysts):
        assert one.wrong == []  # type: ignore[attr-defined]
        one.context.close()


# --- with the keyboard alone ------------------------------------------------------------------------------


def reach(page: Page, target: Locator, most: int = 400) -> None:
    """Press Tab until something has the focus."""
    ready(page)
    for _ in range(most):
        if target.count() and target.first.evaluate("e => e === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{target} cannot be reached with the Tab key")


def press(page: Page, target: Locator, key: str = "Enter") -> None:
    reach(page, target)
    page.keyboard.press(key)


def opens(page: Page, name: str) -> None:
    """A page of the menu."""
    press(page, page.locator("nav").get_by_role("link", name=name, exact=True))
    expect(page.locator("nav a[aria-current]")).to_have_text(name)


def button(page: Page, name: Any) -> Locator:
    return page.get_by_role("button", name=name)


@pytest.mark.long
def test_a_day_with_the_keyboard_alone(browser: Browser, on_postgresql: Desk) -> None:
    desk = on_postgresql
    page = sign_in(browser, desk, desk.secret)
    press(page, page.locator("#plan"))
    expect(page.locator("h1")).to_contain_text("120 cases")
    press(page, page.locator("#commit"))
    expect(page.locator("text=Nothing waits for a plan")).to_be_visible()
    sliders_by_keyboard(page)
    given_out = page.locator(".tile", has_text="Given out").locator(".meaning")
    before = given_out.inner_text()

    ann = sign_in(browser, desk, desk.ann)
    expect(ann.locator("h1")).to_have_text("Queue of ann")
    expect(ann.locator("nav a")).to_have_count(1)
    case = analyst_by_keyboard(ann)
    kinds = [event["kind"] for event in get(desk, f"/v1/cases/{case}")["history"]]
    wanted = ["claimed", "decided", "undone", "note", "parked", "claimed", "decided"]
    assert [kind for kind in kinds if kind in wanted] == wanted
    expect(given_out).not_to_have_text(before)  # the page asks again by itself

    press(page, page.get_by_role("link", name="Away bob", exact=True))
    press(page, page.locator("#confirm-away"))
    press(page, page.get_by_role("link", name="Back bob", exact=True))
    press(page, page.locator("#with-work, #without-work"))
    expect(page.get_by_role("link", name="Away bob", exact=True)).to_be_visible()
    lead_by_keyboard(page)
    assert page.wrong == ann.wrong == []  # type: ignore[attr-defined]
    page.context.close()
    ann.context.close()


def sliders_by_keyboard(page: Page) -> None:
    """Nobody has time; one person has more, and that is put in force."""
    expect(page.locator("#what-if")).to_contain_text("With today's capacities a day of 120 cases costs")
    press(page, page.locator("#team"), "Home")
    expect(page.locator("#what-if .finding")).to_contain_text("60 fewer cases of people's time would cost")
    press(page, button(page, "Back to today's"))
    expect(page.locator(".finding")).to_contain_text("Move a slider")
    press(page, page.locator("#sliders summary"))
    press(page, page.locator("input[name='of:ann']"), "End")
    expect(page.locator("input[name='of:ann'] + output")).to_have_text("40 cases")
    expect(page.locator(".finding")).to_contain_text("20 more cases of people's time would")
    press(page, button(page, "Put these capacities in force"))
    expect(page.locator("tr", has_text="ann").locator(".num").first).to_contain_text("of 40")


def analyst_by_keyboard(page: Page) -> str:
    """Decides, undoes, writes a note, parks, takes up, decides, hands the next back; the case."""
    press_key(page, "n")
    expect(heading(page)).to_contain_text("Case c")
    ready(page)
    case = heading(page).inner_text().removeprefix("Case ")
    press_key(page, "1")
    expect(page.locator(".undo")).to_contain_text(f"Case {case}: you decided 1")
    ready(page)
    press_key(page, "u")
    expect(page.locator(".undo")).to_have_count(0)
    ready(page)
    press_key(page, "m")
    expect(page.locator("#note")).to_be_focused()
    page.keyboard.type("0 typed here decides nothing")
    press(page, button(page, "Write it down"))
    expect(page.locator("main")).to_contain_text("decides nothing")
    ready(page)
    press_key(page, "p")
    expect(page.locator("#park-reason")).to_be_focused()
    page.keyboard.type("a call")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("1 parked case")
    press(page, button(page, re.compile("Take it up")))
    expect(heading(page)).to_have_text(f"Case {case}")
    ready(page)
    press_key(page, "0")
    expect(page.locator(".undo")).to_contain_text(f"Case {case}: you decided 0")
    ready(page)
    other = heading(page).inner_text()
    press_key(page, "b")
    expect(page.locator("#reason")).to_be_focused()
    page.keyboard.type("I know her")
    page.keyboard.press("Enter")
    expect(heading(page)).not_to_have_text(other)
    return case


def lead_by_keyboard(page: Page) -> None:
    """Moves a case, looks into the trail, sets the rule for second opinions."""
    opens(page, "Cases")
    reach(page, page.locator("#person"))
    page.keyboard.type("ann")
    press(page, button(page, "Look"))
    expect(page).to_have_url(re.compile("person=ann"))
    press(page, page.locator("input[name=case]").first, "Space")
    press(page, button(page, "See what it costs"))
    expect(page.locator("h1")).to_contain_text("Moving 1 case")
    press(page, page.locator("#do-move"))
    expect(page.get_by_role("status")).to_contain_text("1 case moved")
    opens(page, "Queues")
    press(page, page.locator("main").get_by_role("link", name="Second opinions"))
    reach(page, page.locator("#share"))
    page.keyboard.press("Control+a")
    page.keyboard.type("10")
    press(page, button(page, "Keep this"))
    expect(page.locator("#share")).to_have_value("10")
    opens(page, "Audit")
    expect(page.locator("table")).to_contain_text("second opinions changed")
