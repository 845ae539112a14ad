"""How each feature is cut into bins, in the order of the chain."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spec:
    """How a feature is cut into bins and coded."""

    name: str
    bins: int = 24  # about how many, for features with intervals
    cuts: tuple[float, ...] = ()  # borders between segments of the range
    levels: tuple[float, ...] = ()  # one bin per level instead of intervals
    degree: int = 3  # of the polynomials of the rank inside a large segment
    one_hot: bool = False


def level_range(first: int, last: int, *extra: float) -> tuple[float, ...]:
    """Whole numbers from `first` to `last`, after the extra levels."""
    return (*extra, *map(float, range(first, last + 1)))


BINARY = (0.0, 1.0)
# The order is the order of the chain. Cuts stand in the valleys between the modes of the sample.
SPECS = (
    Spec("velocity_4w", bins=40, degree=4, one_hot=True),
    Spec("velocity_24h"),
    Spec("velocity_6h"),
    Spec("zip_count_4w"),
    Spec("customer_age", levels=tuple(10.0 * k for k in range(1, 10)), one_hot=True),
    Spec("date_of_birth_distinct_emails_4w", levels=level_range(0, 39), degree=3),
    Spec("housing_status", one_hot=True),
    Spec("employment_status", one_hot=True),
    Spec("income", levels=tuple(0.1 * k for k in range(1, 10)), one_hot=True),
    Spec("current_address_months_count", bins=28, cuts=(-0.5, 23.5, 215.5)),
    Spec("prev_address_months_count", bins=40, cuts=(-0.5, 16.5, 40.5, 75.5, 135.5)),
    Spec("payment_type", one_hot=True),
    Spec("intended_balcon_amount", bins=30, cuts=(-2.4, 0.08, 46.0, 60.0), degree=2),
    Spec("bank_months_count", levels=level_range(1, 32, -1.0), cuts=(0.0, 4.5, 12.5, 23.5), degree=2),
    Spec("bank_branch_count_8w", bins=30, cuts=(0.5, 1.5, 2.5, 26.5, 130.5, 430.5, 1100.5), degree=2),
    Spec("credit_risk_score"),
    Spec(
        "proposed_credit_limit",
        levels=(190.0, 200.0, 210.0, 490.0, 500.0, 510.0, 990.0, 1000.0, 1500.0, 1900.0, 2000.0, 2100.0),
        one_hot=True,
    ),
    Spec("has_other_cards", levels=BINARY, one_hot=True),
    Spec("phone_mobile_valid", levels=BINARY, one_hot=True),
    Spec("phone_home_valid", levels=BINARY, one_hot=True),
    Spec("email_is_free", levels=BINARY, one_hot=True),
    Spec("device_os", one_hot=True),
    Spec("keep_alive_session", levels=BINARY, one_hot=True),
    Spec("source", one_hot=True),
    Spec("device_distinct_emails_8w", levels=(-1.0, 0.0, 1.0, 2.0), one_hot=True),
    Spec("session_length_in_minutes", cuts=(0.0,)),
    Spec("name_email_similarity", bins=28, cuts=(0.96,)),
    Spec("days_since_request", cuts=(0.1,)),
    Spec("foreign_request", levels=BINARY, one_hot=True),
)
