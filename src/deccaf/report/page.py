"""One self-contained HTML page from sections of words, tables and pictures."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from pathlib import Path

import pandas as pd
from jinja2 import Environment, Template
from matplotlib.figure import Figure

from deccaf.data.files import replacing, write_frame, write_text
from deccaf.report.figures import as_pdf, as_png


@dataclass(frozen=True)
class Section:
    """What was found, in a sentence or two, with the table and the pictures that show it."""

    title: str
    text: str
    table: pd.DataFrame | None = None
    """Already formatted: every cell is shown as it is."""
    pictures: Mapping[str, Figure] = field(default_factory=dict)
    note: str = ""
    name: str = ""
    """Of the table's files, where it gets some."""

    @cached_property
    def png(self) -> dict[str, bytes]:
        """The pictures, drawn once."""
        return {name: as_png(figure) for name, figure in self.pictures.items()}

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

    def html(self) -> str:
        """The page; whatever came from data is escaped."""
        return _template().render(report=self)

    def write(self, folder: str | Path) -> Path:
        """Write report.html and each picture as a PNG beside it; gives the page's path."""
        folder = Path(folder)
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
            for name, figure in section.pictures.items():
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
