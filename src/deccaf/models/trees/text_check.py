"""Check the text of a LightGBM model before LightGBM sees it: its loader ends the process on a damaged one.

`trimmed` keeps what prediction needs, from the header to "end of trees". `check_tree_text` lets such a text
pass only if it has exactly the known fields, every number is one, every tree is where the header says, every
array is as long as its tree needs, and every index points into its array, children always after their parent.
"""

from __future__ import annotations

import re

from deccaf.errors import ModelFileError

_END = "end of trees\n"
_NUMBER = r"-?(?:\d+(?:\.\d*)?(?:e[+-]?\d{1,3})?|inf|nan)"
_INTEGER = r"-?\d{1,10}"
_NUMBERS = re.compile(f"{_NUMBER}(?: {_NUMBER})*")
_INTEGERS = re.compile(f"{_INTEGER}(?: {_INTEGER})*")
_INFO = re.compile(rf"none|\[{_NUMBER}:{_NUMBER}\]|{_INTEGER}(?::{_INTEGER})*")
_OBJECTIVE = re.compile(r"binary sigmoid:1|multiclass num_class:(\d+)")
_HEADER = (
    "version",
    "num_class",
    "num_tree_per_iteration",
    "label_index",
    "max_feature_idx",
    "objective",
    "feature_names",
    "feature_infos",
    "tree_sizes",
)
_PER_SPLIT = ("split_feature", "decision_type", "left_child", "right_child", "internal_count")
_PER_SPLIT_NUMBERS = ("split_gain", "threshold", "internal_value", "internal_weight")
_PER_LEAF_NUMBERS = ("leaf_value", "leaf_weight")
_FINITE = ("leaf_value", "shrinkage")
"""What predictions are made of; a threshold is NaN where only missing values go left."""
_SINGLE = ("Tree", "num_leaves", "num_cat", "is_linear", "shrinkage")
_CATEGORIES = ("cat_boundaries", "cat_threshold")
_TREE = {*_SINGLE, *_PER_SPLIT, *_PER_SPLIT_NUMBERS, *_PER_LEAF_NUMBERS, "leaf_count"}
_MOST_CLASSES = 10_000
_LARGEST = 2**31 - 1


def trimmed(text: str) -> str:
    """The text without importances and parameters, which prediction does not need."""
    return text[: text.index(_END) + len(_END)]


def check_tree_text(text: str) -> None:
    """Raise `ModelFileError` unless the text is a whole and trimmed LightGBM model."""
    try:
        _check(text.encode("ascii"))
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        raise ModelFileError(f"trees: the text is damaged ({type(error).__name__}: {error})") from error


def _check(raw: bytes) -> None:
    head, gap, body = raw.partition(b"\n\n")
    fields = _fields(head.removeprefix(b"tree\n"))
    if not gap or not head.startswith(b"tree\n") or tuple(fields) != _HEADER or fields["version"] != "v4":
        raise ValueError("it does not begin as a model of version v4")
    width, sizes = _whole(fields["max_feature_idx"], 1)[0] + 1, _whole(fields["tree_sizes"])
    _check_header(fields, width, len(sizes))
    start = 0
    for number, size in enumerate(sizes):
        part = body[start : start + size]
        if size < 1 or len(part) != size or not part.startswith(b"Tree=%d\n" % number):
            raise ValueError(f"tree {number} is not where the header says")
        _check_tree(_fields(part.rstrip(b"\n")), width)
        start += size
    if body[start:] != _END.encode("ascii"):
        raise ValueError("the trees do not end where the header says")


def _check_header(fields: dict[str, str], width: int, trees: int) -> None:
    classes, per_round = (_whole(fields[name], 1)[0] for name in ("num_class", "num_tree_per_iteration"))
    objective = _OBJECTIVE.fullmatch(fields["objective"])
    if objective is None or int(objective[1] or 1) != classes or fields["label_index"] != "0":
        raise ValueError(f"objective {fields['objective']!r} with {classes} class(es)")
    if not 1 <= classes <= _MOST_CLASSES or per_round != classes or trees % classes:
        raise ValueError(f"{trees} trees of {per_round} a round for {classes} class(es)")
    if fields["feature_names"] != " ".join(f"f{place}" for place in range(width)):
        raise ValueError("names of features and their number do not fit")
    infos = fields["feature_infos"].split(" ")
    if len(infos) != width or not all(_INFO.fullmatch(info) for info in infos):
        raise ValueError("facts about features and their number do not fit")


def _check_tree(tree: dict[str, str], features: int) -> None:
    leaves, categories = _whole(tree["num_leaves"], 1)[0], _whole(tree["num_cat"], 1)[0]
    expected = _TREE | (set(_CATEGORIES) if categories else set())
    if set(tree) - expected or (leaves > 1 and expected - set(tree)):
        raise ValueError("a tree with other fields than a tree has")
    if leaves < 1 or categories < 0 or tree["is_linear"] != "0":
        raise ValueError("a tree of an unknown kind")
    _numbers(tree["shrinkage"], 1)
    splits = leaves - 1
    for names, count in ((_PER_LEAF_NUMBERS, leaves), (_PER_SPLIT_NUMBERS, splits)):
        for name in names:
            _numbers(tree.get(name, ""), count if splits or name == "leaf_value" else None)
    if any(word in tree.get(name, "") for name in _FINITE for word in ("nan", "inf")):
        raise ValueError("a leaf whose value is no finite number")
    whole = {name: _whole(tree.get(name, ""), splits) for name in _PER_SPLIT}
    _whole(tree.get("leaf_count", ""), leaves if splits else None)
    if not all(0 <= feature < features for feature in whole["split_feature"]):
        raise ValueError("a split on a column that does not exist")
    for side in ("left_child", "right_child"):
        for node, child in enumerate(whole[side]):
            if not (node < child < splits or (child < 0 and ~child < leaves)):
                raise ValueError("a split that leads nowhere")
    _check_categories(tree, whole["decision_type"], categories)


def _check_categories(tree: dict[str, str], kinds: list[int], categories: int) -> None:
    if not all(0 <= kind < 16 for kind in kinds):
        raise ValueError("a split of an unknown kind")
    thresholds = tree.get("threshold", "").split(" ")
    used = [float(thresholds[node]) for node, kind in enumerate(kinds) if kind & 1]
    if not categories:
        if used:
            raise ValueError("a split on categories that are not there")
        return
    ends = _whole(tree["cat_boundaries"], categories + 1)
    words = _whole(tree["cat_threshold"], largest=2**32 - 1)
    if ends[0] != 0 or ends[-1] != len(words) or sorted(ends) != ends or min(words, default=0) < 0:
        raise ValueError("sets of categories that do not fit")
    if not all(place == int(place) and 0 <= place < categories for place in used):
        raise ValueError("a split on a set of categories that does not exist")


def _fields(part: bytes) -> dict[str, str]:
    lines = [line.partition("=") for line in part.decode("ascii").split("\n")]
    names = [name for name, _, _ in lines]
    if len(set(names)) != len(names) or not all(mark for _, mark, _ in lines):
        raise ValueError("a line that is no field, or a field that stands twice")
    return {name: value for name, _, value in lines}


def _whole(values: str, count: int | None = None, largest: int = _LARGEST) -> list[int]:
    """Whole numbers, as many as `count`."""
    found = _parsed(values, _INTEGERS, count)
    numbers = [int(value) for value in found]
    if any(abs(number) > largest for number in numbers):
        raise ValueError("a number out of range")
    return numbers


def _numbers(values: str, count: int | None) -> None:
    _parsed(values, _NUMBERS, count)


def _parsed(values: str, pattern: re.Pattern[str], count: int | None) -> list[str]:
    if values and not pattern.fullmatch(values):
        raise ValueError(f"no numbers: {values[:40]!r}")
    found = values.split(" ") if values else []
    if count is not None and len(found) != count:
        raise ValueError(f"{len(found)} numbers instead of {count}")
    return found
