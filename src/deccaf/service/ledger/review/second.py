"""Second opinions: cases that more than one person decides, each blind to the others.

Whether a second person is asked is found out when the first has answered, so that neither knows of the other:
by the rule (`[second]`: a share by lot, or an expected loss above a limit), or because a lead wants it. The
first answer then goes to `opinions`, its assignment is *answered* (it keeps its unit of capacity, and holds
no case), and the case goes to the next best person in the ordinary way: to them it is like any other.

Where an answer equals an earlier one, it is the case's decision. Where it does not, a third person is asked,
or the case goes to the lead's list (`lead_word`), as the rule says; so it does where nobody else has room.

Locks are taken in the order of everybody else: the shift, assignments, the case.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from deccaf.data.costs import MACHINE
from deccaf.data.second import SecondTable
from deccaf.service.errors import OvertakenError, RefusedError, conflict, not_found
from deccaf.service.ledger import assignments, case_records, desk, placing, trail
from deccaf.service.ledger.assignments import Live
from deccaf.service.ledger.placing import ToPlace
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from deccaf.service.store.settings import read_setting, write_setting

SECOND = "second"
"""The setting that holds the table `[second]`; and how assignments came about that are further opinions."""
_LOT = "second lot"
_SYSTEM = Actor(None)
Next = Literal["decided", "another", "lead"]


@dataclass(frozen=True)
class Opinion:
    """An answer beside a case's decision."""

    id: int
    case_id: str
    assignment_id: int
    maker: str
    decision: str
    """As JSON."""
    seconds: float | None
    at: float

    @property
    def said(self) -> int | str:
        """The answer itself."""
        found: int | str = json.loads(self.decision)
        return found


@dataclass(frozen=True)
class Course:
    """What follows from an answer: it is the decision, another person is asked, or the lead."""

    next: Next = "decided"
    why: str = ""
    earlier: int = 0
    """Answers that others gave before."""
    live: Live | None = None
    at_desk: desk.Desk | None = None


# --- the rule ---------------------------------------------------------------------------------------------


def read_rule(connection: sa.Connection) -> SecondTable:
    """Which cases get a second opinion."""
    return SecondTable.model_validate(read_setting(connection, SECOND) or {})


def write_rule(connection: sa.Connection, rule: SecondTable, actor: Actor, at: float) -> None:
    """From now on these do."""
    if read_setting(connection, _LOT) is None:
        write_setting(connection, _LOT, secrets.token_hex(16))
    write_setting(connection, SECOND, rule.model_dump())
    trail.record(connection, "second opinions changed", at, actor, **rule.model_dump())


def want(connection: sa.Connection, case_ids: Sequence[str], actor: Actor, at: float) -> int:
    """A lead wants second opinions on cases that nobody has decided; how many were not wanted before."""
    ids = list(dict.fromkeys(case_ids))
    standing = case_records.lock(connection, ids)
    for case_id in ids:
        if case_id not in standing:
            raise not_found("case", case_id)
        if standing[case_id].status == "decided":
            raise conflict("already-decided", f"case {case_id!r} is decided already")
    s = t.second_opinions.c
    known = set(connection.execute(sa.select(s.case_id).where(s.case_id.in_(ids))).scalars())
    for case_id in ids:
        if case_id not in known:
            set_state(connection, case_id, "wanted", "lead", at, is_new=True)
            trail.record(connection, "second opinion wanted", at, actor, case_id)
    return len(ids) - len(known)


def _why(connection: sa.Connection, rule: SecondTable, live: Live) -> str | None:
    """Why the rule wants a second opinion on a case; None: it does not. Golden cases tell of one person.

    The lot is a function of the case that nobody can foresee: to take an answer back draws no other.
    """
    g = t.golden_cases.c
    if connection.execute(sa.select(g.case_id).where(g.case_id == live.case_id)).first() is not None:
        return None
    if rule.above is not None and live.expected_loss > rule.above:
        return "loss"
    if not rule.share:
        return None
    seed = str(read_setting(connection, _LOT) or "")
    drawn = hmac.new(seed.encode(), live.case_id.encode(), hashlib.sha256).digest()
    return "lot" if int.from_bytes(drawn[:8]) < rule.share * 2.0**64 else None


# --- an answer --------------------------------------------------------------------------------------------


def course(connection: sa.Connection, case_id: str, maker: str, decision: str, at: float) -> Course:
    """What would follow if somebody answered so; where others are asked the shift is locked from here on."""
    if maker == MACHINE:
        return Course()
    row, rule = row_of(connection, case_id), read_rule(connection)
    if row is None and not rule.is_on:
        return Course()
    live = assignments.live_of(connection, case_id)
    if live is None or live.maker != maker or live.state == "decided":
        return Course()  # it is not theirs to decide: whoever asked finds out
    earlier = opinions_of(connection, case_id)
    if any(one.decision == decision for one in earlier):
        return Course(why=row.why, earlier=len(earlier))
    if not earlier:
        why = row.why if row is not None else _why(connection, rule, live)
        return Course() if why is None else Course("another", why, 0, live, _desk(connection, live, at))
    then: Next = "another" if len(earlier) == 1 and rule.disagreement == "third" else "lead"
    return Course(then, row.why, len(earlier), live, _desk(connection, live, at))


def ask_others(
    connection: sa.Connection,
    found: Course,
    maker: str,
    decision: str,
    seconds: float | None,
    at: float,
) -> None:
    """Keep an answer that is not the decision, and ask the next person, or the lead."""
    live = found.live
    assert live is not None
    connection.execute(
        sa.insert(t.opinions).values(
            case_id=live.case_id,
            assignment_id=live.id,
            maker=maker,
            decision=decision,
            seconds=seconds,
            at=at,
        )
    )
    excluded = excluded_from(connection, live.case_id)
    row = row_of(connection, live.case_id)
    barred = MACHINE not in excluded if row is None or row.state == "wanted" else bool(row.machine_barred)
    excluded = tuple(dict.fromkeys((*excluded, maker, MACHINE)))
    _bar(connection, live.case_id, excluded)
    asked = found.next == "another" and _ask(connection, found, live, excluded, at)
    state = "open" if asked else "lead"
    set_state(connection, live.case_id, state, found.why, at, barred, is_new=row is None)
    if not asked:
        reason = "disagreement" if found.next == "lead" or found.earlier else "nobody else has room"
        trail.record(connection, "to the lead", at, _SYSTEM, live.case_id, reason=reason)


def check_still(connection: sa.Connection, case_id: str, found: Course) -> None:
    """Under the lock on a case that is decided: nobody has wanted another opinion since its course."""
    if not found.why and row_of(connection, case_id) is not None:
        raise OvertakenError


def agreed(connection: sa.Connection, case_id: str, found: Course, at: float) -> None:
    """An answer that equals an earlier one was made the decision."""
    if found.earlier:
        set_state(connection, case_id, "agreed", found.why, at)


def to_lead(connection: sa.Connection, case_ids: Sequence[str], at: float) -> None:
    """Cases that somebody gave back and nobody has room for: those with an answer go to the lead's list."""
    s = t.second_opinions.c
    query = sa.select(s.case_id, s.why).where(s.case_id.in_(list(case_ids)), s.state == "open")
    for row in connection.execute(query).all():
        set_state(connection, row.case_id, "lead", row.why, at)
        case_records.set_status(connection, [row.case_id], "assigned")
        trail.record(connection, "to the lead", at, _SYSTEM, row.case_id, reason="nobody else has room")


# --- taking an answer back --------------------------------------------------------------------------------


def answer_of(connection: sa.Connection, case_id: str, maker: str) -> Opinion | None:
    """Somebody's answer beside the decision, if there is one."""
    o = t.opinions.c
    query = sa.select(t.opinions).where(o.case_id == case_id, o.maker == maker)
    row = connection.execute(query).one_or_none()
    return None if row is None else Opinion(*row)


def lock_next(connection: sa.Connection, mine: Opinion, at: float) -> Live | None:
    """Who was asked after an answer, under lock; refused where they have begun, or the answer has led on."""
    live = assignments.live_of(connection, mine.case_id)
    if live is not None:
        desk.open_desk(connection, live.shift_id, at)
    a = t.assignments.c
    wanted = sa.and_(a.case_id == mine.case_id, a.state.in_(t.HELD))
    rows = connection.execute(assignments.any_where(wanted).order_by(a.id).with_for_update(key_share=True))
    held = [Live(*row) for row in rows]
    now = next((one for one in held if one.state != t.ANSWERED), None)
    if (now is None) != (live is None) or (now is not None and live is not None and now.id != live.id):
        raise _acted_on(mine.case_id)  # it was moved a moment ago
    if held and max(one.id for one in held if one.state == t.ANSWERED) != mine.assignment_id:
        raise _acted_on(mine.case_id)
    if now is not None and (now.state != "assigned" or _is_parked(connection, now.id)):
        raise _acted_on(mine.case_id)
    return now


def take_back(connection: sa.Connection, mine: Opinion, other: Live | None, at: float) -> None:
    """Move an answer to what was taken back; the case leaves whoever was asked after it."""
    if other is not None:
        assignments.set_state(connection, [other.id], "released", at)
        desk.give_back(connection, other.shift_id, other.maker)
        trail.record(
            connection, "released", at, _SYSTEM, mine.case_id, other.shift_id, other.maker, reason="undone"
        )
    facts = {"case_id": mine.case_id, "maker": mine.maker, "decision": mine.decision}
    connection.execute(sa.insert(t.undone).values(**facts, seconds=mine.seconds, decided_at=mine.at, at=at))
    connection.execute(sa.delete(t.opinions).where(t.opinions.c.id == mine.id))
    row = row_of(connection, mine.case_id)
    assert row is not None
    again = {mine.maker}
    if opinions_of(connection, mine.case_id):
        set_state(connection, mine.case_id, "open", row.why, at)
    else:  # the first answer: as if it had never been given, but for the lot
        again |= {MACHINE} if row.machine_barred else set()
        set_state(connection, mine.case_id, "wanted", row.why, at, machine_barred=False)
    left = [name for name in excluded_from(connection, mine.case_id) if name not in again]
    _bar(connection, mine.case_id, left)


def undo_agreed(connection: sa.Connection, case_id: str, at: float) -> None:
    """The answer that two agreed on was taken back: its person has the case again. A lead's word stays."""
    row = row_of(connection, case_id)
    if row is not None and row.state == "settled":
        raise _acted_on(case_id)
    if row is not None and row.state == "agreed":
        set_state(connection, case_id, "open", row.why, at)


def is_settled(connection: sa.Connection, case_id: str) -> bool:
    """Whether a lead has made an answer the decision."""
    row = row_of(connection, case_id)
    return row is not None and row.state == "settled"


def can_take_back(connection: sa.Connection, case_id: str, maker: str) -> bool:
    """Whether somebody can take their answer back, as far as others who are asked go."""
    answers, live = opinions_of(connection, case_id), assignments.live_of(connection, case_id)
    if not answers or answers[-1].maker != maker:
        return False
    return live is None or (live.state == "assigned" and not _is_parked(connection, live.id))


# --- what these share -------------------------------------------------------------------------------------


def opinions_of(connection: sa.Connection, case_id: str) -> list[Opinion]:
    """The answers on a case beside its decision, in the order in which they were asked for."""
    o = t.opinions.c
    rows = connection.execute(sa.select(t.opinions).where(o.case_id == case_id).order_by(o.assignment_id))
    return [Opinion(*row) for row in rows]


def _ask(connection: sa.Connection, found: Course, live: Live, excluded: Sequence[str], at: float) -> bool:
    """Give a case to the next best person; False: nobody else has room."""
    assert found.at_desk is not None
    item = to_place(connection, live, excluded)
    maker = placing.best(found.at_desk, item) if found.at_desk.is_open else None
    if maker is None:
        return False
    placing.give(connection, found.at_desk, [(item, maker)], SECOND, _SYSTEM, at)
    return True


def to_place(connection: sa.Connection, live: Live, excluded: Sequence[str]) -> ToPlace:
    """A case that one more person should get, with the losses on record."""
    why = assignments.reason_of(connection, live)
    losses = {maker: float(value) for maker, value in why.losses.items() if value is not None}
    aims = why.objective
    aim = (
        None if aims is None else {maker: float(value) for maker, value in aims.items() if value is not None}
    )
    return ToPlace(live.case_id, losses, live.machine_says, live.model_id, tuple(excluded), aim)


def _desk(connection: sa.Connection, live: Live, at: float) -> desk.Desk:
    return desk.open_desk(connection, live.shift_id, at)


def row_of(connection: sa.Connection, case_id: str) -> Any:
    """How far the opinions on a case are; None: nobody wants any."""
    query = sa.select(t.second_opinions).where(t.second_opinions.c.case_id == case_id)
    return connection.execute(query).one_or_none()


def set_state(
    connection: sa.Connection,
    case_id: str,
    state: str,
    why: str,
    at: float,
    machine_barred: bool | None = None,
    *,
    is_new: bool = False,
) -> None:
    """Write down how far the opinions on a case are."""
    values: dict[str, Any] = {"state": state, "why": why, "at": at}
    if is_new:
        new = {**values, "case_id": case_id, "machine_barred": bool(machine_barred)}
        connection.execute(sa.insert(t.second_opinions).values(**new))
        return
    if machine_barred is not None:
        values["machine_barred"] = machine_barred
    of_case = t.second_opinions.c.case_id == case_id
    connection.execute(sa.update(t.second_opinions).where(of_case).values(**values))


def excluded_from(connection: sa.Connection, case_id: str) -> tuple[str, ...]:
    """Who may not get a case."""
    c = t.cases.c
    return tuple(
        json.loads(connection.execute(sa.select(c.excluded).where(c.case_id == case_id)).scalar_one())
    )


def _bar(connection: sa.Connection, case_id: str, excluded: Sequence[str]) -> None:
    of_case = t.cases.c.case_id == case_id
    connection.execute(sa.update(t.cases).where(of_case).values(excluded=json.dumps(list(excluded))))


def _is_parked(connection: sa.Connection, assignment_id: int) -> bool:
    a = t.assignments.c
    return connection.execute(sa.select(a.parked_until).where(a.id == assignment_id)).scalar() is not None


def _acted_on(case_id: str) -> RefusedError:
    return conflict("acted-on", f"case {case_id!r} has gone on since: its decision stays")
