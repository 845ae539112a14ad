"""Cases that go to machines: sent to a real HTTP server that is slow, wrong, down and rude, and through kills."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from deccaf.data.makers import Http
from deccaf.errors import ConfigError
from deccaf.service import dispatching
from deccaf.service.dispatching import Machine, read_machines
from deccaf.service.ledger import claims
from deccaf.service.ledger.machines import seats, sendings, standing
from deccaf.service.ledger.waiting.open_work import usual_seconds
from deccaf.service.posting import post
from deccaf.service.store import tables as t
from deccaf.service.store.keys import Actor
from machine_server import RUDE, MachineServer
from pages_world import Person, new_key
from service_databases import free_port
from service_processes import Client as RawClient
from service_processes import Server
from service_world import World, first_key, shift_body, world

SECRET = "a secret of thirty-two characters"
EXAMPLE = Path(__file__).parents[1] / "examples" / "machine_server.py"
CONFIG = """
[costs]
false_positive = 1.0
false_negative = 5.0

[makers.llm]
kind = "machine"
price = 0.01
{limits}

[makers.llm.http]
address = "{address}"
{more}
"""


@pytest.fixture
def server() -> Iterator[MachineServer]:
    found = MachineServer()
    yield found
    found.close()


def machine(address: str, name: str = "llm", **more: Any) -> Machine:
    limits = {key: more.pop(key) for key in ("cases_per_minute", "cases_per_day") if key in more}
    options = {"timeout_seconds": 2.0, "tries": 2, "at_once": 32, **more}
    return Machine(name, Http(address=address, secret_variable="X", **options), SECRET, **limits)


class Desk:
    """A desk with machines, whose cases are sent when the test says so."""

    def __init__(self, found: World, *machines: Machine) -> None:
        self.world, self.machines = found, {one.name: one for one in machines}
        self.service = found.service
        self.service.dispatcher.enter()
        self.pool = ThreadPoolExecutor(32)

    def bring(self, case_id: str, mode: str = "good", **losses: float) -> dict[str, Any]:
        losses = losses or {"llm": 0.1, "ann": 0.2, "machine": 0.9}
        body = {**self.world.case(case_id, **losses), "features": {"mode": mode}}
        made = self.world.machine.post("/v1/cases", json=body)
        assert made.status_code == 201, made.text
        found: dict[str, Any] = made.json()
        return found

    def round(self, name: str = "llm") -> int:
        one = self.machines[name]
        assert one.http is not None
        return self.service.dispatcher.send_round(one, one.http, self.pool)

    def rounds(self, done: Any, name: str = "llm") -> None:
        """Send until something is so: what was in vain is due again after a moment."""
        deadline = time.monotonic() + 30
        while not done():
            assert time.monotonic() < deadline, self.kinds(name)
            if not self.round(name):
                time.sleep(0.005)

    def trail(self, case_id: str) -> list[tuple[str, str | None, dict[str, Any]]]:
        found = self.world.lead.get(f"/v1/cases/{case_id}").json()["history"]
        return [(one["kind"], one["maker"], one["data"]) for one in found]

    def kinds(self, maker: str) -> list[str]:
        found = self.world.lead.get(f"/v1/reports/trail?person={maker}").json()["items"]
        return [one["kind"] for one in reversed(found)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "PAUSE_SECONDS", 0.01)


def test_a_machine_that_is_away_for_long_is_asked_seldom_and_goes_down_once(database_url: str) -> None:
    llm = machine("http://127.0.0.1:9", cases_per_minute=60.0)
    with world(database_url, {"ann": 9}, housekeeping=False, machines=[llm]) as found:
        found.service.dispatcher.enter()
        submit, rng = found.service.writer.submit, found.service.rng

        def in_vain(at: float) -> None:
            submit(lambda connection: standing.in_vain(connection, "llm", "away", 3, at, rng)).result()

        def set_to(**values: Any) -> None:
            submit(lambda connection: connection.execute(sa.update(t.machines).values(**values))).result()

        def row() -> Any:
            return found.service.read(lambda connection: connection.execute(sa.select(t.machines)).one())

        def told(kind: str) -> int:
            items = found.lead.get("/v1/reports/trail?person=llm").json()["items"]
            return [one["kind"] for one in items].count(kind)

        assert found.service.read(lambda connection: usual_seconds(connection, "llm")) == 1.0
        set_to(failures=5_000)  # a week and more
        in_vain(100.0)
        assert (row().failures, row().next_at) == (5_001, 100.0 + standing.LONGEST_PAUSE)
        assert told("machine down") == 1
        set_to(failures=0, down_since=None)
        with ThreadPoolExecutor(8) as pool:  # as several processes do
            list(pool.map(in_vain, [200.0] * 8))
        assert (row().failures, told("machine down")) == (8, 2)
        for _ in range(2):
            submit(lambda connection: standing.answered(connection, "llm", 300.0)).result()
        assert (row().failures, row().down_since, told("machine back")) == (0, None, 1)


def test_answers_are_decisions_and_rudeness_goes_to_the_next_best(
    database_url: str, server: MachineServer, quick: None
) -> None:
    llm = machine(server.address, cases_per_minute=60_000.0)
    with world(database_url, {"ann": 90, "bob": 5}, housekeeping=False, machines=[llm]) as found:
        desk = Desk(found, llm)
        assert SECRET not in repr(llm)
        found.service.models.active = SimpleNamespace(classes=(0, 1))  # type: ignore[assignment]
        # --- an answer is a decision
        assert desk.bring("a")["maker"] == "llm"
        refused = found.lead.post("/v1/queue/next", json={"expert": "llm"})
        assert refused.status_code == 409
        assert desk.round() == 1
        trail = desk.trail("a")
        assert [(kind, maker) for kind, maker, _ in trail] == [("assigned", "llm"), ("decided", "llm")]
        assert trail[-1][2] == {"decision": 1, "score": 0.75}
        asked, headers, raw = server.asked[0], server.headers[0], server.raw[0]
        assert {**asked, "id": ""} == {
            "id": "",
            "case_id": "a",
            "maker": "llm",
            "features": {"mode": "good"},
            "classes": [0, 1],
        }
        assert headers["Idempotency-Key"] == asked["id"]
        at, _, signed = headers["Deccaf-Signature"].removeprefix("t=").partition(",v1=")
        assert signed == hmac.new(SECRET.encode(), f"{at}.".encode() + raw, hashlib.sha256).hexdigest()
        assert desk.round() == 0
        # --- everything that can be wrong; a good answer in each round says that the machine is up
        for mode in (*RUDE, "twice"):
            assert desk.bring(mode, mode)["maker"] == "llm"
        desk.bring("good 1")
        assert desk.round() == len(RUDE) + 2
        desk.bring("good 2")
        due = sendings._due
        while len(found.service.read(lambda c: c.execute(due("llm", time.time())).all())) <= len(RUDE):
            time.sleep(0.01)
        assert desk.round() == len(RUDE) + 1
        for mode, said in RUDE.items():
            trail = desk.trail(mode)
            kinds = [(kind, maker) for kind, maker, _ in trail]
            assert kinds == [
                ("assigned", "llm"),
                ("not answered", "llm"),
                ("not answered", "llm"),
                ("returned", "llm"),
                ("assigned", "ann"),
            ], (mode, trail)
            assert said in trail[1][2]["reason"], mode
            assert said in trail[3][2]["reason"], mode
            ids = {one["id"] for one in server.asked if one["case_id"] == mode}
            assert len(ids) == 1, "sent again with the same id"
        assert [data.get("decision") for kind, _, data in desk.trail("twice") if kind == "decided"] == [1]
        assert server.elsewhere == 0, "no redirect is followed"
        assert "machine down" not in desk.kinds("llm")
        # --- taken from it while it thinks
        desk.bring("moved", "meanwhile")
        server.meanwhile = lambda: (
            found.service.writer.submit(
                lambda c: claims.hand_back(
                    c, "moved", "llm", "lead", Actor(None), time.time(), found.service.rng
                )
            ).result()
            and None
        )
        desk.round()
        kinds = [kind for kind, _, _ in desk.trail("moved")]
        assert kinds == ["assigned", "returned", "assigned", "answer not used"]
        # --- sent, and killed before the answer was written down: asked again, decided once
        desk.bring("killed")
        taken = found.service.writer.submit(
            lambda c: sendings.take(c, "llm", time.time(), 9, 0.0, None)
        ).result()
        assert [one.case_id for one in taken] == ["killed"]
        first, again = (found.service.dispatcher._ask(llm, llm.http, one) for one in (*taken, *taken))
        desk.rounds(lambda: len(desk.trail("killed")) == 2)
        found.service.dispatcher._write("llm", llm.http, first)
        found.service.dispatcher._write("llm", llm.http, again)
        assert [kind for kind, _, _ in desk.trail("killed")].count("decided") == 1
        assert len({one["id"] for one in server.asked if one["case_id"] == "killed"}) == 1
        assert SECRET not in found.lead.get("/v1/reports/trail").text
        found.assert_sound()


def test_a_machine_that_is_down_slow_or_gone_leaves_its_cases_to_others(
    database_url: str, server: MachineServer, quick: None
) -> None:
    port = free_port()
    llm = machine(server.address, cases_per_minute=30.0)
    vendor = machine(f"http://127.0.0.1:{port}/x", "vendor", cases_per_day=40, within_seconds=60.0)
    losses = {"vendor": 0.1, "ann": 0.2, "machine": 0.9}
    machines = [llm, vendor]
    with world(database_url, {"ann": 40, "bob": 5}, housekeeping=False, machines=machines) as found:
        desk = Desk(found, *machines)
        seated = found.roster()
        assert seated["vendor"]["capacity"] == 40
        assert 30 * 60 * 6.9 < seated["llm"]["capacity"] <= 30 * 60 * 7
        later = found.lead.post("/v1/shifts", json=shift_body({"ann": 1}, "later")).json()["id"]
        places = found.lead.get(f"/v1/shifts/{later}").json()["roster"]
        assert {one["maker"]: one["capacity"] for one in places}["llm"] == 30 * 60 * 8
        found.lead.patch(f"/v1/shifts/{later}", json={"state": "closed"})
        # --- down: tried again, then all its cases go to others, and new ones do not come
        for case in ("v1", "v2", "v3"):
            assert desk.bring(case, **losses)["maker"] == "vendor"
        desk.rounds(lambda: "machine down" in desk.kinds("vendor"), "vendor")
        for case in ("v1", "v2", "v3"):
            live = found.lead.get(f"/v1/cases/{case}").json()["assignment"]
            assert live["maker"] == "ann"
            reasons = [
                data["reason"] for kind, _, data in desk.trail(case) if kind in ("returned", "released")
            ]
            assert "does not answer" in reasons[-1]
            assert "refused" in reasons[-1]
        assert desk.bring("v4", **losses)["maker"] == "ann"
        assert found.roster()["vendor"]["used"] == 0
        # --- back: it is asked again after a while, and its answer says that it is there
        back = MachineServer(port)
        try:
            desk.rounds(
                lambda: found.service.read(lambda c: all(not m.down_since for m in seats.read_machines(c))),
                "vendor",
            )
            assert desk.bring("v5", **losses)["maker"] == "vendor"
            desk.rounds(lambda: desk.trail("v5")[-1][0] == "decided", "vendor")
        finally:
            back.close()
        assert desk.kinds("vendor")[-2:] == ["machine back", "decided"]
        # --- its rate: two seconds for each case, whoever sends
        for k in range(3):
            desk.bring(f"l{k}")
        at = time.time() - 100.0
        take = lambda when: found.service.writer.submit(  # noqa: E731
            lambda c: [one.case_id for one in sendings.take(c, "llm", when, 9, 0.0, 30.0)]
        ).result()
        got = [len(take(at + seconds)) for seconds in (0.0, 0.5, 1.9, 2.0, 3.9, 60.0, 61.9)]
        assert got == [1, 0, 0, 1, 0, 1, 0]
        # --- too slow: what has waited too long goes to the next best
        found.service.dispatcher._since = 0.0
        desk.machines["llm"] = machine(server.address, within_seconds=0.001, cases_per_minute=30.0)
        desk.rounds(lambda: all(desk.trail(f"l{k}")[-1][1] == "ann" for k in range(3)))
        assert "has not answered within 0.001 s" in desk.trail("l2")[-2][2]["reason"]
        assert found.service.read(lambda c: sendings.any_due(c, "llm", time.time())) is False
        # --- not in the configuration any more
        desk.bring("v6", **losses)
        entry = [llm.entry]
        found.service.writer.submit(
            lambda c: standing.enter(c, entry, time.time(), found.service.rng)
        ).result()
        assert desk.trail("v6")[-1][:2] == ("assigned", "ann")
        assert desk.bring("v7", **losses)["maker"] == "ann"
        found.service.writer.submit(sendings.forget_ended).result()
        found.assert_sound()


def test_nothing_is_lost_and_nothing_decided_twice_through_kills(
    tmp_path: Path, server: MachineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service with its configuration, killed while the machine thinks; it goes on by itself."""
    more = 'secret_variable = "LLM_SECRET"\ntimeout_seconds = 1.0\ntries = 20'
    path = tmp_path / "deccaf.toml"
    path.write_text(CONFIG.format(address=server.address, limits="", more=more))
    monkeypatch.setenv("LLM_SECRET", SECRET)
    monkeypatch.setenv("DECCAF_CONFIG", str(path))
    url = f"sqlite:///{tmp_path}/deccaf.db"
    key = first_key(url)
    process = Server(url, tmp_path / "log")
    process.start()
    try:
        lead = RawClient(process.port, key)
        assert lead.call("POST", "/v1/experts", {"name": "ann", "team": "team"})[0] == 201
        body = {**shift_body({"ann": 50}), "team": "team"}
        assert lead.call("POST", "/v1/shifts", body)[0] == 201
        cases = [f"c{k}" for k in range(6)]
        for case in cases:
            features = {"mode": "slow" if case < "c2" else "good"}
            losses = {"llm": 0.1, "ann": 0.2}
            body = {"case_id": case, "losses": losses, "machine_decision": 0, "features": features}
            assert lead.call("POST", "/v1/cases", body)[0] == 201
        server.wait_for(2)
        process.kill()
        lead.close()
        server.answer = lambda to, mode: server._send(to, 200, b'{"decision": 1}')  # type: ignore[method-assign]
        process.start()
        lead = RawClient(process.port, key)
        deadline = time.monotonic() + 60
        while any(lead.call("GET", f"/v1/cases/{case}")[2]["status"] != "decided" for case in cases):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for case in cases:
            events = lead.call("GET", f"/v1/cases/{case}")[2]["history"]
            assert [one["kind"] for one in events if one["kind"] in ("decided", "returned")] == ["decided"]
            assert len({one["id"] for one in server.asked if one["case_id"] == case}) == 1
        assert lead.call("GET", "/v1/reports/ledger")[2]["sound"]
        lead.close()
    finally:
        process.stop()
    assert SECRET not in (tmp_path / "log").read_text()


def test_the_example_decides_by_itself_and_pages_call_it_a_machine(tmp_path: Path) -> None:
    """The service with all its threads, and the server that the documentation shows."""
    spec = importlib.util.spec_from_file_location("machine_server_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    shown = example.serve(0, SECRET)
    thread = threading.Thread(target=shown.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    llm = machine(f"http://127.0.0.1:{shown.server_port}/decide", timeout_seconds=20.0)
    try:
        with world(f"sqlite:///{tmp_path}/deccaf.db", {"ann": 5}, machines=[llm]) as found:
            for case, amount in (("much", 900.0), ("little", 3.0)):
                body = {**found.case(case, llm=0.1, ann=0.2, machine=0.9), "features": {"amount": amount}}
                assert found.machine.post("/v1/cases", json=body).json()["maker"] == "llm"
            deadline = time.monotonic() + 60
            while found.lead.get("/v1/cases?status=decided").json()["items"][1:] == []:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            made = {case: found.lead.get(f"/v1/cases/{case}").json() for case in ("much", "little")}
            assert {case: one["decision"]["decision"] for case, one in made.items()} == {
                "much": 1,
                "little": 0,
            }
            assert made["much"]["history"][-1]["data"] == {"decision": 1, "score": 0.9}
            lead = Person(found, new_key(found, "lead"))
            assert "llm (machine) has 2 cases, 2 decided" in lead.get("/today/numbers").text
            assert "/absence?maker=llm" not in lead.get("/today/numbers").text
            assert "llm</a> (machine)" in lead.get("/queue").text
            team = lead.get("/team").text
            assert ">llm (machine)</th>" in team
            assert '<option value="llm">' not in team
            assert found.lead.get("/v1/reports/shift").json()["makers"][-1]["machine"] is True
            for k in range(20):
                found.machine.post("/v1/cases", json=found.case(f"w{k}", llm=0.5, ann=0.2, machine=0.9))
            week = lead.get("/next-week?wage=6&hours=2&minutes=6").text
            assert "No hours of people pay" in week, "ann saves 0.3 a case beside llm, ten cases an hour"
            assert ">ann<" in week
            assert "llm" not in week, "machines have no hours"
            people = lead.get("/people").text
            assert "3 people and 1 machine at work" in people
            assert "llm</a> (machine)" in people
            found.assert_sound()
        assert llm.http is not None
        assert post(llm.http.address, "{}", "another secret", {}, 20.0).status == 401
    finally:
        shown.shutdown()
        thread.join()
        shown.server_close()


def test_where_a_machine_is_and_its_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deccaf.toml"
    (tmp_path / "secret").write_text(f"{SECRET}\n")

    def read(
        address: str = "https://x.example/decide", more: str = 'secret_file = "secret"', limits: str = ""
    ):
        path.write_text(CONFIG.format(address=address, more=more, limits=limits))
        return read_machines(path)

    (found,) = read(limits="cases_per_minute = 30")
    assert found.secret == SECRET
    assert (found.http.tries, found.cases_per_minute) == (3, 30.0)  # type: ignore[union-attr]
    assert found.entry == seats.Machine("llm", True, True, 30.0, None)
    for options, said in (
        ({"address": "ftp://x/y"}, "begins with http"),
        ({"address": "http:///x"}, "begins with http"),
        ({"address": "http://a b/x"}, "begins with http"),
        ({"address": "http://me:pw@x/y"}, "no name or password"),
        ({"more": ""}, "secret_variable"),
        ({"more": f'secret = "{SECRET}"'}, "unknown key"),
        ({"more": 'secret_variable = "NO_SUCH_VARIABLE"'}, "NO_SUCH_VARIABLE is not set"),
        ({"more": 'secret_file = "none"'}, "cannot be read"),
        ({"more": 'secret_file = "secret"\ntries = 0'}, "tries"),
        ({"more": 'secret_file = "secret"\ntimeout_seconds = inf'}, "timeout_seconds"),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)):
            read(**options)
    monkeypatch.setenv("SHORT", "short")
    with pytest.raises(ConfigError, match="fewer than 16") as error:
        read(more='secret_variable = "SHORT"')
    assert "short;" not in str(error.value)
    assert dispatching.MOST_BYTES == 65_536
