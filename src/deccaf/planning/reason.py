"""Why a case went to somebody, in a sentence; the same for the library, the command line and the pages."""

from __future__ import annotations

from collections.abc import Mapping

from deccaf.planning.plan import Why

_BY_LOT = "a few cases are, so that people can be compared on a fair sample."


def reason(
    losses: Mapping[str, float | None],
    prices: Mapping[str, float],
    chosen: str,
    *,
    objective: Mapping[str, float] | None = None,
    runner_up: str | None = None,
    why: Why | None = None,
    drawn: float | None = None,
) -> str:
    """The reason, from everybody's expected loss (None: may not get the case) and price.

    `objective` is what the plan minimises, where that is not the expected loss, and `runner_up` who would get
    the case if the chosen one could not. `why` is the plan's own word; without it, losses and prices tell.
    `drawn` is the chance of the choice where the case was dealt at random.
    """
    if why == "lot" or drawn is not None:
        chance = "" if drawn is None else f" (chance {drawn:.1%})"
        return f"{chosen} was drawn by lot{chance}: {_BY_LOT}"
    known = {maker: loss for maker, loss in losses.items() if loss is not None}
    aim = known if objective is None else {maker: float(objective[maker]) for maker in known}
    total = {maker: aim[maker] + prices.get(maker, 0.0) for maker in aim}
    others = [maker for maker in known if maker != chosen]
    if chosen not in known:
        return f"{chosen} has it."
    if not others:
        return f"{chosen} has it; nobody else could have got it."
    best = min(others, key=aim.__getitem__)
    word = (
        "expected loss" if aim == known else "weighted chance of an error, which the paper's plan minimises"
    )
    if aim[chosen] <= aim[best]:
        after = best if runner_up is None else runner_up
        return f"{chosen} has the least {word}, {aim[chosen]:.4f}; next is {after} with {aim[after]:.4f}."
    if why in {None, "room"}:
        full = [
            maker for maker in others if aim[maker] < aim[chosen] and total[maker] >= total[chosen] - 1e-9
        ]
        first = min(full, key=aim.__getitem__, default=chosen)
        price = prices.get(first, 0.0)
        if price > prices.get(chosen, 0.0):
            return (
                f"{first} would lose less, {aim[first]:.4f} against {aim[chosen]:.4f}, but has no room for "
                f"it: one more case for {first} is worth {price:.4f} elsewhere, together {total[first]:.4f} "
                f"against {total[chosen]:.4f} for {chosen}."
            )
    head = f"{best} would lose less, {aim[best]:.4f} against {aim[chosen]:.4f}"
    if prices.get(chosen, 0.0) < 0:
        return f"{head}, but {chosen} has a minimum load to reach."
    if why == "constraint":
        return f"{head}, but may not get this case, or a constraint asks for {chosen}."
    return f"{head}, but {chosen} has a minimum load to reach, or {best} may not get this case."
