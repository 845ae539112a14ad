"""Random histories of all writing endpoints, from several clients at once, against a model of the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger_histories import bench, run_histories
from ledger_model import MACHINE, Answer, Ledger, Request, Seat, Seen, explain

HISTORIES = 6


def test_some_order_of_the_requests_explains_every_history(database_url: str, tmp_path: Path) -> None:
    with bench(database_url, tmp_path) as here:
        run_histories(here, HISTORIES)
    assert here.findings == []
    assert here.histories >= HISTORIES
    assert sum(here.requests.values()) > 5 * HISTORIES


def ledger() -> Ledger:
    found = Ledger({MACHINE: Seat(None), "ann": Seat(1)}, {MACHINE: 0.0, "ann": 0.0})
    found.case("a", {MACHINE: 0.9, "ann": 0.1}, 0, [])
    return found


def seen_of(found: Ledger) -> Seen:
    cases, seats, plans, desk = found.view()
    return Seen(cases, seats, plans, dict(found.prices), {}, desk)


DECIDE = Request("decide", {"name": "a", "maker": "ann", "decision": 1}, key="k")
DONE = Answer(200, '{"case_id": "a", "status": "decided", "maker": "ann", "decision": 1}')
NO = Answer(409, '{"type": "urn:deccaf:problem:already-decided"}')
NEXT = Request("next_case", {"maker": "ann"})
CLAIM = Answer(200, '{"case_id": "a", "status": "assigned"}')


def after(*requests: tuple[Request, Answer]) -> Seen:
    found = ledger()
    for request, answer in requests:
        then = found.after(request, answer, seen_of(found))
        assert isinstance(then, Ledger), then
        found = then
    return seen_of(found)


@pytest.mark.parametrize(
    ("sent", "right"),
    [
        ([(DECIDE, DONE), (DECIDE, Answer(200, DONE.text, replayed=True))], True),
        ([(DECIDE, DONE), (DECIDE, NO)], False),
        ([(DECIDE, DONE), (DECIDE, DONE)], False),
        ([(DECIDE, DONE), (NEXT, CLAIM)], True),
        ([(NEXT, Answer(204)), (DECIDE, DONE)], True),
        ([(NEXT, Answer(200, '{"case_id": "a", "status": "decided"}')), (DECIDE, DONE)], False),
        ([(NEXT, Answer(404)), (DECIDE, DONE)], False),
    ],
)
def test_the_model_tells_right_from_wrong(sent: list[tuple[Request, Answer]], right: bool) -> None:
    left, _ = explain([ledger()], sent, after((DECIDE, DONE)))
    assert bool(left) is right


def test_the_model_compares_what_is_on_record() -> None:
    lost = seen_of(ledger())
    left, wrong = explain([ledger()], [(DECIDE, DONE)], lost)
    assert left == []
    assert wrong[0].startswith("case a: the model has ('decided'")


def test_the_model_keeps_capacity_and_exclusions() -> None:
    found = ledger()
    assert found.case("b", {"ann": 0.1}, 0, []) == (202, {"case_id": "b", "status": "waiting"}), "ann is full"
    found.hand_back("a", "ann", Answer(200))
    assert (found.cases["a"].maker, found.cases["a"].decision) == (MACHINE, 0), "not to ann again"
    assert found.case("c", {"ann": 0.1}, 0, ["ann"])[0] == 202
    assert found.case("d", {"ann": 0.1}, 0, [])[0] == 201
