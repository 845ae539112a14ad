"""Files in forms: which was chosen, and what it is called."""

from __future__ import annotations

from starlette.datastructures import FormData, UploadFile

from deccaf.service.errors import invalid


def file_of(form: FormData) -> UploadFile:
    """The file of a form, or a refusal that says to choose one."""
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise invalid("no-file", "choose a CSV or parquet file first")
    return file


def file_name(form: FormData) -> str:
    """Its name, as it may be shown."""
    return "".join(ch for ch in file_of(form).filename or "" if ch.isprintable())[:200]


def file_suffix(name: str) -> str:
    """How it is read."""
    return ".parquet" if name.lower().endswith(".parquet") else ".csv"
