"""`deccaf serve`: the running service."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from deccaf.cli.common import say
from deccaf.errors import ConfigError
from deccaf.optional import extra

FOLDER = Path("deccaf-service")


def serve(
    database: Annotated[
        str | None,
        typer.Option(
            envvar="DECCAF_DATABASE",
            help="sqlite:///path or postgresql://user@host/name; by default SQLite in ./deccaf-service.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8080,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Processes (PostgreSQL only).")] = 1,
    config: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            envvar="DECCAF_CONFIG",
            help="A configuration whose machines ([makers]) take part: their cases are sent to them.",
        ),
    ] = None,
    openid: Annotated[
        str | None,
        typer.Option(
            envvar="DECCAF_OPENID",
            help="TOML file about an OpenID Connect provider that people sign in at too (docs/service.md).",
        ),
    ] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Make the tables and the first lead's key, print the key, and end.")
    ] = False,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Bring the tables up to this version, and end.")
    ] = False,
    new_lead_key: Annotated[
        bool,
        typer.Option(
            "--new-lead-key", help="Make one more lead's key, where all are lost; print the key, and end."
        ),
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="A simulated team at work on a throw-away database; prints a key.")
    ] = False,
    trouble: Annotated[
        bool,
        typer.Option(
            "--trouble",
            help="With --demo: after a minute a feature shifts and an analyst tosses coins.",
        ),
    ] = False,
) -> None:
    """Run the service: cases in, people at work, nothing lost. The API is described in docs/service.md.

    Begin with `deccaf serve --init`, which prints the first lead's key once, then `deccaf serve`. It listens
    on this machine only, unless told otherwise, and refuses to do that before anybody has a key. With
    OTEL_EXPORTER_OTLP_ENDPOINT in the environment it sends traces there.
    """
    with extra("service", "deccaf serve"):
        from deccaf.service import run
    if trouble and not demo:
        raise ConfigError("--trouble is for --demo: on a real desk it comes by itself")
    if demo:
        _demo(database, host, port, trouble, openid)
        return
    url = database or f"sqlite:///{FOLDER / 'deccaf.db'}"
    if init:
        secret = run.initialise(url)
        say("The first lead's key. It is shown this once and stored nowhere; keep it safe:")
        print(secret)
    elif new_lead_key:
        secret = run.new_lead_key(url)
        say("One more lead's key, and a line about it in the trail. It is shown this once:")
        print(secret)
    elif migrate:
        run.upgrade(url)
        say("The tables are up to date.")
    else:
        say(f"deccaf on http://{host}:{port}, stop with Ctrl-C")
        run.serve(url, host, port, processes, config, openid)


def _demo(database: str | None, host: str, port: int, trouble: bool, openid: str | None) -> None:
    from deccaf.service import run

    with tempfile.TemporaryDirectory(prefix="deccaf-demo-") as folder:
        url = database or f"sqlite:///{folder}/demo.db"
        say("Generating cases, simulating a team, learning from its decisions (a quarter of a minute) ...")
        with run.demo(url, trouble, openid) as (app, secret):
            say(f"deccaf on http://{host}:{port}, with nine simulated analysts at work; stop with Ctrl-C.")
            say("Open that address in a browser and sign in with this key, a lead's:")
            print(secret, flush=True)
            say(f"Try: curl -H 'Authorization: Bearer {secret}' http://{host}:{port}/v1/reports/shift")
            run.listen(app, host, port)
