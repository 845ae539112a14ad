"""What can be exchanged, by name: case parts, decision parts, methods, policies.

A name is looked up among what deccaf brings and what was added in this process, and then among the entry
points of installed packages. Nothing is imported before it is asked for, and nothing but what deccaf or an
installed package declares: a name in a model file can choose among these, and cannot bring code.

.. code-block:: toml

    [project.entry-points."deccaf.parts"]
    mine = "my_package:MyPart"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from deccaf.errors import ConfigError, ModelFileError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind by name.

    Parameters
    ----------
    what
        What one of them is called in messages.
    group
        The entry points under which installed packages bring more of them.
    built_in
        Those of deccaf itself, as "module:object"; no package can replace them.
    role
        What a loaded thing must have as its `role`, where one group serves several kinds.
    """

    def __init__(
        self, what: str, group: str, built_in: Mapping[str, str] | None = None, role: str | None = None
    ) -> None:
        self.what = what
        self.group = group
        self.role = role
        self._built_in = dict(built_in or {})
        self.known: dict[str, T] = {}
        """What was loaded or added so far."""

    def __contains__(self, name: object) -> bool:
        return name in self.known or name in self._built_in or name in self._installed()

    def __iter__(self) -> Iterator[str]:
        """All names, deccaf's own first; those of installed packages are not imported for this."""
        return iter(dict.fromkeys([*self._built_in, *self.known, *self._installed()]))

    def add(self, name: str, thing: T) -> None:
        """Make a thing known in this process."""
        if name in self.known or name in self._built_in:
            raise ConfigError(f"{self.what} {name!r} is registered already")
        self.known[name] = thing

    def find(self, name: str) -> T:
        """A thing by its name."""
        if name not in self.known:
            thing = self._loaded(name)
            self.known.setdefault(name, thing)  # loading a module may register it
        return self.known[name]

    def named_in_file(self, name: Any) -> T:
        """The same for a name out of a model file, where another remedy helps."""
        try:
            return self.find(name)
        except ConfigError as error:
            if isinstance(name, str) and name in self:
                raise ModelFileError(str(error)) from error
            raise ModelFileError(
                f"needs the {self.what} {name!r}, which is not installed here: install the package that "
                f"brings it (as an entry point of {self.group!r}), or fit the model again without it"
            ) from error

    def _loaded(self, name: str) -> T:
        if name in self._built_in:
            module, _, attribute = self._built_in[name].partition(":")
            return self._made(getattr(import_module(module), attribute))
        installed = self._installed()
        if name not in installed:
            raise ConfigError(
                f"{self.what} {name!r}: known are {', '.join(self)}{did_you_mean(str(name), self)}"
            )
        point = installed[name]
        try:
            thing = self._made(point.load())
        except Exception as error:  # whatever another package does on import
            raise ConfigError(
                f"{self.what} {name!r} ({point.value}): cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        role = getattr(thing, "role", None)
        if self.role is not None and role != self.role:
            raise ConfigError(
                f"{self.what} {name!r} ({point.value}): is a {role or 'thing'}, not a {self.role}"
            )
        return thing

    def _made(self, thing: Any) -> T:
        """A class stands for what it makes without arguments."""
        made: T = thing() if isinstance(thing, type) else thing
        return made

    def _installed(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}


CASE_PARTS: Registry[Any] = Registry(
    "case part",
    "deccaf.parts",
    {
        "logistic": "deccaf.models.cases.logistic:LogisticCases",
        "boosted": "deccaf.models.cases.boosted:BoostedCases",
    },
    role="case part",
)
"""Models of P(truth | case) that a `CaseClassifier` can blend; see `deccaf.models.protocols.CasePart`."""
DECISION_PARTS: Registry[Any] = Registry(
    "decision part",
    "deccaf.parts",
    {
        "rates": "deccaf.models.decisions.rates:ShrunkenRates",
        "pooled": "deccaf.models.decisions.pooled:PooledLogistic",
        "boosted": "deccaf.models.decisions.boosted:BoostedDecisions",
    },
    role="decision part",
)
"""Models of P(decision | case, truth, expert) that a `DecisionModel` can blend; see `DecisionPart`."""
METHODS: Registry[Any] = Registry(
    "method",
    "deccaf.methods",
    {
        "deccaf": "deccaf.models.expected_cost:EXPECTED_COST",
        "paper": "deccaf.models.paper.method:PAPER",
        "ova": "deccaf.models.paper.method:ONE_VS_ALL",
    },
)
"""Ways to learn and to score; see `deccaf.models.protocols.Method`."""
