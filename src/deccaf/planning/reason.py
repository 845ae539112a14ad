"""Why a case went to somebody, in a sentence; the same for the library, the command line and the pages."""

from __future__ import annotations

from collections.abc import Mapping


def reason(
    losses: Mapping[str, float | None],
    prices: Mapping[str, float],
    chosen: str,
    *,
    objective: Mapping[str, float] | None = None,
    drawn: float | None = None,
) -> str:
    """The reason, from everybody's expected loss (None: may not get the case) and price.

    `objective` is what the plan minimises, where that is not the expected loss. `drawn` is the chance of the
    choice where the case was dealt at random.
    """
    if drawn is not None:
        return (
            f"{chosen} was drawn by lot (chance {drawn:.1%}): a few cases are, so that people can be "
            "compared on a fair sample."
        )
    known = {maker: loss for maker, loss in losses.items() if loss is not None}
    aim = known if objective is None else {maker: float(objective[maker]) for maker in known}
    others = [maker for maker in known if maker != chosen]
    if chosen not in known:
        return f"{chosen} has it."
    if not others:
        return f"{chosen} has it; nobody else could have got it."
    best = min(others, key=aim.__getitem__)
    if aim[chosen] <= aim[best]:
        least = f"{chosen} has the least expected loss, {known[chosen]:.4f}"
        return f"{least}; next is {best} with {known[best]:.4f}."
    head = f"{best} would lose less, {known[best]:.4f} against {known[chosen]:.4f}"
    price, own = prices.get(best, 0.0), prices.get(chosen, 0.0)
    if price > own:
        return (
            f"{head}, but has no room for it: one more case for {best} is worth {price:.4f} elsewhere, "
            f"together {aim[best] + price:.4f} against {aim[chosen] + own:.4f} for {chosen}."
        )
    return f"{head}, but {chosen} has a minimum load to reach, or {best} may not get this case."
