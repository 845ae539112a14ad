"""What the documentation site has beside mkdocs: its version, and the Python reference by mkdocstrings.

docs/api.md is a page that tests hold against the code, and that can be read without the site. On the site its
entries give way to what mkdocstrings makes of the same names, with links between types and a heading for
every method. Which names are public is said in one place, `deccaf.cli.api_reference`, which writes the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = "api.md"
VERSION = re.compile(r'^__version__ = "(.+)"$', re.M)
MODULE = re.compile(r"^## (deccaf[\w.]*)$(.*?)(?=^## |\Z)", re.M | re.S)
ENTRY = re.compile(r"^### (\w+)$.*?(?=^### |^Also here, |\Z)", re.M | re.S)


def on_config(config: Any) -> Any:
    source = Path(config.config_file_path).parent / "src" / "deccaf" / "__init__.py"
    found = VERSION.search(source.read_text())
    if found is None:
        raise ValueError(f"{source}: no __version__")
    config.copyright = f"deccaf {found[1]} · Apache-2.0"
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return by_mkdocstrings(markdown) if page.file.src_uri == PAGE else markdown


def by_mkdocstrings(markdown: str) -> str:
    """The page with a directive in the place of every entry; heads of modules and references stay."""

    def section(found: re.Match[str]) -> str:
        name = found[1]
        return f"## {name}" + ENTRY.sub(lambda entry: f"::: {name}.{entry[1]}\n\n", found[2])

    return MODULE.sub(section, markdown)
