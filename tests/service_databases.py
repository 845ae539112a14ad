"""Databases for the service's tests: SQLite in a folder, and a real PostgreSQL started for the session."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg


def server_binaries() -> Path | None:
    """The folder of PostgreSQL's server programs, newest first, or None."""
    found = shutil.which("postgres")
    places = [Path(found).parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    places += [Path("/usr/pgsql/bin"), Path("/opt/homebrew/bin"), Path("/usr/local/bin")]
    return next(
        (place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None
    )


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Postgres:
    """One server in a temporary folder on a loopback port; it refuses to run as root, so another user runs it."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.data, self.binaries, self.port = folder / "data", binaries, free_port()
        self.log = folder / "log"
        self._as_user: list[str] = []
        if os.getuid() == 0:
            import pwd

            users = {entry.pw_name for entry in pwd.getpwall()}
            user = "postgres" if "postgres" in users else "nobody"
            self._as_user = [
                "setpriv",
                f"--reuid={user}",
                f"--regid={pwd.getpwnam(user).pw_gid}",
                "--clear-groups",
            ]
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        self._run(
            "initdb",
            "-D",
            str(self.data),
            "-U",
            "deccaf",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C",
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(self.binaries / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.data.parent}"]
        command += ["-c", "max_connections=200", "-c", "shared_buffers=64MB"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*self._as_user, *command], stdout=log, stderr=log, cwd="/")
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise RuntimeError(self.log.read_text()[-2000:]) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def cpu_seconds(self) -> float:
        """Processor time of the server's processes that live."""
        assert self._process is not None
        total = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text().rsplit(")", 1)[1].split()
                if int(fields[1]) == self._process.pid:
                    total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def url(self, database: str) -> str:
        return f"postgresql://deccaf@127.0.0.1:{self.port}/{database}"

    def new_database(self, name: str) -> str:
        """A schema of its own, which comes and goes faster than a database of its own."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"')
        return f"{self.url('postgres')}?options=-csearch_path%3D{name}"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self._as_user, str(self.binaries / program), *arguments],
            capture_output=True,
            text=True,
            cwd="/",
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr[-2000:]}")


@contextmanager
def postgres_server() -> Iterator[Postgres | None]:
    """A running server, or None where there are no server programs."""
    binaries = server_binaries()
    if binaries is None:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="deccaf-pg-"))
    folder.chmod(0o755)
    server = Postgres(folder, binaries)
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)
