"""What a check found: drift, calibration, everybody's errors, how late labels come; and the alerts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

DAY = 86400.0


class CalibrationPoint(NamedTuple):
    """A group of cases: what was expected, what was seen, and its 95 % interval."""

    expected: float
    seen: float
    low: float
    high: float


@dataclass(frozen=True)
class Alert:
    """Something that a lead should look at: its kind, what was found, and what to do."""

    kind: str
    finding: str
    todo: str
    subject: str = ""


@dataclass(frozen=True)
class ExpertCheck:
    """One person's errors on fresh labels, against what the model expected of them on these very cases."""

    name: str
    labelled: int
    expected: float
    seen: float
    low: float
    high: float
    odd: bool
    days: int = 1
    """Days that the figures are of: more than one where the evidence took them."""


@dataclass(frozen=True)
class HealthReport:
    """What was found at one time."""

    at: float
    model: str | None = None
    cases: int = 0
    features: list[tuple[str, float, bool]] = field(default_factory=list)
    """Name, stability index, whether it is an alert; the largest first."""
    score: float | None = None
    score_odd: bool = False
    labels: int = 0
    truth_expected: float | None = None
    truth_seen: float | None = None
    truth_odd: bool = False
    truth_name: str = ""
    truth_labels: int = 0
    truth_days: int = 0
    """Labels, and days with labels, that an alert about the truth rests on."""
    bins: list[CalibrationPoint] = field(default_factory=list)
    """Calibration of the classifier."""
    experts: list[ExpertCheck] = field(default_factory=list)
    delay: float | None = None
    """Median seconds from a case's arrival to its label, of the latest labels."""
    late: float | None = None
    """The same for the slowest tenth."""
    seconds: float = 0.0
    """How long the check took."""
    longest_delay: float = 60 * DAY
    """Labels of the slowest tenth that take longer are an alert."""

    @property
    def alerts(self) -> list[Alert]:
        """Everything that a lead should look at, with people by the names that models know them by."""
        return self.alerts_with(str)

    def alerts_with(self, called: Callable[[str], str]) -> list[Alert]:
        """The same with people as they are called on pages; subjects stay as they are."""
        refit = "Look at where these cases come from; then refit the model."
        found = [
            Alert("drift", f"{name} no longer looks as it did in training (index {index:.2f})", refit, name)
            for name, index, odd in self.features
            if odd
        ]
        if self.score_odd:
            finding = f"the model's scores have moved since it was put in force (index {self.score:.2f})"
            found.append(Alert("drift", finding, refit, "score"))
        if self.truth_odd:
            finding = (
                f"{100 * (self.truth_seen or 0):.1f} % of {self.truth_labels} labels"
                f"{_over(self.truth_days)} are {self.truth_name}, "
                f"the model expected {100 * (self.truth_expected or 0):.1f} %"
            )
            found.append(Alert("calibration", finding, "Refit the model on the fresh labels.", "truth"))
        found += [
            Alert(
                "errors",
                f"{called(w.name)} was wrong on {100 * w.seen:.0f} % of {w.labelled} cases{_over(w.days)}, "
                f"{100 * w.expected:.0f} % was expected",
                f"Talk to {called(w.name)}; refit the model if it lasts.",
                w.name,
            )
            for w in self.experts
            if w.odd
        ]
        if self.late is not None and self.late > self.longest_delay:
            finding = f"a tenth of the labels take more than {self.late / DAY:.0f} days"
            found.append(
                Alert("labels", finding, "Ask where they are held up: models learn from labels.", "delay")
            )
        return found


def _over(days: int) -> str:
    """In how many days with labels."""
    return f" in {days} days" if days > 1 else ""
