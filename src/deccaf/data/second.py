"""Which cases a second person decides too, blind to the first: the `[second]` table of a configuration.

.. code-block:: toml

    [second]
    share = 0.05
    above = 2.5
    disagreement = "third"
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SecondTable(BaseModel):
    """`[second]`: who gets a second opinion, and what happens where two people disagree."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    """Of the cases that people decide, by lot; 1: all of them."""
    above: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Also every case whose expected loss is above this."""
    disagreement: Literal["third", "lead"] = "third"
    """A third person decides, or the lead does."""

    @property
    def is_on(self) -> bool:
        """Whether any case gets a second opinion by this rule."""
        return self.share > 0 or self.above is not None
