"""What the service refuses, with the HTTP status that says so."""

from __future__ import annotations

from typing import Any

from deccaf.errors import DeccafError


class RefusedError(DeccafError):
    """A request that cannot be granted; becomes one problem+json answer."""

    def __init__(self, status: int, kind: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.more = more


class OvertakenError(RefusedError):
    """What a change rests on was changed before it had its locks; it is run again, and nobody hears of it."""

    def __init__(self) -> None:
        super().__init__(503, "overtaken", "somebody else changed the same case; try again")


def not_found(what: str, name: object) -> RefusedError:
    """404: there is no such thing."""
    return RefusedError(404, "not-found", f"there is no {what} {name!r}")


def conflict(kind: str, detail: str, **more: Any) -> RefusedError:
    """409: the ledger's state does not allow it."""
    return RefusedError(409, kind, detail, **more)


def invalid(kind: str, detail: str, **more: Any) -> RefusedError:
    """422: well-formed, but not usable."""
    return RefusedError(422, kind, detail, **more)
