"""Named settings, kept as JSON."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from deccaf.service.store import tables as t

LEARNING = "learning"
"""The setting that holds `columns`, `costs`, `model`, `labels` and `waiting` of a configuration file."""


def read_setting(connection: sa.Connection, name: str) -> Any:
    """A setting, or None where it was never written."""
    text = connection.execute(sa.select(t.settings.c.value).where(t.settings.c.name == name)).scalar()
    return None if text is None else json.loads(text)


def write_setting(connection: sa.Connection, name: str, value: Any) -> None:
    """Set or replace a setting."""
    text = json.dumps(value)
    done = connection.execute(sa.update(t.settings).where(t.settings.c.name == name).values(value=text))
    if done.rowcount == 0:
        connection.execute(sa.insert(t.settings).values(name=name, value=text))
