"""One self-contained HTML page from sections of words, tables and pictures."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from jinja2 import Environment, Template

from deccaf.data.files import replacing, write_frame, write_text
from deccaf.errors import DeccafWarning
from deccaf.report.figures import as_pdf, as_png, can_draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_PICTURES = (
    "Pictures are left out: they need matplotlib, which comes with deccaf[report] "
    "(pip install '.[report]' in deccaf's folder)."
)


@dataclass(frozen=True)
class Section:
    """What was found, in a sentence or two, with the table and the pictures that show it."""

    title: str
    text: str
    table: pd.DataFrame | None = None
    """Already formatted: every cell is shown as it is."""
    pictures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    """By name, what draws each; nothing is drawn before the page is written."""
    note: str = ""
    name: str = ""
    """Of the table's files, where it gets some."""

    @cached_property
    def words(self) -> frozenset[int]:
        """Places of the columns without any digit, which are read from the left."""
        if self.table is None:
            return frozenset()
        columns = (self.table.iloc[:, k].astype(str) for k in range(self.table.shape[1]))
        return frozenset(k for k, column in enumerate(columns) if not column.str.contains(r"\d").any())

    @cached_property
    def drawn(self) -> dict[str, Figure]:
        """The pictures, drawn once; none where matplotlib is not installed."""
        return {name: draw() for name, draw in self.pictures.items()} if can_draw() else {}

    @cached_property
    def png(self) -> dict[str, bytes]:
        """The pictures as files."""
        return {name: as_png(figure) for name, figure in self.drawn.items()}

    @property
    def images(self) -> list[tuple[str, str]]:
        """The pictures as (name, address inside the page), so that the page is one file."""
        return [
            (name, "data:image/png;base64," + base64.b64encode(png).decode("ascii"))
            for name, png in self.png.items()
        ]


@dataclass(frozen=True)
class Report:
    """A page: a lead, a few figures with their meaning, and sections."""

    title: str
    lead: str
    sections: tuple[Section, ...]
    figures: tuple[tuple[str, str], ...] = ()
    footer: str = ""

    @property
    def lacks(self) -> str:
        """What the page should have and cannot, for its reader."""
        return NO_PICTURES if any(section.pictures for section in self.sections) and not can_draw() else ""

    def html(self) -> str:
        """The page; whatever came from data is escaped."""
        return _template().render(report=self)

    def write(self, folder: str | Path) -> Path:
        """Write report.html and each picture as a PNG beside it; gives the page's path.

        Without matplotlib the page has its words and tables, and a note that says what is missing.
        """
        folder = Path(folder)
        if self.lacks:
            warnings.warn(self.lacks, DeccafWarning, stacklevel=2)
        for section in self.sections:
            for name, png in section.png.items():
                with replacing(folder / f"{name}.png") as beside:
                    beside.write_bytes(png)
        page = folder / "report.html"
        write_text(self.html(), page)
        return page

    def write_for_print(self, folder: str | Path) -> None:
        """Write each picture as a PDF, and each table that has a name as CSV and LaTeX."""
        folder = Path(folder)
        for section in self.sections:
            for name, figure in section.drawn.items():
                with replacing(folder / f"{name}.pdf") as beside:
                    beside.write_bytes(as_pdf(figure))
            if section.table is not None and section.name:
                write_frame(section.table.astype("str"), folder / f"{section.name}.csv")
                latex = section.table.to_latex(index=False, escape=True).replace("±", r"$\pm$")
                write_text(latex, folder / f"{section.name}.tex")


@cache
def _template() -> Template:
    source = resources.files("deccaf.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
