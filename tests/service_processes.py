"""Service processes for tests and soaks: started, watched, killed; and clients that keep what was answered."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from service_databases import free_port


class Server:
    """`deccaf serve` in a process of its own."""

    def __init__(self, url: str, log: Path, port: int | None = None) -> None:
        self.url, self.port, self.log = url, port or free_port(), log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, wait: float = 60.0) -> float:
        """Start, and give the seconds until it was ready."""
        command = [sys.executable, "-m", "deccaf.service", str(self.port)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "DECCAF_DATABASE": self.url}
        began = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        while True:
            if ready(self.port):
                return time.monotonic() - began
            if time.monotonic() > began + wait or self._process.poll() is not None:
                raise RuntimeError(f"not ready: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL: no time to finish anything."""
        self._end(signal.SIGKILL)

    def kill_all(self) -> None:
        """The same with everything that it has started: readers of files, fits, backtests."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.kill()

    def stop(self) -> None:
        """The polite way."""
        self._end(signal.SIGTERM)

    def resident(self) -> int:
        """Bytes of memory in use."""
        assert self._process is not None
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS:")))

    def peak(self) -> int:
        """The most memory that was in use since `forget_peak`."""
        assert self._process is not None
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")))

    def forget_peak(self) -> None:
        assert self._process is not None
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def cpu_seconds(self) -> float:
        """Processor time used so far."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(how)
            self._process.wait(60)
            self._process = None


def ready(port: int) -> bool:
    try:
        return Client(port, "").call("GET", "/readyz", timeout=2.0)[0] == 200
    except OSError:
        return False


class Client:
    """A connection that stays open, as a real caller's would; errors are `OSError`."""

    def __init__(self, port: int, secret: str) -> None:
        self._port, self._headers = port, {"Content-Type": "application/json"}
        if secret:
            self._headers["Authorization"] = f"Bearer {secret}"
        self._connection: http.client.HTTPConnection | None = None

    def call(
        self, method: str, path: str, body: Any = None, key: str | None = None, timeout: float = 30.0
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and JSON body; a body of bytes is sent as a CSV file."""
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key": key}
        if isinstance(body, bytes):
            headers = {**headers, "Content-Type": "text/csv"}
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body)
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise OSError(str(error)) from error
        found = {name.lower(): value for name, value in answer.getheaders()}
        kind = found.get("content-type", "")
        return answer.status, found, json.loads(text) if "json" in kind else text

    def sign_in(self, secret: str) -> None:
        """Pages too, from now on."""
        self._headers.pop("Cookie", None)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60.0)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/sign-in", f"key={secret}", form)
        answer = connection.getresponse()
        answer.read()
        self._headers["Cookie"] = str(answer.getheader("set-cookie")).split(";")[0]
        connection.close()

    def until_answered(self, method: str, path: str, body: Any, key: str, deadline: float) -> tuple[int, Any]:
        """Send with a key, again and again through crashes and 503s, until there is an answer."""
        while True:
            try:
                status, _, found = self.call(method, path, body, key)
                if status != 503:
                    return status, found
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(path)
            time.sleep(0.05)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
