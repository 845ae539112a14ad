"""Who would get cases that are moved, and what that costs by the losses on record (no database)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from deccaf.service.ledger.assignments import Live, Reason
from deccaf.service.ledger.desk import Desk
from deccaf.service.ledger.placing import ToPlace

NOBODY = "nobody else has room"


@dataclass(frozen=True)
class Holding:
    """A case in somebody's queue, why they have it, and who may not get it."""

    live: Live
    reason: Reason
    excluded: tuple[str, ...] = ()

    def to_place(self) -> ToPlace:
        """The case as `placing` takes it."""
        live, why = self.live, self.reason
        losses = {maker: float(loss) for maker, loss in why.losses.items() if loss is not None}
        aim = why.objective
        aims = None if aim is None else {maker: float(v) for maker, v in aim.items() if v is not None}
        return ToPlace(live.case_id, losses, live.machine_says, live.model_id, self.excluded, aims)


@dataclass(frozen=True)
class Move:
    """A case that can be moved, with its expected loss before and after."""

    holding: Holding
    maker: str
    before: float
    after: float

    @property
    def case_id(self) -> str:
        """Which case."""
        return self.holding.live.case_id


@dataclass(frozen=True)
class Refusal:
    """A case that cannot be moved, and why."""

    case_id: str
    why: str


@dataclass(frozen=True)
class Weighed:
    """What a move of many cases comes to."""

    moves: list[Move]
    refused: list[Refusal]

    @property
    def before(self) -> float:
        """Expected loss of the cases that can be moved, as they are now."""
        return sum(move.before for move in self.moves)

    @property
    def after(self) -> float:
        """The same after the move."""
        return sum(move.after for move in self.moves)

    def loads(self) -> dict[str, int]:
        """How many cases everybody would get."""
        found: dict[str, int] = {}
        for move in self.moves:
            found[move.maker] = found.get(move.maker, 0) + 1
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def and_also(self, others: Iterable[Weighed]) -> Weighed:
        """Together with those of other shifts."""
        parts = [self, *others]
        return Weighed([m for part in parts for m in part.moves], [r for part in parts for r in part.refused])


def weigh(at_desk: Desk, holdings: Sequence[Holding], to: str | None) -> Weighed:
    """Give each case to `to`, or (None) to the least loss + price among the others with room.

    Room that a case leaves behind is not given out again in the same move.
    """
    moves: list[Move] = []
    refused: list[Refusal] = []
    room = at_desk.room.copy()
    for holding in holdings:
        live = holding.live
        found = _place_for(at_desk, room, holding, to)
        if isinstance(found, str):
            refused.append(Refusal(live.case_id, found))
            continue
        room[found] -= 1
        maker = at_desk.makers[found]
        moves.append(Move(holding, maker, live.expected_loss, float(holding.reason.losses[maker] or 0.0)))
    return Weighed(moves, refused)


def _place_for(at_desk: Desk, room: np.ndarray, holding: Holding, to: str | None) -> int | str:
    """The position of who gets the case, or why it stays where it is."""
    if not at_desk.is_open:
        return "its shift is closed"
    item, holder = holding.to_place(), holding.live.maker
    if to is None:
        aim = at_desk.row(item.objective or item.losses, (*item.excluded, holder))
        bids = np.where((room > 0) & np.isfinite(aim), aim + at_desk.prices, np.inf)
        best = int(bids.argmin())
        return best if np.isfinite(bids[best]) else NOBODY
    if to == holder:
        return f"{to} has it already"
    if to not in at_desk.makers:
        return f"{to} is not on the roster of its shift"
    if to in item.excluded:
        return f"{to} may not get it"
    if to not in item.losses:
        return f"what {to} would cost is not on record for it"
    position = at_desk.makers.index(to)
    return position if room[position] > 0 else f"{to} has no room"
