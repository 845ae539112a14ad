"""How results look in a notebook: a small card of lines and a table, with everything from outside escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import pandas as pd

ROWS = 12
"""Rows of a table that are shown."""


def card(title: str, lines: Sequence[str] = (), table: pd.DataFrame | None = None) -> str:
    """Markup for `_repr_html_`; colours are the notebook's own, so light and dark both work."""
    said = "".join(f"<div>{escape(line)}</div>" for line in lines)
    shown = ""
    if table is not None:
        shown = table.head(ROWS).to_html(border=0, escape=True, na_rep="–", float_format=_number)
        more = len(table) - ROWS
        shown += f"<div><small>and {more:,} more rows</small></div>" if more > 0 else ""
    return f"<div><strong>{escape(title)}</strong>{said}{shown}</div>"


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
