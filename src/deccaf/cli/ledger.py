"""`deccaf ledger`: backups of the service's ledger, and whether it is sound."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deccaf.cli.common import say
from deccaf.cli.serve import FOLDER
from deccaf.errors import DataError
from deccaf.optional import extra

ledger = typer.Typer(
    help="Back up the service's ledger, check whether it is sound, restore a backup.", no_args_is_help=True
)

Database = Annotated[
    str | None,
    typer.Option(
        envvar="DECCAF_DATABASE",
        help="sqlite:///path or postgresql://user@host/name; by default SQLite in ./deccaf-service.",
    ),
]
SHOWN = 20


@ledger.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not be there yet.")],
    database: Database = None,
) -> None:
    """Write the ledger as it is now to a file, while the service goes on, and check the file.

    For SQLite. On PostgreSQL take `pg_dump`, as docs/service.md says.
    """
    with extra("service", "deccaf ledger"):
        from deccaf.service import backup as backups
    size = backups.back_up(_url(database), file)
    say(f"{file}: {size / 1e6:,.1f} MB, checked and sound. Keep it where this machine's disk is not.")


@ledger.command("check")
def check(database: Database = None) -> None:
    """Check whether the ledger is whole and adds up; the exit code tells."""
    with extra("service", "deccaf ledger"):
        from deccaf.service import backup as backups
    wrong = backups.inspect(_url(database))
    if wrong:
        more = f"\n... and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise DataError("the ledger is not sound:\n" + "\n".join(wrong[:SHOWN]) + more)
    say("The ledger is sound.")


@ledger.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="A backup.")],
    database: Database = None,
) -> None:
    """Check a backup and put it in the place of the ledger; the old one is kept under another name.

    Stop the service first: it is refused while one runs.
    """
    with extra("service", "deccaf ledger"):
        from deccaf.service import backup as backups
    kept = backups.restore(_url(database), file)
    say("The backup is in place." + (f" The ledger before it is kept as {kept}." if kept else ""))


def _url(database: str | None) -> str:
    return database or f"sqlite:///{FOLDER / 'deccaf.db'}"
