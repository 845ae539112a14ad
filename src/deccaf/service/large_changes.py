"""Files, plans and labels that are too large for one write transaction on SQLite: in pieces, seen whole.

One large change at a time. What a process left behind that was killed is ended by the next one: a plan whose
commit had begun is committed, a file that was not entered whole is taken out, work that was on its way to
others and labels go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa

from deccaf.service.decide import committing, plans
from deccaf.service.decide.plans import PlanRecord
from deccaf.service.imports import case_import, past_records
from deccaf.service.imports.case_import import Checked
from deccaf.service.imports.past_import import Past
from deccaf.service.imports.past_records import Entry
from deccaf.service.ledger import claims, labels
from deccaf.service.ledger.assignments import NewAssignment
from deccaf.service.ledger.labels import Labelled
from deccaf.service.store import database, unfinished
from deccaf.service.store.idempotency import Answer, Call, earlier, once, remember
from deccaf.service.store.unfinished import Unfinished
from deccaf.service.store.writer import Change, Writer

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class File:
    """A file of cases that was checked, and what its sender wants."""

    checked: Checked
    name: str
    accept: Callable[[Checked], None]
    """Refuses what must not be entered."""
    answer: Callable[[int, Checked], dict[str, Any]] = lambda number, found: {"id": number, **found.to_dict()}
    """What its sender is told."""


class LargeChanges:
    """Commits plans and enters files, whole or not at all."""

    def __init__(self, engine: sa.Engine, writer: Writer) -> None:
        self._engine, self._writer = engine, writer
        self._turn, self._rng = threading.Lock(), np.random.default_rng()
        self._takes_turns = engine.dialect.name == "sqlite"

    def commit_plan(self, call: Call, plan_id: int, answer: Callable[[PlanRecord], Any]) -> Answer:
        """Turn a draft into assignments."""
        whole = lambda connection, at: answer(  # noqa: E731
            committing.commit(connection, plan_id, call.actor, at)
        )
        if not self._takes_turns:
            return self._write(lambda connection: once(connection, call, whole))
        with self._turn:
            self._end_open()
            before = self._earlier(call)
            if before is not None:
                return before
            plan, cases = self._read(lambda connection: plans.size_of(connection, plan_id))
            if plan.state != "draft" or not unfinished.is_in_pieces(self._engine, cases):
                return self._write(lambda connection: once(connection, call, whole))
            looked = self._read(lambda connection: committing.look(connection, plan_id))
            change = self._write(lambda c: committing.begin(c, looked, call, time.time(), answer))
            return self._commit(change, committing.new_assignments(looked.draft))

    def enter_file(self, call: Call, file: File) -> Answer:
        """Enter the rows of a file that can be; they wait for the next plan."""

        def whole(connection: sa.Connection, at: float) -> dict[str, Any]:
            found = case_import.without_known(connection, file.checked)
            file.accept(found)
            return file.answer(case_import.enter(connection, found, file.name, call.actor, at), found)

        if not unfinished.is_in_pieces(self._engine, len(file.checked.arrivals)):
            return self._write(lambda connection: once(connection, call, whole, 201))
        with self._turn:
            self._end_open()
            before = self._earlier(call)
            if before is not None:
                return before
            found = self._read(lambda connection: case_import.without_known(connection, file.checked))
            file.accept(found)
            change = self._write(lambda c: case_import.begin(c, found, file.name, call.actor, time.time()))
            try:
                for part in _parts(found.arrivals):
                    self._write(partial(case_import.write_piece, change=change, arrivals=part))
                return self._write(lambda connection: self._show(connection, change, found, file, call))
            except BaseException:
                self._take_out(change)
                raise

    def enter_past(
        self, call: Call, past: Past, filename: str, skip_bad: bool, answer: Callable[[Entry], Any]
    ) -> Answer:
        """Enter a history from elsewhere."""

        def whole(connection: sa.Connection, at: float) -> Any:
            return answer(past_records.enter_past(connection, past, filename, call.actor, at, skip_bad))

        if not self._takes_turns:
            return self._write(lambda connection: once(connection, call, whole, 201))
        with self._turn:  # a small one too: no case comes in with two histories at a time
            self._end_open()
            if not unfinished.is_in_pieces(self._engine, len(past.cases) + len(past.decisions)):
                return self._write(lambda connection: once(connection, call, whole, 201))
            before = self._earlier(call)
            if before is not None:
                return before
            found = self._read(lambda connection: past_records.need_rows(connection, past, skip_bad))
            entry = self._write(lambda c: past_records.begin(c, found, filename, call.actor, time.time()))
            try:
                for table, rows in past_records.rows_of(found, entry):
                    for part in _parts(rows):
                        self._write(partial(past_records.write_piece, table=table, rows=part))

                def end(connection: sa.Connection) -> Answer:
                    stands = past_records.finish(connection, entry, found, call.actor)
                    sent = Answer.of(201, answer(stands))
                    remember(connection, [(call, sent)], entry.at)
                    return sent

                return self._write(end)
            except BaseException:
                self._take_out_past()
                raise

    def enter_labels(self, call: Call, rows: Sequence[Labelled]) -> Answer:
        """Write down many labels, all or none."""
        with self._turn:
            self._end_open()
            before = self._earlier(call)
            if before is not None:
                return before
            self._read(lambda connection: labels.need_cases(connection, rows))
            answer = Answer.of(200, labels.accepted(rows))
            self._label(self._write(lambda c: labels.begin(c, rows, call, answer, time.time())))
            return answer

    def end_open(self) -> None:
        """End what was left behind, unless somebody is at it."""
        if self._takes_turns and self._turn.acquire(blocking=False):
            try:
                self._end_open()
            finally:
                self._turn.release()

    def _end_open(self) -> None:
        self._take_out_past()
        with database.reading(self._engine, snapshot=False) as connection:
            left = unfinished.read_open(connection)
        for change in left:
            if change.kind == "file":
                self._take_out(change)
            elif change.kind == "labels":
                self._label(change)
            elif change.kind == "release":
                while self._write(partial(claims.release_piece, change=change, rng=self._rng)):
                    pass
            else:
                assert change.plan_id is not None
                draft = self._read(partial(plans.open_draft, plan_id=change.plan_id))
                self._commit(change, islice(committing.new_assignments(draft), change.done, None))

    def _commit(self, change: Unfinished, rows: Iterable[NewAssignment]) -> Answer:
        done = change.done
        for part in _parts(rows):
            if not self._write(partial(committing.write_piece, change=change, done=done, rows=part)):
                raise unfinished.StillEnteringError
            done += len(part)
        return self._write(partial(committing.finish, change=change))

    def _label(self, change: Unfinished) -> None:
        done: int | None = change.done
        while done is not None:
            done = self._write(partial(labels.write_piece, change=change, done=done, at=time.time()))

    def _show(
        self, connection: sa.Connection, change: Unfinished, found: Checked, file: File, call: Call
    ) -> Answer:
        now = case_import.without_lost(connection, change, found)
        file.accept(now)
        number = case_import.finish(connection, change, now, call.actor)
        answer = Answer.of(201, file.answer(number, now))
        remember(connection, [(call, answer)], change.at)
        return answer

    def _take_out(self, change: Unfinished) -> None:
        while self._write(lambda connection: case_import.take_out(connection, change, unfinished.PIECE)):
            pass

    def _take_out_past(self) -> None:
        with database.reading(self._engine, snapshot=False) as connection:
            if not past_records.is_half(connection):
                return
        while self._write(lambda connection: past_records.take_out(connection, unfinished.PIECE)):
            pass

    def _earlier(self, call: Call) -> Answer | None:
        return self._read(lambda connection: earlier(connection, [call], wait=False)[0])

    def _read(self, question: Callable[[sa.Connection], Result]) -> Result:
        with database.reading(self._engine) as connection:
            return question(connection)

    def _write(self, change: Change[Result]) -> Result:
        return self._writer.submit(change).result()


def _parts(rows: Iterable[Item]) -> Iterator[list[Item]]:
    left = iter(rows)
    while part := list(islice(left, unfinished.PIECE)):
        yield part
