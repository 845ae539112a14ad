"""Model files: one `.deccaf` zip that is checked before anything in it is loaded, and that runs nothing.

====================  =================================================================
`manifest.json`       format, versions, schema, training summary, SHA-256 of every member
`model.json`          the model as plain data, with the names of the members it refers to
`arrays/N.npy`        arrays, in NumPy's own format
`trees/N.txt`         LightGBM's own text
`signature.txt`       HMAC-SHA256 of the manifest, where a key was given
====================  =================================================================

The zip's comment ends with the SHA-256 of everything before it: a file with one changed bit does not load.
That protects against damage, not against a forger, who can compute a new sum; a key does that (`key=`). Even
a forged file executes nothing: there is no pickle, names of parts and methods only choose among those that
are installed, and trees are checked (`text_check`) before LightGBM sees them. Numbers that are NaN or
infinite are refused, in a file and before one is written. Files of format 1 are read as well (`format_1`).
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import math
import platform
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from deccaf.data.files import replacing
from deccaf.errors import ModelFileError
from deccaf.models import format_1
from deccaf.models.array_files import array_bytes, read_array
from deccaf.models.trees.text_check import check_tree_text, trimmed

FORMAT = 2
MANIFEST, MODEL, SIGNATURE = "manifest.json", "model.json", "signature.txt"
LARGEST_FILE = 1 << 30
LARGEST_CONTENT = 4 << 30
MOST_MEMBERS = 10_000
_MARK = b"deccaf model sha256:"
_DIGITS = 64
_PACKAGES = ("lightgbm", "numpy", "pandas", "pyarrow", "scikit-learn", "scipy")
_EPOCH = (1980, 1, 1, 0, 0, 0)


class ModelFile(NamedTuple):
    """The checked content of a model file."""

    manifest: dict[str, Any]
    model: dict[str, Any]
    """Plain data, with arrays and trees in their places."""
    signed: bool


def write_model_file(
    path: str | Path,
    model: Mapping[str, Any],
    *,
    schema: Any,
    training: Any,
    deccaf_version: str,
    key: bytes | None = None,
) -> None:
    """Write what the models' `to_dict` give as a model file, whole or not at all."""
    members: dict[str, bytes] = {}
    try:
        members[MODEL] = _json(_taken_apart(model, members), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"{path}: the model cannot be written: {error}") from error
    manifest = {
        "format": FORMAT,
        "kind": "deccaf model",
        "versions": {
            "deccaf": deccaf_version,
            "python": platform.python_version(),
            **{name: version(name) for name in _PACKAGES},
        },
        "schema": schema,
        "training": training,
        "members": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(members.items())
        },
    }
    content = {MANIFEST: _json(manifest), **members}
    if key is not None:
        content[SIGNATURE] = _signature(content[MANIFEST], key).encode("ascii")
    data = _sealed(content)
    with replacing(path) as beside:
        beside.write_bytes(data)


def read_model_file(path: str | Path, key: bytes | None = None) -> ModelFile:
    """Check a model file and give its content; a `ModelFileError` says why it cannot be used."""
    path = Path(path)
    content = _opened(path)
    manifest = _manifest(path, content[MANIFEST])
    signed = SIGNATURE in content
    if key is not None:
        given = content.get(SIGNATURE, b"")
        if not hmac.compare_digest(given, _signature(content[MANIFEST], key).encode("ascii")):
            state = "was signed with another key" if signed else "is not signed"
            raise ModelFileError(f"{path}: {state}; do not use it unless you know where it comes from")
    _check_members(path, manifest, content)
    try:
        model = _put_together(_plain(content[MODEL]), content, int(manifest["format"]))
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except Exception as error:  # whatever a forged file provokes is a bad file, not a crash
        raise ModelFileError(f"{path}: {MODEL} cannot be read: {_words(error)}") from error
    return ModelFile(manifest, model, signed)


def rename_expert(path: str | Path, before: str, after: str) -> None:
    """Put another name in the place of an expert's, with the same numbers; a signature does not survive."""
    path = Path(path)
    content = _opened(path)
    manifest = _manifest(path, content[MANIFEST])
    _check_members(path, manifest, content)
    model = _plain(content[MODEL])
    for part in ("learned", "pace"):
        if part in model:
            model[part] = _renamed(model[part], before, after)
    content[MODEL] = _json(model, allow_nan=False)
    manifest["training"] = _renamed(manifest["training"], before, after)
    manifest["members"][MODEL] = {
        "bytes": len(content[MODEL]),
        "sha256": hashlib.sha256(content[MODEL]).hexdigest(),
    }
    members = {name: data for name, data in content.items() if name not in (MANIFEST, SIGNATURE)}
    with replacing(path) as beside:
        beside.write_bytes(_sealed({MANIFEST: _json(manifest), **members}))


def _renamed(part: Any, before: str, after: str) -> Any:
    """Plain data with one name in the place of another."""
    if isinstance(part, dict):
        return {
            after if key == before else key: _renamed(value, before, after) for key, value in part.items()
        }
    if isinstance(part, list):
        return [_renamed(value, before, after) for value in part]
    return after if part == before and isinstance(part, str) else part


def _opened(path: Path) -> dict[str, bytes]:
    """All members of the file, after its sum was checked; nothing is interpreted yet."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ModelFileError(f"{path}: larger than {LARGEST_FILE >> 20:,} MiB, which no model is")
        data = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror}") from error
    mark, digest = data[-len(_MARK) - _DIGITS : -_DIGITS], data[-_DIGITS:]
    if not data.startswith(b"PK\x03\x04") or (mark != _MARK and zipfile.is_zipfile(io.BytesIO(data))):
        raise ModelFileError(f"{path}: is not a deccaf model file")
    if mark != _MARK or hashlib.sha256(data[:-_DIGITS]).hexdigest().encode("ascii") != digest:
        raise ModelFileError(f"{path}: is damaged or was cut off (its check sum is wrong); copy it again")
    try:
        return _unzipped(path, data)
    except ModelFileError:
        raise
    except Exception as error:  # zipfile raises many kinds on forged archives
        raise ModelFileError(f"{path}: the archive cannot be read: {_words(error)}") from error


def _unzipped(path: Path, data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if len(set(names)) != len(names) or len(names) > MOST_MEMBERS:
            raise ModelFileError(f"{path}: the archive names members twice, or too many")
        if not {MANIFEST, MODEL} <= set(names):
            raise ModelFileError(f"{path}: {MANIFEST} or {MODEL} is missing; it is not a deccaf model file")
        odd = [name for name in names if not _inside(name)]
        if odd:
            raise ModelFileError(f"{path}: a member is called {odd[0]!r}, which no model file has")
        total = sum(entry.file_size for entry in entries)
        if total > LARGEST_CONTENT:
            raise ModelFileError(f"{path}: would unpack to {total >> 20:,} MiB, which no model needs")
        content = {}
        for entry in entries:
            with archive.open(entry) as member:
                content[entry.filename] = member.read(entry.file_size)
        return content


def _inside(name: str) -> bool:
    """Whether a name stays within the archive, wherever it would be unpacked."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not (name.startswith("/") or ".." in parts or "\\" in name or ":" in name)


def _manifest(path: Path, data: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(data)
        found, by = int(manifest["format"]), str(manifest["versions"]["deccaf"])
        members = {
            str(name): (int(about["bytes"]), str(about["sha256"]))
            for name, about in manifest["members"].items()
        }
    except Exception as error:
        raise ModelFileError(f"{path}: {MANIFEST} cannot be read: {_words(error)}") from error
    if found > FORMAT:
        raise ModelFileError(
            f"{path}: format {found}, written by deccaf {by}; this deccaf reads formats up to {FORMAT}: "
            "install a newer deccaf, or fit the model again"
        )
    if found < 1 or not members:
        raise ModelFileError(f"{path}: format {found} with {len(members)} member(s) was never written")
    return dict(manifest)


def _check_members(path: Path, manifest: Mapping[str, Any], content: Mapping[str, bytes]) -> None:
    listed, there = set(manifest["members"]), set(content) - {MANIFEST, SIGNATURE}
    if listed != there:
        odd = sorted(listed ^ there)[0]
        raise ModelFileError(f"{path}: manifest and archive disagree about {odd!r}")
    for name, about in manifest["members"].items():
        if hashlib.sha256(content[name]).hexdigest() != about["sha256"]:
            raise ModelFileError(f"{path}: {name} is not what the manifest says; the file was changed")


def _sealed(content: Mapping[str, bytes]) -> bytes:
    """A zip of the members, its comment the sum of all that stands before."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
        archive.comment = _MARK + b"0" * _DIGITS
    sealed = buffer.getvalue()[:-_DIGITS]
    return sealed + hashlib.sha256(sealed).hexdigest().encode("ascii")


def _taken_apart(value: Any, members: dict[str, bytes]) -> Any:
    """The same data with arrays and texts of trees moved to members of their own."""
    if isinstance(value, Mapping):
        return {str(name): _taken_apart(part, members) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_taken_apart(part, members) for part in value]
    if isinstance(value, np.ndarray):
        name = f"arrays/{sum(known.startswith('arrays/') for known in members)}.npy"
        members[name] = array_bytes(value)
        return {"$array": name, "type": value.dtype.name, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str) and value.startswith("tree\n"):
        name = f"trees/{sum(known.startswith('trees/') for known in members)}.txt"
        members[name] = trimmed(value).encode("ascii")
        return {"$trees": name}
    return value


def _put_together(model: Any, content: Mapping[str, bytes], number: int) -> dict[str, Any]:
    """The content of `model.json`, as the newest format has it, with arrays and trees in their places."""

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(part) for part in value]
        if not isinstance(value, dict):
            return value
        if "$array" in value:
            data = content[value["$array"]]
            if number == 1:
                return format_1.read_array(data, value["shape"])
            return read_array(data, value["type"], value["shape"])
        if "$trees" in value:
            text = content[value["$trees"]].decode("ascii")
            check_tree_text(text)
            return text
        return {name: filled(part) for name, part in value.items()}

    if not isinstance(model, dict):
        raise ModelFileError(f"{MODEL} holds no model")
    whole: dict[str, Any] = filled(model)
    return format_1.upgraded(whole) if number == 1 else whole


def _plain(data: bytes) -> Any:
    """JSON whose numbers are numbers."""

    def refused(number: str) -> float:
        raise ModelFileError(f"{MODEL} holds the number {number[:40]}")

    def finite(number: str) -> float:
        return value if math.isfinite(value := float(number)) else refused(number)

    return json.loads(data, parse_float=finite, parse_constant=refused)


def _signature(manifest: bytes, key: bytes) -> str:
    if not key:
        raise ModelFileError("the key is empty")
    return hmac.new(key, manifest, hashlib.sha256).hexdigest()


def _json(value: Any, *, allow_nan: bool = True) -> bytes:
    text = json.dumps(value, indent=1, allow_nan=allow_nan)  # order matters: it is that of the columns
    return text.encode("utf-8")


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
