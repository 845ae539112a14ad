"""Addresses that configurations and leads name, and the secrets that go with them.

A secret itself stands in no configuration: that says in which environment variable or file it is.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from deccaf.errors import ConfigError


def web_address(text: str) -> SplitResult | None:
    """The parts of an address that can be asked: `http://` or `https://`, a host, a port that exists."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is no number
        return None
    return parts if usable and not any(character.isspace() for character in text) else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_secret(where: str, variable: str | None, file: str | None, folder: Path, shortest: int = 1) -> str:
    """What is in an environment variable, or in a file beside the configuration; no message holds it.

    `where` names the table and key of the configuration that ask for it.
    """
    if variable is not None:
        found = os.environ.get(variable, "").strip()
        if not found:
            raise ConfigError(f"{where}: {variable} is not set in the environment")
    else:
        path = folder / str(file)
        try:
            found = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "no text"
            raise ConfigError(f"{where}: {path} cannot be read: {why}") from None
        if not found:
            raise ConfigError(f"{where}: {path} is empty")
    if len(found) < shortest:
        raise ConfigError(f"{where}: its secret has fewer than {shortest} characters; make a longer one")
    return found
