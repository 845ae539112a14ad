"""The file of `deccaf serve --openid`: which provider, and what its claims mean at this desk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from deccaf.addresses import is_loopback, read_secret, web_address
from deccaf.data.config import Table, read_toml

BACK = "/sign-in/openid/back"
"""Where the provider sends people back to; registered there behind the address of the desk."""


class RolesTable(Table):
    """The `[roles]` table: values of the role claim, by what they allow here."""

    lead: list[str] = Field(default_factory=list)
    reviewer: list[str] = Field(default_factory=list)


class OpenIdSettings(Table):
    """The whole file."""

    issuer: str
    client_id: str = Field(min_length=1)
    client_secret_file: str | None = None
    client_secret_variable: str | None = None
    address: str
    """Where browsers reach the desk; the header of a request could say anything."""
    scopes: list[str] = Field(default_factory=lambda: ["openid", "profile", "email"])
    button: str = Field("Sign in with your account", min_length=1, max_length=80)
    person_claim: str = "preferred_username"
    role_claim: str | list[str] = "groups"
    """A claim, or the way to one inside of others: `["realm_access", "roles"]`."""
    roles: RolesTable
    people: dict[str, str] = Field(default_factory=dict)
    """What the person claim says, and the name of that person at the desk, where the two differ."""

    @field_validator("issuer", "address")
    @classmethod
    def _safe(cls, value: str) -> str:
        if not is_safe(value):
            raise ValueError("expected https://..., or http:// on this machine")
        return value

    @field_validator("scopes")
    @classmethod
    def _openid(cls, value: list[str]) -> list[str]:
        if "openid" not in value:
            raise ValueError('without the scope "openid" there is no id token')
        return value

    @model_validator(mode="after")
    def _whole(self) -> OpenIdSettings:
        if (self.client_secret_file is None) == (self.client_secret_variable is None):
            raise ValueError(
                "give client_secret_file or client_secret_variable: one says where the secret is"
            )
        if not self.roles.lead and not self.roles.reviewer:
            raise ValueError("[roles] names nobody: give values of the role claim for lead or reviewer")
        both = sorted(set(self.roles.lead) & set(self.roles.reviewer))
        if both:
            raise ValueError(f"[roles] {both[0]!r} is both lead and reviewer")
        return self

    @property
    def back(self) -> str:
        """The address that the provider sends people back to."""
        return self.address.rstrip("/") + BACK

    @property
    def is_encrypted(self) -> bool:
        """Whether browsers reach the desk by https."""
        return self.address.startswith("https://")

    def client_secret(self, folder: Path) -> str:
        """The secret, from where the file in `folder` says; it is never in the file itself."""
        return read_secret("client secret", self.client_secret_variable, self.client_secret_file, folder)

    def role_of(self, claims: dict[str, Any]) -> str | None:
        """What somebody may do; whoever is a lead and a reviewer is a lead. None: nothing."""
        path = [self.role_claim] if isinstance(self.role_claim, str) else self.role_claim
        found: Any = claims
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        values = set(found if isinstance(found, list) else [found]) if _plain(found) else set()
        if values & set(self.roles.lead):
            return "lead"
        return "reviewer" if values & set(self.roles.reviewer) else None

    def person_of(self, claims: dict[str, Any]) -> str | None:
        """Who somebody is at the desk; None: the provider does not say, or has not looked."""
        found = claims.get(self.person_claim)
        if not isinstance(found, str) or not found.strip():
            return None
        if self.person_claim == "email" and claims.get("email_verified") is not True:
            return None
        return self.people.get(found, found)


def read_settings(path: str | Path) -> OpenIdSettings:
    """The file, checked."""
    return read_toml(path, OpenIdSettings)


def is_safe(address: str) -> bool:
    """Whether nobody on the way can read or change what is sent there."""
    parts = web_address(address)
    if parts is None or parts.query or parts.fragment:
        return False
    return parts.scheme == "https" or is_loopback(str(parts.hostname))


def _plain(found: Any) -> bool:
    return isinstance(found, str) or (isinstance(found, list) and all(isinstance(v, str) for v in found))
