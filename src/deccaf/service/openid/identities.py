"""Who is let in because a provider vouches for them.

A session belongs to a key, and so does every line of the trail. Whoever signs in with an account of the house
gets a key as well, which no secret opens: one for what they are here, a lead or a certain person. Leads see
it among the keys, and revoke it like any other; then that account stays out.
"""

from __future__ import annotations

import sqlalchemy as sa

from deccaf.service.errors import RefusedError
from deccaf.service.ledger import people, trail
from deccaf.service.openid.settings import OpenIdSettings
from deccaf.service.store import sessions
from deccaf.service.store.keys import Actor, Identity, key_of

_Claims = dict[str, object]


def identity_of(claims: _Claims, settings: OpenIdSettings) -> Identity:
    """What the claims make of somebody here; refused where they make nothing of them."""
    role, person = settings.role_of(claims), settings.person_of(claims)
    if person is None:
        verified = " with email_verified" if settings.person_claim == "email" else ""
        detail = f"your account has no claim {settings.person_claim!r}{verified}, which says who you are here"
        raise RefusedError(403, "nobody", f"{detail}; whoever runs the provider can add it")
    if role is None:
        detail = (
            f"your account ({person}) has no role at this desk; whoever runs the provider can give you one"
        )
        raise RefusedError(403, "no-role", detail)
    expert = person if role == "reviewer" else None
    return Identity(str(claims["iss"]), str(claims["sub"]), person, role, expert)


def admit(connection: sa.Connection, identity: Identity, at: float) -> Actor:
    """Who acts from now on; people whom the desk does not know are not made up, they are refused."""
    if identity.expert is not None:
        known = {one.name: one.active for one in people.list_experts(connection)}
        if identity.expert not in known:
            detail = (
                f"nobody at this desk is called {identity.expert!r}; a lead can add you under People, or "
            )
            raise RefusedError(403, "unknown-person", detail + "your account be matched in [people]")
        if not known[identity.expert]:
            detail = f"{identity.expert} is out of use; a lead can put them back under People"
            raise RefusedError(403, "out-of-use", detail)
    actor, is_new = key_of(connection, identity, at)
    if is_new:
        more = {"key": actor.key_id, "role": actor.role, "by": identity.issuer}
        trail.record(connection, "key added", at, actor, None, None, actor.expert, **more)
    sessions.close_others(connection, identity, actor)
    return actor
