"""The writer: changes share a commit, fail alone, and are answered after they are on disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from deccaf.service.store import database
from deccaf.service.store import tables as t
from deccaf.service.store.condition import Condition
from deccaf.service.store.writer import Writer


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = database.connect(f"sqlite:///{tmp_path}/deccaf.db")
    database.migrate(engine)
    yield engine
    engine.dispose()


def add(name: str) -> object:
    return lambda connection: connection.execute(sa.insert(t.settings).values(name=name, value="x")).rowcount


def names(engine: sa.Engine) -> set[str]:
    with database.reading(engine) as connection:
        return set(connection.execute(sa.select(t.settings.c.name)).scalars())


def test_changes_that_wait_together_share_a_commit_and_fail_alone(engine: sa.Engine) -> None:
    commits, go = [], threading.Event()
    sa.event.listen(engine, "commit", lambda connection: commits.append(1))
    writer = Writer(engine, Condition(engine, str(engine.url)))

    def slow(connection: sa.Connection) -> str:
        go.wait(30)
        return "slow"

    def half(connection: sa.Connection) -> None:
        add("half")(connection)
        raise ValueError("changed its mind")

    first = writer.submit(slow)
    later = [writer.submit(change) for change in (add("a"), half, add("a"), add("b"))]
    go.set()
    assert first.result(30) == "slow"
    assert later[0].result(30) == 1
    with pytest.raises(ValueError, match="changed its mind"):
        later[1].result(30)
    with pytest.raises(sa.exc.IntegrityError):
        later[2].result(30)
    assert later[3].result(30) == 1
    assert names(engine) == {"a", "b"}
    assert len(commits) <= 2, "one for the slow change, one for all that came meanwhile"
    writer.close()


def test_when_the_commit_fails_nobody_is_told_otherwise(engine: sa.Engine) -> None:
    writer, go = Writer(engine, Condition(engine, str(engine.url))), threading.Event()
    first = writer.submit(lambda connection: go.wait(30))
    later = [writer.submit(add("a")), writer.submit(add("b"))]

    def no_disk(connection: sa.Connection) -> None:
        raise OSError("no space left")

    sa.event.listen(engine, "commit", no_disk)
    go.set()
    for future in (first, *later):
        with pytest.raises(OSError, match="no space left"):
            future.result(30)
    sa.event.remove(engine, "commit", no_disk)
    assert names(engine) == set()
    assert writer.submit(add("c")).result(30) == 1, "and the next change finds a writer that works"
    writer.close()
    assert names(engine) == {"c"}


def test_closing_finishes_what_waits(engine: sa.Engine) -> None:
    writer = Writer(engine, Condition(engine, str(engine.url)))
    waiting = [writer.submit(add(f"n{k}")) for k in range(100)]
    writer.close()
    assert [future.result(1) for future in waiting] == [1] * 100
    assert len(names(engine)) == 100
