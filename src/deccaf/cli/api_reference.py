"""The reference of everything public in Python as one page, generated from signatures and docstrings.

`python -m deccaf.cli.api_reference docs/api.md` writes it; a test keeps it up to date. Public is what a
module of `MODULES` names in `__all__`, or, where it has none, the functions and classes that it defines.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from deccaf.data.files import write_text

MODULES = {
    "deccaf": "",
    "deccaf.data": "[files](files.md), [costs](costs.md)",
    "deccaf.models": "[models](models.md), [scoring](scoring.md)",
    "deccaf.models.protocols": "[a part of your own](models.md#a-part-of-your-own)",
    "deccaf.assign": "[assignment](assignment.md), [real rosters](rosters.md)",
    "deccaf.planning": "[real rosters](rosters.md)",
    "deccaf.policies": "[the benchmark](benchmark.md)",
    "deccaf.evaluate": "[reading a backtest](reading-the-report.md)",
    "deccaf.evaluate.drift": "[pages](pages.md)",
    "deccaf.backtest": "[reading a backtest](reading-the-report.md)",
    "deccaf.simulate": "[world](world.md), [teams](teams.md)",
    "deccaf.report": "",
    "deccaf.client": "[the service](service.md#from-python)",
    "deccaf.mlflow": "[pipelines](pipelines.md#models-in-mlflow)",
}
"""The public modules, and the pages that say more about them."""

_HEAD = """# Python

Everything public, by where it is imported from. Generated from the code by
`python -m deccaf.cli.api_reference docs/api.md`.

```python
from deccaf import Capacity, Costs, DeCCaF

model = DeCCaF(costs=Costs.binary(false_positive=0.057, false_negative=1.0))
model.fit(X, y, expert=expert_ids, decision=decisions, time=month)
loss = model.expected_loss(X_new)  # cases x makers, same index
plan = model.assign(X_new, Capacity.of({"ann": 40, "bob": 25}))
plan.table  # case, maker, expected_loss, runner_up, price, decision, why, chances, intervals
```

`DeCCaF` is a scikit-learn classifier and transformer. pandas or polars in, the same kind (and index) out;
inputs are never changed. Amounts per case are columns of X that the costs name; they are no features. A
column `case_id`, or else the index, names the cases. With the methods `paper` and `ova` a plan minimises
the paper's objective; `expected_loss` is in units of cost all the same. scikit-learn's `check_estimator`
passes, with one exception that is meant: a case of weight 2 is not quite the same as the case twice,
because what is held out to choose between models is drawn by cases. `expert`, `decision`, `decisions`,
`time`, `group` and `sample_weight` can be routed (`set_fit_request`).

`examples/plan_a_day.py` and `examples/worth_of_an_hour.py` draw what they find.
"""
_WIDTH = 110
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def api_page() -> str:
    """The page as Markdown."""
    described: dict[int, str] = {}
    return "\n".join([_HEAD, *(_module(name, described) for name in MODULES)])


def public_names(module: ModuleType) -> list[str]:
    """What a module offers, in the order of its `__all__` or of its source."""
    named = getattr(module, "__all__", None)
    if named is not None:
        return [name for name in named if not name.startswith("__")]
    own = [node.name for node in _parsed(module).body if isinstance(node, _Function | ast.ClassDef)]
    return [name for name in own if not name.startswith("_")]


def _module(name: str, described: dict[int, str]) -> str:
    module = import_module(name)
    lines = [f"## {name}", "", _first_paragraph(module), ""]
    if MODULES[name]:
        lines += [f"More: {MODULES[name]}.", ""]
    elsewhere: dict[str, list[str]] = {}
    for public in public_names(module):
        found = getattr(module, public)
        if id(found) in described:
            elsewhere.setdefault(described[id(found)], []).append(f"`{public}`")
            continue
        described[id(found)] = name
        lines += [f"### {public}", "", *_entry(public, found), ""]
    lines += [
        f"Also here, described under `{home}`: {', '.join(names)}.\n" for home, names in elsewhere.items()
    ]
    return "\n".join(lines)


def _entry(name: str, found: Any) -> Iterator[str]:
    if isinstance(found, type):
        yield from _class(name, found)
    elif inspect.isfunction(found):
        yield from _code(_signature(name, _parsed(inspect.unwrap(found)).body[0]))  # type: ignore[arg-type]
        yield ""
        yield from _prose(found)
    else:
        yield from _code(f"{name} = {found!r}")
        yield from ("", _constant_doc(name, found))


def _class(name: str, found: type) -> Iterator[str]:
    bodies = [_parsed(base).body[0].body for base in _bases(found)]  # type: ignore[attr-defined]
    functions: dict[str, _Function] = {}
    for part in [part for body in bodies for part in body if isinstance(part, _Function)]:
        functions.setdefault(part.name, part)
    if "__init__" in functions:
        yield from _code(_signature(name, functions["__init__"], method=True))
        yield ""
    yield from _prose(found)
    fields = {what: meaning for body in bodies[::-1] for what, meaning in _fields(body)}
    if fields:
        yield from ("", "| attribute | meaning |", "|---|---|")
        yield from (f"| `{_cell(what)}` | {_cell(meaning)} |" for what, meaning in fields.items())
    methods = [part for part in functions.values() if not part.name.startswith("_")]
    if methods:
        yield from ("", "Methods and properties:", "")
    yield from (_method(name, part) for part in methods)


def _bases(found: type) -> list[type]:
    """The class and those of ours that it builds on."""
    return [base for base in found.__mro__ if base.__module__.partition(".")[0] == "deccaf"]


def _method(owner: str, node: _Function) -> str:
    kinds = {ast.unparse(mark) for mark in node.decorator_list}
    text = _one_line(ast.get_docstring(node) or "")
    if kinds & {"property", "cached_property"}:
        return f"- `{node.name}{_returns(node)}`: {text}"
    name = f"{owner}.{node.name}" if kinds & {"classmethod", "staticmethod"} else node.name
    parameters = _parameters(node, method="staticmethod" not in kinds)
    return f"- `{name}({', '.join(parameters)}){_returns(node)}`: {text}"


def _fields(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Annotated names of a class, each with the string that stands under it."""
    for part, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(part, ast.AnnAssign) or not isinstance(part.target, ast.Name):
            continue
        kind = ast.unparse(part.annotation)
        if part.target.id.startswith("_") or "ClassVar" in kind:
            continue
        plain = part.value is not None and not isinstance(part.value, ast.Call)
        default = f" = {ast.unparse(part.value)}" if plain and part.value is not None else ""
        yield f"{part.target.id}: {kind}{default}", _one_line(_string(after))


def _signature(name: str, node: _Function, *, method: bool = False) -> str:
    parameters, after = _parameters(node, method=method), "" if method else _returns(node)
    line = f"{name}({', '.join(parameters)}){after}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in parameters), f"){after}"])


def _parameters(node: _Function, *, method: bool) -> list[str]:
    """The parameters as they are written, without `self` or `cls`."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults)) + [*given.defaults]
    shown = [_parameter(one, default) for one, default in zip(plain, defaults, strict=True)]
    if given.posonlyargs:
        shown.insert(len(given.posonlyargs), "/")
    if given.vararg is not None or given.kwonlyargs:
        shown.append("*" if given.vararg is None else f"*{_parameter(given.vararg, None)}")
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    shown += [_parameter(one, default) for one, default in named]
    if given.kwarg is not None:
        shown.append(f"**{_parameter(given.kwarg, None)}")
    return shown[1:] if method else shown


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    text = one.arg if one.annotation is None else f"{one.arg}: {ast.unparse(one.annotation)}"
    if default is None:
        return text
    return (
        f"{text} = {ast.unparse(default)}" if one.annotation is not None else f"{text}={ast.unparse(default)}"
    )


def _returns(node: _Function) -> str:
    return "" if node.returns is None else f" -> {ast.unparse(node.returns)}"


def _prose(found: Any) -> Iterator[str]:
    """A docstring as Markdown: sections with a line under their title become lists."""
    text = inspect.cleandoc(found.__doc__ or "")
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.M)
    yield parts[0].strip()
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        yield from ("", f"{title}:", "")
        for item in re.findall(r"^\S.*(?:\n(?:[ \t].*)?)*", body, re.M):
            names, _, rest = item.partition("\n")
            first, _, same_line = names.partition(" : ")
            yield f"- `{first}`: {_one_line(same_line + ' ' + rest)}"


def _constant_doc(name: str, found: Any) -> str:
    """The string under the assignment of a constant, in whichever module of ours makes it."""
    for module in [m for key, m in sorted(sys.modules.items()) if key.startswith("deccaf.")]:
        if getattr(module, "__file__", None) is None or vars(module).get(name) is not found:
            continue
        body = _parsed(module).body
        for part, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(part, ast.Assign) and any(ast.unparse(target) == name for target in part.targets):
                return _one_line(_string(after))
    return ""


def _parsed(found: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(found)))


def _string(node: ast.stmt | None) -> str:
    literal = node.value if isinstance(node, ast.Expr) else None
    return literal.value if isinstance(literal, ast.Constant) and isinstance(literal.value, str) else ""


def _first_paragraph(module: ModuleType) -> str:
    return inspect.cleandoc(module.__doc__ or "").split("\n\n")[0]


def _code(text: str) -> list[str]:
    return ["```", text, "```"]  # no language: a formatter of Python would rewrite it


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write_text(api_page(), Path(sys.argv[1]))
