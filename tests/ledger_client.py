"""How requests of the model are sent to the service, and what is on record after them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from deccaf.service.decide import plans
from deccaf.service.store import tables as t
from ledger_model import Plan, Request, Seen


def http_of(request: Request, shift: int) -> tuple[str, str, str, str]:
    """Method, path, body and kind of the body; a lead says for whom, a reviewer need not."""
    args, post = request.args, "POST"
    person = {"expert": args.get("maker")} if request.client == "lead" else {}
    body: dict[str, Any] = {}
    method, path = post, ""
    match request.kind:
        case "case":
            path, body = "/v1/cases", {**_case_json(*_triple(args)), "shift": shift}
            body["excluded"] = args["excluded"]
        case "bulk":
            path, body = "/v1/cases/bulk", {"cases": [_case_json(*case) for case in args["cases"]]}
        case "import_file":
            rows = "".join(f"{name},1.5,web\n" for name in args["names"])
            return post, "/v1/imports", f"case_id,amount,channel\n{rows}", "text/csv"
        case "label":
            rows_ = [{"case_id": name, "label": value} for name, value in args["labels"].items()]
            path, body = "/v1/labels", {"labels": rows_}
        case "next_case":
            path, body = "/v1/queue/next", person
        case "decide":
            path, body = f"/v1/cases/{args['name']}/decision", {"decision": args["decision"], **person}
        case "hand_back":
            path, body = f"/v1/cases/{args['name']}/hand-back", person
        case "undo" | "park" | "take_up" | "extend":
            path, body = f"/v1/cases/{args['name']}/{request.kind.replace('_', '-')}", person
        case "reassign":
            path, body = "/v1/reassignments", {"case_ids": args["names"], "begun": args["begun"]}
            body["to"] = args["to"]
        case "prioritise":
            path, body = "/v1/priorities", {"case_ids": [args["name"]], "priority": args["priority"]}
        case "want":
            path, body = "/v1/second-opinions/wanted", {"case_ids": [args["name"]]}
        case "settle":
            path, body = "/v1/disagreements/settle", {"case_id": args["name"], "decision": args["decision"]}
        case "plan":
            path, body = "/v1/plans", {"shift": shift, "case_ids": args["names"]}
        case "commit" | "discard":
            path = f"/v1/plans/{args['number']}/{request.kind}"
        case "roster":
            method, path = "PUT", f"/v1/shifts/{shift}/roster/{args['maker']}"
            body = {key: args[key] for key in ("capacity", "absent", "release")}
        case "shift":
            method, path, body = "PATCH", f"/v1/shifts/{shift}", {"state": args["state"]}
        case "person":
            method, path, body = "PATCH", f"/v1/experts/{args['maker']}", {"active": args["active"]}
        case "team":
            path, body = "/v1/teams", {"name": args["name"]}
        case "activate":
            path = f"/v1/models/{args['number']}/activate"
        case "trial":
            path, body = "/v1/trials", {"model": args["number"], "share": 0.5, "bound": 1.0}
        case "begin" | "end":
            path = f"/v1/trials/{args['number']}/{request.kind}"
        case "golden_case":
            case_ = {"features": {"amount": 1.5, "channel": "web"}, "label": args["label"]}
            path, body = "/v1/golden", {"cases": [case_]}
        case "golden_rate":
            method, path, body = "PUT", f"/v1/golden/rates/{args['maker']}", {"rate": args["rate"]}
        case "report":
            return "GET", "/v1/reports/ledger", "", "application/json"
    return method, path, json.dumps(body), "application/json"


def read_record(
    connection: sa.Connection, prefix: str, shift: int, known: Mapping[int, Plan], since: Mapping[str, int]
) -> Seen:
    """What is on record of the cases with this prefix, and of a shift; rows of `known` drafts are not read again.

    `since` are the last trial and golden case of before.
    """
    states = dict(_rows(connection, t.plans.c["id", "state"], t.plans.c.shift_id == shift))
    drafts = {
        number: known[number].rows if number in known else _draft(connection, number)
        for number, state in states.items()
        if state == "draft"
    }
    seats = _rows(connection, t.roster.c["maker", "capacity", "used", "absent"], t.roster.c.shift_id == shift)
    pricing = sa.select(t.shifts.c.pricing_id).where(t.shifts.c.id == shift).scalar_subquery()
    ((makers, prices),) = _rows(connection, t.pricings.c["makers", "prices"], t.pricings.c.id == pricing)
    return Seen(
        cases=_cases(connection, prefix),
        seats={maker: tuple(rest) for maker, *rest in seats},
        plans=states,
        prices=dict(zip(json.loads(makers), json.loads(prices), strict=True)),
        drafts=drafts,
        desk=_desk(connection, {maker for maker, *_ in seats}, since),
    )


def last_of_desk(connection: sa.Connection) -> dict[str, int]:
    """The last trial and golden case."""
    tables = {"trials": t.trials, "golden": t.golden_sources}
    return {
        name: int(connection.execute(sa.select(sa.func.max(table.c.id))).scalar() or 0)
        for name, table in tables.items()
    }


def _desk(connection: sa.Connection, people: set[str], since: Mapping[str, int]) -> dict[str, Any]:
    trials = _rows(connection, t.trials.c["id", "state"], t.trials.c.id > since["trials"])
    found: dict[str, Any] = {f"trial {number}": state for number, state in trials}
    rates = _rows(connection, t.golden_rates.c["maker", "rate"], t.golden_rates.c.maker.in_(people))
    found |= {f"rate of {maker}": rate for maker, rate in rates}
    golden = len(_rows(connection, [t.golden_sources.c.id], t.golden_sources.c.id > since["golden"]))
    return found | ({"golden": golden} if golden else {})


def _cases(connection: sa.Connection, prefix: str) -> dict[str, Any]:
    k, a, d, w = t.cases.c, t.assignments.c, t.decisions.c, t.labels.c
    live = _rows(
        connection,
        a["case_id", "maker", "state", "parked_until"],
        a.state.in_(t.LIVE),
        a.case_id.startswith(prefix),
    )
    holds = {case: (maker, state) for case, maker, state, _ in live}
    parked = {case for case, _, state, until in live if until is not None and state != "decided"}
    undone: dict[str, list[Any]] = {}
    u = t.undone.c
    for _, case, decision in sorted(
        _rows(connection, u["id", "case_id", "decision"], u.case_id.startswith(prefix))
    ):
        undone.setdefault(case, []).append(json.loads(decision))
    o, s = t.opinions.c, t.second_opinions.c
    opinions: dict[str, list[Any]] = {}
    for _, case, maker, decision in sorted(
        _rows(connection, o["assignment_id", "case_id", "maker", "decision"], o.case_id.startswith(prefix))
    ):
        opinions.setdefault(case, []).append((maker, json.loads(decision)))
    listed = {
        case for (case,) in _rows(connection, [s.case_id], s.state == "lead", s.case_id.startswith(prefix))
    }
    decided = dict(_rows(connection, d["case_id", "decision"], d.case_id.startswith(prefix)))
    trails: dict[str, list[Any]] = {}
    for _, case, label in sorted(
        _rows(connection, w["id", "case_id", "label"], w.case_id.startswith(prefix))
    ):
        trails.setdefault(case, []).append(json.loads(label))
    found = {}
    for case, status, excluded, text in _rows(
        connection, k["case_id", "status", "excluded", "label"], k.case_id.startswith(prefix)
    ):
        label, said = json.loads(text or "null"), trails.get(case, [])
        if label != (said[-1] if said else None):
            said = [*said, f"but the case says {label!r}"]
        decision = json.loads(decided.get(case, "null"))
        barred = sorted(json.loads(excluded))
        held = holds.get(case, (None, None))
        aside = (case in parked, tuple(undone.get(case, [])), tuple(opinions.get(case, [])), case in listed)
        found[case] = (status, *held, barred, decision, tuple(said), *aside)
    return found


def _rows(connection: sa.Connection, columns: Any, *conditions: Any) -> list[Any]:
    return [tuple(row) for row in connection.execute(sa.select(*columns).where(*conditions))]


def _draft(connection: sa.Connection, number: int) -> dict[str, str]:
    return {row.case_id: row.maker for row in plans.open_draft(connection, number).rows(0, 1000)}


def _triple(args: Any) -> tuple[str, dict[str, float], Any]:
    return args["name"], args["losses"], args["says"]


def _case_json(name: str, losses: dict[str, float], says: Any) -> dict[str, Any]:
    return {"case_id": name, "losses": losses, "machine_decision": says}
