"""What is to be sent: written with the lines of the trail, sent in order for each case, kept for a week.

A delivery waits until its address has answered with a status of 200 to 299. Whoever sends takes some for a
while (`take`); one who is killed meanwhile leaves them to the next, so that everything arrives at least once.
While a delivery waits, later ones about the same case wait behind it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from deccaf.service.errors import conflict, not_found
from deccaf.service.ledger.webhooks import hooks
from deccaf.service.store import rows as many
from deccaf.service.store import tables as t

_KINDS: Mapping[str, str] = {
    "assigned": "case.assigned",
    "decided": "case.decided",
    "settled": "case.decided",
    "undone": "case.undone",
    "labelled": "case.labelled",
    "alert raised": "alert.raised",
    "plan committed": "plan.committed",
    "model in force": "model.activated",
}
"""What is told of which lines of the trail."""

TAKEN_SECONDS = 15.0
"""For whoever sends: after that somebody else may."""
MOST_ATTEMPTS = 15
LONGEST_WAIT = 3600.0
KEPT_SECONDS = 7 * 86400.0
AT_ONCE = 100
_PART = 500


@dataclass(frozen=True)
class Delivery:
    """Something that an address is told."""

    id: int
    uid: str
    """The same however often it is sent."""
    hook_id: int
    kind: str
    case_id: str | None
    body: str
    state: str
    attempts: int
    at: float
    next_at: float
    status: int | None
    said: str | None
    done_at: float | None


def add(connection: sa.Connection, lines: Sequence[Mapping[str, Any]]) -> None:
    """What is to be told of lines of the trail, in their transaction; nothing where nobody is told."""
    told = hooks.in_force(connection)
    if not told:
        return
    rows = [row for line in lines for kind in _told(line) for row in _rows(line, kind, told)]
    golden = _golden(connection, {row["case_id"] for row in rows if row["case_id"] is not None})
    rows = [row for row in rows if row["case_id"] not in golden]
    if rows:
        many.add(connection, t.deliveries, rows)


def _golden(connection: sa.Connection, case_ids: Collection[str]) -> set[str]:
    """Which of the cases are golden ones: nobody outside knows of these."""
    g, ids, found = t.golden_cases.c, sorted(case_ids), set[str]()
    if ids and connection.execute(sa.select(g.case_id).limit(1)).first() is not None:
        for start in range(0, len(ids), _PART):
            some = sa.select(g.case_id).where(g.case_id.in_(ids[start : start + _PART]))
            found |= set(connection.execute(some).scalars())
    return found


def _told(line: Mapping[str, Any]) -> list[str]:
    """The kinds of what is told of a line; an answer of one of several people is no decision yet."""
    kind = _KINDS.get(line["kind"])
    if kind is None or (line["kind"] == "decided" and '"second"' in line["data"]):
        return []
    at_once = kind == "case.assigned" and json.loads(line["data"]).get("decided") is not None
    return [kind, "case.decided"] if at_once else [kind]


def _rows(line: Mapping[str, Any], kind: str, told: Sequence[hooks.Hook]) -> list[dict[str, Any]]:
    data = json.loads(line["data"])
    if kind == "case.decided" and line["kind"] == "assigned":
        data = {"decision": json.loads(data["decided"])}
    elif kind == "case.assigned":
        data.pop("decided", None)
    rows = []
    for hook in told:
        if kind not in hook.kinds:
            continue
        uid = uuid.uuid4().hex
        body = {
            "id": uid,
            "event": kind,
            "at": datetime.fromtimestamp(line["at"], UTC).isoformat(timespec="milliseconds"),
            "case_id": line["case_id"],
            "maker": line["maker"],
            "shift": line["shift_id"],
            "data": data,
        }
        facts = {
            "uid": uid,
            "hook_id": hook.id,
            "kind": kind,
            "case_id": line["case_id"],
            "maker": line["maker"],
        }
        times = {"at": line["at"], "next_at": line["at"]}
        rows.append({**facts, **times, "body": json.dumps(body), "state": "waiting", "attempts": 0})
    return rows


def take(connection: sa.Connection, hook_id: int, at: float) -> list[Delivery]:
    """The next deliveries for an address, in order, for a while; of one case only the earliest that waits."""
    d, before = t.deliveries.c, t.deliveries.alias("before")
    earlier = sa.exists().where(
        before.c.hook_id == d.hook_id,
        before.c.case_id == d.case_id,
        before.c.state == "waiting",
        before.c.id < d.id,
    )
    due = (
        sa.select(t.deliveries)
        .where(d.hook_id == hook_id, d.state == "waiting", d.next_at <= at, ~earlier)
        .order_by(d.id)
        .limit(AT_ONCE)
    )
    taken = []
    for row in connection.execute(due).all():
        mine = sa.update(t.deliveries).where(d.id == row.id, d.state == "waiting", d.next_at == row.next_at)
        if connection.execute(mine.values(next_at=at + TAKEN_SECONDS)).rowcount == 1:
            taken.append(_delivery(row))
    return taken


def any_due(connection: sa.Connection, at: float) -> bool:
    """Whether there is something to send."""
    d = t.deliveries.c
    found = sa.select(d.id).where(d.state == "waiting", d.next_at <= at).limit(1)
    return connection.execute(found).first() is not None


def arrived(connection: sa.Connection, delivery_id: int, status: int, at: float) -> None:
    """An address has taken a delivery."""
    d = t.deliveries.c
    connection.execute(
        sa.update(t.deliveries)
        .where(d.id == delivery_id)
        .values(state="sent", attempts=d.attempts + 1, status=status, said=None, done_at=at)
    )


def failed(connection: sa.Connection, delivery: Delivery, status: int | None, said: str, at: float) -> None:
    """An address did not take a delivery: it is sent again later, each time after a longer wait."""
    attempts = delivery.attempts + 1
    over = attempts >= MOST_ATTEMPTS
    connection.execute(
        sa.update(t.deliveries)
        .where(t.deliveries.c.id == delivery.id, t.deliveries.c.state == "waiting")
        .values(
            state="given up" if over else "waiting",
            attempts=attempts,
            next_at=at + min(2.0**attempts, LONGEST_WAIT),
            status=status,
            said=said[:300],
            done_at=at if over else None,
        )
    )


def put_back(connection: sa.Connection, deliveries: Sequence[Delivery], until: float) -> None:
    """Deliveries that were taken and not sent, as their address does not answer now."""
    ids = [one.id for one in deliveries]
    d = t.deliveries.c
    connection.execute(
        sa.update(t.deliveries).where(d.id.in_(ids), d.state == "waiting").values(next_at=until)
    )


def send_again(connection: sa.Connection, delivery_id: int, at: float) -> Delivery:
    """Send a delivery once more, with the same id."""
    found = connection.execute(sa.select(t.deliveries).where(t.deliveries.c.id == delivery_id)).first()
    if found is None:
        raise not_found("delivery", delivery_id)
    hook = connection.execute(sa.select(t.hooks.c.ended_at).where(t.hooks.c.id == found.hook_id)).scalar()
    if hook is not None:
        raise conflict("webhook-ended", "its webhook was ended; add the address again")
    again = sa.update(t.deliveries).where(t.deliveries.c.id == delivery_id)
    connection.execute(again.values(state="waiting", attempts=0, next_at=at, done_at=None))
    return _delivery(found)


def latest(
    connection: sa.Connection, most: int, before: int | None = None, hook_id: int | None = None
) -> list[Delivery]:
    """The latest deliveries, the newest first."""
    d = t.deliveries.c
    query = sa.select(t.deliveries).order_by(d.id.desc()).limit(most)
    if before is not None:
        query = query.where(d.id < before)
    if hook_id is not None:
        query = query.where(d.hook_id == hook_id)
    return [_delivery(row) for row in connection.execute(query).all()]


def forget_old(connection: sa.Connection, at: float) -> int:
    """Take out some that were done a week ago; how many."""
    d = t.deliveries.c
    old = sa.select(d.id).where(d.done_at < at - KEPT_SECONDS).limit(1_000)
    return connection.execute(sa.delete(t.deliveries).where(d.id.in_(old))).rowcount


def _delivery(row: Any) -> Delivery:
    facts = {name: getattr(row, name) for name in Delivery.__dataclass_fields__}
    return Delivery(**facts)
