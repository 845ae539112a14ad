"""The file of the ledger: who may read it, what happens when it is full, read-only or damaged, and backups."""

from __future__ import annotations

import shutil
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from deccaf import ConfigError, DataError
from deccaf.cli import app
from deccaf.service import backup
from deccaf.service.core import Service
from deccaf.service.ledger import case_records
from deccaf.service.ledger.case_records import Arrival
from deccaf.service.store import condition, database
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from service_power import lose_power
from service_world import World, first_key, world


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[World]:
    with world(f"sqlite:///{tmp_path}/deccaf.db", {"ann": 900}, housekeeping=False) as made:
        yield made


def hold(engine: sa.Engine, first: int, count: int) -> None:
    """Cases with features of some length, so that they fill pages."""
    with database.writing(engine) as connection:
        arrivals = [Arrival(f"c{k}", f'{{"x": "{"y" * 300}"}}') for k in range(first, first + count)]
        case_records.hold(connection, arrivals, Actor(1), 0.0)


def spoil(file: Path, start: float = 0.4, end: float = 0.6) -> None:
    """Overwrite the middle of a file."""
    size = file.stat().st_size
    with file.open("r+b") as pages:
        pages.seek(int(size * start))
        pages.write(b"\xa5" * int(size * (end - start)))


def checkpoint(url: str) -> None:
    with closing(apsw.Connection(str(database.sqlite_file(url)))) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def test_only_its_owner_may_read_the_ledger(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "deccaf.db"
    first_key(f"sqlite:///{file}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.parent.parent.stat().st_mode) == 0o700
    file.chmod(0o644)  # as older versions left it
    service = Service(f"sqlite:///{file}", housekeeping=False)
    service.read(lambda connection: connection.execute(sa.select(t.keys)).all())
    assert [stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()] == [0o600] * 3
    service.close()


def test_readers_hold_no_writer_up_and_see_one_state(desk: World) -> None:
    engine = desk.service.engine
    count = sa.select(sa.func.count()).select_from(t.cases)
    with database.reading(engine) as reader:
        before = reader.execute(count).scalar_one()
        hold(engine, 0, 10)  # would wait half a minute, and fail, if the reader held it up
        assert reader.execute(count).scalar_one() == before
    with database.reading(engine) as reader:
        assert reader.execute(count).scalar_one() == before + 10


def test_rows_that_nobody_fetched_hold_no_later_change_up(desk: World) -> None:
    engine = desk.service.engine
    hold(engine, 0, 50)
    kept = []
    for end in (database.writing, database.reading):
        with end(engine) as connection:
            kept.append(connection.execute(sa.select(t.cases)))
            kept[-1].fetchone()
    hold(engine, 50, 10)
    for _ in range(database.POOL):  # whichever connection it is
        with database.writing(engine) as connection:
            change = sa.update(t.cases).where(t.cases.c.case_id == "c1").values(label="1")
            assert connection.execute(change).rowcount == 1


def test_no_commit_waits_until_a_long_log_is_in_the_file(desk: World, tmp_path: Path) -> None:
    """A reader has kept 6 MB in the log: the next commit was as slow as the disk that had to take all of it."""
    file, engine = tmp_path / "deccaf.db", desk.service.engine
    database.checkpoint(engine)
    before = file.stat().st_size
    with database.reading(engine), database.writing(engine) as connection:
        large = [Arrival(f"l{k}", f'{{"x": "{"y" * 60_000}"}}') for k in range(100)]
        case_records.hold(connection, large, Actor(1), 0.0)
    hold(engine, 0, 1)
    assert file.stat().st_size == before
    database.checkpoint(engine)  # as the service does every second, beside the writer
    assert file.stat().st_size > before + 5_000_000


def test_every_commit_is_flushed(desk: World) -> None:
    with database.reading(desk.service.engine) as connection:
        modes = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
        ]
    assert modes == ["wal", 2]
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


def test_a_statement_that_takes_too_long_is_stopped(database_url: str) -> None:
    first_key(database_url)
    engine = database.connect(database_url, statement_seconds=0.2)
    endless = {
        "sqlite": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
        "postgresql": "SELECT pg_sleep(60)",
    }[engine.dialect.name]
    with pytest.raises(sa.exc.OperationalError) as stopped, database.reading(engine) as connection:
        connection.exec_driver_sql(endless)
    assert database.trouble_of(stopped.value) == "too-long"
    with database.reading(engine) as connection:
        assert connection.execute(sa.select(t.keys)).all(), "the connection is still of use"
    engine.dispose()


def test_a_full_disk_is_told_and_passes(desk: World, caplog: pytest.LogCaptureFixture) -> None:
    service = desk.service
    with database.reading(service.engine) as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    limit = lambda made, record: made.execute(f"PRAGMA max_page_count={pages + 8}")  # noqa: E731
    sa.event.listen(service.engine, "connect", limit)
    service.engine.dispose()
    body = {"cases": [{"case_id": f"c{k}", "features": {"x": "y" * 300}} for k in range(900)]}
    full = desk.machine.post("/v1/cases/bulk", json=body)
    assert (full.status_code, full.json()["type"]) == (503, "urn:deccaf:problem:disk-full")
    ready = desk.nobody.get("/readyz")
    assert (ready.status_code, "full" in ready.json()["detail"]) == (503, True)
    assert any("full" in record.getMessage() for record in caplog.records)
    sa.event.remove(service.engine, "connect", limit)
    service.engine.dispose()
    service.condition._looked_at = 0.0
    service.condition.look()
    assert desk.nobody.get("/readyz").status_code == 200
    assert desk.machine.post("/v1/cases/bulk", json=body).status_code == 201
    desk.assert_sound()


def test_a_disk_that_is_almost_full_is_told_in_time(desk: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition, "LEAST_FREE", 1 << 60)
    desk.service.condition.look()
    assert "full" in desk.nobody.get("/readyz").json()["detail"]


def test_a_ledger_that_can_only_be_read_is_told(desk: World) -> None:
    service = desk.service
    sa.event.listen(service.engine, "connect", lambda made, record: made.execute("PRAGMA query_only=ON"))
    service.engine.dispose()
    refused = desk.machine.post("/v1/cases", json=desk.case("a", ann=0.1))
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:deccaf:problem:read-only")
    assert "only be read" in desk.nobody.get("/readyz").json()["detail"]


def test_a_postgresql_that_can_only_be_read_is_told(database_url: str) -> None:
    if not database_url.startswith("postgresql"):
        pytest.skip("SQLite has a test of its own")
    with world(database_url, housekeeping=False) as desk:
        engine = desk.service.engine
        sa.event.listen(
            engine, "begin", lambda connection: connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        )
        refused = desk.machine.post("/v1/cases", json=desk.case("a", ann=0.1))
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:deccaf:problem:read-only")
        assert "only be read" in desk.nobody.get("/readyz").json()["detail"]


def test_damage_is_told_and_nothing_more_is_acknowledged(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/deccaf.db"
    with world(url, housekeeping=False) as desk:
        hold(desk.service.engine, 0, 2_000)
    checkpoint(url)
    spoil(tmp_path / "deccaf.db")
    with closing(Service(url, housekeeping=False)) as service:
        for _ in range(60):  # the look finds it, wherever it is, without anybody asking for what it hit
            service.condition._looked_at = 0.0
            service.condition.look()
        assert service.condition.trouble == "damaged"
        assert "damaged" in (service.ready() or "")
        with pytest.raises(Exception, match="damaged"):
            service.writer.submit(lambda connection: None).result()
    assert "damaged" in backup.inspect(url)[0]


def test_a_backup_while_cases_come_in_is_whole(desk: World, tmp_path: Path) -> None:
    engine, ended, entered = desk.service.engine, threading.Event(), []

    def write() -> None:
        while not ended.is_set():
            hold(engine, len(entered) * 50, 50)
            entered.append(time.monotonic())

    writer = threading.Thread(target=write)
    writer.start()
    files = [tmp_path / f"backup-{k}.db" for k in range(8)]
    for file in files:
        backup.back_up(desk.service.url, file)
    ended.set()
    writer.join()
    counts = []
    for file in files:
        assert backup.look_at(file) == []
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with closing(apsw.Connection(str(file))) as connection:
            counts.append(connection.execute("SELECT count(*) FROM cases").get)
    assert counts == sorted(counts)
    assert all(count % 50 == 0 for count in counts), "only whole changes"


def test_the_drill_back_up_lose_the_disk_restore(tmp_path: Path) -> None:
    """What was acknowledged before the backup is there after the restore, and the service goes on."""
    url, saved = f"sqlite:///{tmp_path}/live/deccaf.db", tmp_path / "saved.db"
    runner = CliRunner()
    with world(url, {"ann": 9}, housekeeping=False) as desk:
        for k in range(5):
            assert desk.machine.post("/v1/cases", json=desk.case(f"c{k}", ann=0.1)).status_code == 201
        done = runner.invoke(app, ["ledger", "backup", str(saved), "--database", url])
        assert done.exit_code == 0, done.output
        assert desk.machine.post("/v1/cases", json=desk.case("late", ann=0.1)).status_code == 201
        with pytest.raises(ConfigError, match="stop it first"):
            backup.restore(url, saved)
        secret = desk.lead.headers["authorization"]
    checkpoint(url)
    spoil(tmp_path / "live" / "deccaf.db", 0.1, 0.9)
    assert runner.invoke(app, ["ledger", "check", "--database", url]).exit_code != 0
    done = runner.invoke(app, ["ledger", "restore", str(saved), "--database", url])
    assert done.exit_code == 0, done.output
    assert runner.invoke(app, ["ledger", "check", "--database", url]).exit_code == 0
    assert len(list((tmp_path / "live").glob("deccaf.db.before-*"))) == 1
    with closing(Service(url, housekeeping=False)) as service:
        assert service.ready() is None
        assert service.keys.look_up(secret.removeprefix("Bearer ")).role == "lead"
        cases = service.read(lambda c: c.execute(sa.select(t.cases.c.case_id)).scalars().all())
        assert sorted(cases) == [f"c{k}" for k in range(5)]


def test_a_backup_that_is_none_is_not_restored(desk: World, tmp_path: Path) -> None:
    url, saved, odd = desk.service.url, tmp_path / "saved.db", tmp_path / "odd.db"
    hold(desk.service.engine, 0, 500)
    backup.back_up(url, saved)
    with pytest.raises(ConfigError, match="is there already"):
        backup.back_up(url, saved)
    odd.write_bytes(b"not a database at all")
    with pytest.raises(DataError, match="no database of SQLite"):
        backup.restore(url, odd)
    shutil.copyfile(saved, odd)
    spoil(odd, 0.2, 0.9)
    with pytest.raises(DataError, match="no sound backup"):
        backup.restore(url, odd)
    empty = sa.make_url(f"sqlite:///{tmp_path}/new/deccaf.db").render_as_string()
    assert backup.restore(empty, saved) is None
    assert backup.inspect(empty) == []


def test_postgresql_has_its_own_tools(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pg_dump"):
        backup.back_up("postgresql://x@127.0.0.1:9/y", tmp_path / "b")
    with pytest.raises(ConfigError, match="pg_restore"):
        backup.restore("postgresql://x@127.0.0.1:9/y", tmp_path / "b")


def test_nothing_that_was_answered_is_lost_with_the_power(tmp_path: Path) -> None:
    acknowledged, wrong = lose_power(tmp_path, losses=12)
    assert acknowledged > 100
    assert wrong == []


def test_a_loss_of_power_is_noticed_where_commits_are_not_flushed(tmp_path: Path) -> None:
    """The disk of the test before does lose what was not flushed."""
    assert lose_power(tmp_path, losses=6, pragmas=("synchronous=NORMAL",))[1] != []


def test_a_large_file_may_take_as_long_as_it_takes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/deccaf.db"
    first_key(url)
    engine = database.connect(url, statement_seconds=0.05)
    hold(engine, 0, 20_000)
    with database.reading(engine) as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(t.cases)).scalar_one() == 20_000
    engine.dispose()
