"""Imports that wait: public names that cost nothing until they are used, and packages that only some need.

`lazy_names` gives a package its public names without importing where they are defined: `import deccaf` and
`deccaf --help` are ready at once, though numpy, pandas and LightGBM take seconds. `extra` stands around the
import of a package that is not installed by default, and says by which extra it comes. `drawn` is how a
result of a lower floor has a picture: the only import that points upwards, once somebody asks to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from deccaf.errors import ConfigError


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names are imported when they are asked for.

    `homes` says which module defines which names, with spaces between. A name must not be that of a
    submodule: once the submodule is imported, Python would give the module instead.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return get, lambda: sorted(home_of)


def drawn(module: str, name: str, *of: Any) -> Any:
    """The picture that a function of `deccaf.report` draws."""
    return getattr(import_module(f"deccaf.report.{module}"), name)(*of)


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around the import of packages that the extra `name` brings; `what` is what cannot be done without."""
    try:
        yield
    except ImportError as error:
        if (error.name or "deccaf").partition(".")[0] == "deccaf":
            raise  # ours, and a bug
        raise ConfigError(
            f"{what} needs {error.name}, which comes with deccaf[{name}]: "
            f"pip install '.[{name}]' in deccaf's folder"
        ) from error
