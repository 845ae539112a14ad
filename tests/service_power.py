"""A disk that loses power: what was written and not flushed is gone, in part or as a whole.

Files are opened through a layer that keeps, beside each, what a disk holds for certain: its content at the last
flush. At any moment `after_a_loss` makes the files that a restart could find: what was flushed, and of everything
written since a random part, in any order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import sqlalchemy as sa

from deccaf.service.ledger import case_records
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.store import apsw_driver, database
from deccaf.service.store import tables as t
from deccaf.service.store.condition import Condition
from deccaf.service.store.keys import Actor
from deccaf.service.store.writer import Writer

SECTOR = 512


class Disk:
    """What the disk holds of every file: flushed for certain, and written since."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.flushed: dict[str, bytearray] = {}
        self.written: dict[str, list[tuple[int, bytes | None]]] = {}
        """Offset and data; no data: cut off there."""

    def sync(self, name: str) -> None:
        with self.lock:
            content = self.flushed.setdefault(name, bytearray())
            for change in self.written.pop(name, []):
                _apply(content, *change)

    def after_a_loss(self, folder: Path, rng: random.Random) -> None:
        """The files as a restart could find them."""
        with self.lock:
            for name in {*self.flushed, *self.written}:
                if name.endswith("-shm"):
                    continue  # made anew by whoever opens the database first
                if name not in self.flushed and rng.random() < 0.5:
                    continue  # never flushed: its entry in the folder may be missing
                content = bytearray(self.flushed.get(name, b""))
                share = rng.choice((0.0, 0.0, 0.5, 1.0))
                for offset, data in self.written.get(name, []):
                    for start, part in _sectors(offset, data):
                        if rng.random() < share:
                            _apply(content, start, part)
                (folder / Path(name).name).write_bytes(content)


def _sectors(offset: int, data: bytes | None) -> Iterator[tuple[int, bytes | None]]:
    if data is None:
        yield offset, None
        return
    for start in range(0, len(data), SECTOR):
        yield offset + start, data[start : start + SECTOR]


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        with self._disk.lock:
            super().xWrite(data, offset)
            self._disk.written.setdefault(self._name, []).append((offset, bytes(data)))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        with self._disk.lock:
            super().xTruncate(size)
            self._disk.written.setdefault(self._name, []).append((size, None))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.sync(self._name)


class _Layer(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        self._disk = disk
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self._disk, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: N802
        super().xDelete(name, sync)
        with self._disk.lock:
            self._disk.flushed.pop(name, None)
            self._disk.written.pop(name, None)


@contextmanager
def on_a_disk(path: Path, pragmas: tuple[str, ...] = ()) -> Iterator[tuple[sa.Engine, Disk]]:
    """An engine on a file of a disk that may lose its power."""
    disk, name = Disk(), f"losing-{path.parent.name}"
    layer = _Layer(name, disk)
    engine = sa.create_engine(
        "sqlite+pysqlite://",
        module=apsw_driver,
        creator=lambda: apsw_driver.connect(f"file:{path}?vfs={name}", 30.0),
        poolclass=sa.pool.QueuePool,
    )

    def prepare(connection: Any, record: Any) -> None:
        database._prepare_sqlite(connection, record)
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").fetchall()

    sa.event.listen(engine, "connect", prepare)
    try:
        yield engine, disk
    finally:
        engine.dispose()
        layer.unregister()


def lose_power(
    folder: Path, losses: int, seed: int = 0, pragmas: tuple[str, ...] = ()
) -> tuple[int, list[str]]:
    """Enter cases, lose power now and then; how many were acknowledged, and those that a restart lacks."""
    rng, wrong, acknowledged = random.Random(seed), [], 0
    path = folder / "deccaf.db"
    with on_a_disk(path, pragmas) as (engine, disk):
        database.migrate(engine)
        writer = Writer(engine, Condition(engine, f"sqlite:///{path}"))
        for number in range(losses):
            for _ in range(rng.randrange(1, 12)):
                size = rng.choice((1, 3, 40))
                first = acknowledged
                arrivals = [Arrival(f"c{first + k}", f'{{"x": "{"y" * 200}"}}') for k in range(size)]
                writer.submit(lambda c, a=arrivals: case_records.hold(c, a, Actor(None), 0.0)).result()
                acknowledged += size
                if rng.random() < 0.1:
                    database.checkpoint(engine)
            found = folder / f"found-{number}"
            found.mkdir()
            disk.after_a_loss(found, rng)
            wrong += _lacks(found / "deccaf.db", acknowledged)
        writer.close()
    return acknowledged, wrong


def _lacks(path: Path, acknowledged: int) -> list[str]:
    engine = database.connect(f"sqlite:///{path}")
    try:
        with database.reading(engine) as connection:
            whole = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
            there = set(connection.execute(sa.select(t.cases.c.case_id)).scalars())
    except sa.exc.DatabaseError as error:
        return [f"{path.parent.name}: {error.orig}"]
    finally:
        engine.dispose()
    lost = [f"{path.parent.name}: c{k} is lost" for k in range(acknowledged) if f"c{k}" not in there]
    return ([] if whole == "ok" else [f"{path.parent.name}: {whole}"]) + lost[:3]
