"""Charts as SVG, written here: colours come from the style sheet, so they follow light and dark.

Every function gives markup that is safe to place in a page: names are escaped, all else are numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup, escape

from deccaf.data.amounts import amount
from deccaf.service.monitor.health import CalibrationPoint
from deccaf.service.reports.person_report import LearningPoint

_TALL = 26
"""Height of a row of a bar chart."""


@dataclass(frozen=True)
class ErrorBar:
    """Somebody's error rate with its 95 % interval; `rate` is None where no label has come."""

    name: str
    rate: float | None
    low: float
    high: float
    note: str
    odd: bool = False
    expected: float | None = None


def load_bar(used: int, decided: int, capacity: int | None, scale: int) -> Markup:
    """How much of somebody's capacity is used (light) and done (dark); widths compare between people."""
    room = max(scale, 1)
    limit = 100.0 * (used if capacity is None else capacity) / room
    label = f"{used} of {'unlimited' if capacity is None else capacity} used, {decided} decided"
    return _svg(
        100,
        6,
        label,
        _rect(0, 0, limit, 6, "room", 1.5),
        _rect(0, 0, 100.0 * used / room, 6, "used", 1.5),
        _rect(0, 0, 100.0 * decided / room, 6, "done", 1.5),
        stretch=True,
    )


def cost_bars(rows: Sequence[tuple[str, float | None, str]]) -> Markup:
    """Horizontal bars with their amounts: (name, cost, class)."""
    most = max([value for _, value, _ in rows if value is not None] or [1.0]) or 1.0
    bars = [
        _bar(name, amount(value), _part(0.0, (value or 0.0) / most, 4, 18, kind))
        for name, value, kind in rows
    ]
    return _bars("; ".join(f"{name}: {amount(value)}" for name, value, _ in rows), *bars)


def curve(
    points: Sequence[tuple[float, float]], here: tuple[float, float] | None, now: tuple[float, float]
) -> Markup:
    """A falling line of cost over capacity, where we stand, and where the sliders are."""
    width, height, left, low = 640, 232, 64, 206
    xs = [x for x, _ in points] + ([here[0]] if here else [])
    ys = [y for _, y in points] + ([here[1]] if here else []) + [now[1]]
    x_most, y_most = max(xs) or 1.0, max(ys) * 1.08 or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        return left + (width - left - 20) * x / x_most, low - (low - 16) * y / y_most

    parts = [_grid(y_most, left, width, low)]
    path = " ".join(
        f"{'M' if k == 0 else 'L'}{x:.1f} {y:.1f}" for k, (x, y) in enumerate(at(*p) for p in points)
    )
    parts.append(Markup('<path class="line" d="{}"/>').format(path))
    for x in sorted({round(x) for x, _ in points}):
        parts.append(_text(at(x, 0)[0], low + 18, f"{x} %", "tick", "middle"))
    parts += _mark(at(*now), "now", "today", low)
    label = f"Cost now {amount(now[1])}"
    if here is not None and here != now:
        parts += _mark(at(*here), "here", "what if", low)
        label += f", with the sliders {amount(here[1])}"
    return _svg(width, height, label, *parts)


def intervals(rows: Sequence[ErrorBar], most: float, reference: float | None = None) -> Markup:
    """Error rates with their 95 % intervals and a scale; the dashed line is the reference."""
    most = most or 1.0
    bars = []
    for row in rows:
        parts = [] if reference is None else [_mark_at(reference / most, 0, _TALL, "mean")]
        if row.rate is None:
            bars.append(_bar(row.name, "no labels yet", *parts))
            continue
        low, mid, high = (min(share / most, 1.0) for share in (row.low, row.rate, row.high))
        kind = "odd" if row.odd else "dot"
        if row.expected is not None:
            parts.append(_mark_at(min(row.expected / most, 1.0), 4, _TALL - 4, "expected"))
        parts += [
            Markup('<line class="{}-line" x1="{:.2f}%" x2="{:.2f}%" y1="13" y2="13"/>').format(
                kind, 100 * low, 100 * high
            ),
            Markup('<circle class="{}" cx="{:.2f}%" cy="13" r="5"/>').format(kind, 100 * mid),
        ]
        bars.append(_bar(row.name, f"{100 * row.rate:.1f} % {row.note}", *parts))
    label = "; ".join(f"{row.name} {100 * row.rate:.1f} %" for row in rows if row.rate is not None)
    return _bars(label or "no labels yet", *bars, _axis(most, lambda share: f"{100 * share:.3g} %"))


def calibration(points: Sequence[CalibrationPoint], as_text: Callable[[float], str] = amount) -> Markup:
    """What was expected (across) against what happened (up), with intervals; on the line is right."""
    if not points:
        return _svg(120, 120, "no labels yet", _text(60, 62, "no labels yet", "tick", "middle"))
    most = max(max(p.expected, p.high) for p in points) * 1.05 or 1.0
    left, top = 38, 8
    parts = [_rect(left, top, 120, 120, "plot", 0), _line(left, top + 120, left + 120, top, "mean")]
    for tick in _ticks(most, 2)[1:]:
        place = 120 * tick / most
        parts += [
            _line(left, top + 120 - place, left + 120, top + 120 - place, "grid"),
            _text(left - 4, top + 124 - place, as_text(tick), "tick tiny", "end"),
            _text(left + place, top + 134, as_text(tick), "tick tiny", "middle"),
        ]
    parts.append(_text(left - 4, top + 134, "0", "tick tiny", "end"))
    for p in points:
        x, low, mid, high = (120 * share / most for share in (p.expected, p.low, p.seen, p.high))
        bottom = top + 120
        parts += [
            _line(left + x, bottom - low, left + x, bottom - high, "dot-line"),
            Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="4"/>').format(left + x, bottom - mid),
        ]
    label = "; ".join(f"expected {as_text(p.expected)}, seen {as_text(p.seen)}" for p in points)
    return _svg(left + 130, top + 140, label, *parts)


def over_days(points: Sequence[tuple[int, float]], days: tuple[int, int], alert_at: float | None) -> Markup:
    """A measure over days, with a scale and the line from which it is an alert."""
    width, height, left, low, top = 240, 120, 34, 98, 10
    most = max([value for _, value in points] + [(alert_at or 0.0) * 1.15, 1e-9])
    across = max(days[1] - days[0], 1)

    def at(day: float, value: float) -> tuple[float, float]:
        return left + (width - left - 8) * (day - days[0]) / across, low - (low - top) * value / most

    parts = [
        _line(left, low, width - 8, low, "grid"),
        _text(left - 4, top + 8, f"{most:.2g}", "tick", "end"),
        _text(left - 4, low + 4, "0", "tick", "end"),
        _text(left, low + 17, _day(days[0]), "tick"),
        _text(width - 8, low + 17, _day(days[1]), "tick", "end"),
    ]
    if alert_at is not None:
        y = at(0, alert_at)[1]
        parts.append(_line(left, y, width - 8, y, "mean"))
    path = " ".join(
        f"{'M' if k == 0 else 'L'}{x:.1f} {y:.1f}" for k, (x, y) in enumerate(at(*p) for p in points)
    )
    parts.append(Markup('<path class="line thin" d="{}"/>').format(path))
    odd = alert_at is not None and points[-1][1] > alert_at
    x, y = at(*points[-1])
    parts.append(
        Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>').format("odd" if odd else "dot", x, y)
    )
    label = f"{len(points)} days, last {points[-1][1]:.2f}"
    return _svg(width, height, label if alert_at is None else f"{label}, alert at {alert_at:.2g}", *parts)


def day_bars(days: Sequence[tuple[int, int]]) -> Markup:
    """How many on each day, with the scale at the left."""
    width, height, left, low = 640, 200, 50, 170
    most = max([number for _, number in days] + [1])
    step = (width - left - 10) / max(len(days), 1)
    parts = []
    for number in sorted({0, -(-most // 2), most}):
        y = low - (low - 16) * number / most
        parts += [
            _line(left, y, width - 10, y, "grid"),
            _text(left - 8, y + 4, f"{number:,}", "tick", "end"),
        ]
    for place, (day, number) in enumerate(days):
        tall = (low - 16) * number / most
        parts.append(_rect(left + place * step + 3, low - tall, step - 6, tall, "ours", 2))
        if place % max(len(days) // 7, 1) == 0:
            parts.append(_text(left + (place + 0.5) * step, low + 20, _day(day), "tick", "middle"))
    label = "; ".join(f"{_day(day)}: {number}" for day, number in days if number) or "none"
    return _svg(width, height, label, *parts)


def learning_curve(points: Sequence[LearningPoint]) -> Markup:
    """The share of errors over blocks of decisions, with intervals and a scale."""
    width, height, left, low = 640, 220, 64, 180
    most = max(point.high for point in points) * 1.05 or 1.0
    parts = [_percent_grid(most, left, width, low)]
    xs = [left + 20 + (width - left - 60) * k / max(len(points) - 1, 1) for k in range(len(points))]

    def up(share: float) -> float:
        return low - (low - 16) * min(share, most) / most

    for x, point in zip(xs, points, strict=True):
        parts.append(_line(x, up(point.low), x, up(point.high), "dot-line"))
    path = " ".join(
        f"{'M' if k == 0 else 'L'}{x:.1f} {up(p.rate):.1f}"
        for k, (x, p) in enumerate(zip(xs, points, strict=True))
    )
    parts.append(Markup('<path class="line" d="{}"/>').format(path))
    for place, (x, point) in enumerate(zip(xs, points, strict=True)):
        parts.append(Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="5"/>').format(x, up(point.rate)))
        if place in (0, len(points) - 1):
            parts.append(_text(x, low + 22, _day(int(point.at // 86400)), "tick", "middle"))
    label = "; ".join(f"{100 * point.rate:.0f} % of {point.labelled}" for point in points)
    return _svg(width, height, label, *parts)


def heat(names: Sequence[str], share: Sequence[Sequence[float]]) -> Markup:
    """Who would disagree with whom: darker is more often."""
    size = len(names)
    cell, left, top = max(min(46, 640 // max(size + 3, 1)), 9), 150, 84
    values = [share[a][b] for a in range(size) for b in range(size) if a != b]
    least, reach = min(values), max(max(values) - min(values), 1e-9)
    small = "label small" if cell < 20 else "label"
    parts = []
    for a, name in enumerate(names):
        middle = a * cell + cell * 0.65
        parts.append(_text(left - 8, top + middle, name, small, "end"))
        turn = f"rotate(-35 {left + middle:.0f} {top - 8})"
        parts.append(
            Markup('<text class="{}" x="{:.0f}" y="{}" transform="{}">{}</text>').format(
                small, left + middle, top - 8, turn, name
            )
        )
        for b, other in enumerate(names):
            if a != b:
                shade = (share[a][b] - least) / reach
                label = f"{name} and {other}: {100 * share[a][b]:.0f} %"
                parts += _cell(left + b * cell, top + a * cell, cell, shade, share[a][b], label)
    return _svg(left + size * cell + 60, top + size * cell, f"Disagreement of {size} people", *parts)


def _cell(x: float, y: float, size: float, shade: float, value: float, label: str) -> list[Markup]:
    box = Markup(
        '<rect class="heat" x="{}" y="{}" width="{}" height="{}" fill-opacity="{:.2f}">'
        "<title>{}</title></rect>"
    ).format(x, y, size - 1, size - 1, 0.08 + 0.92 * shade, label)
    if size < 36:
        return [box]
    kind = "on-heat" if shade > 0.55 else "value"
    return [box, _text(x + size / 2, y + size * 0.62, f"{100 * value:.0f}", kind, "middle")]


def contributions(rows: Sequence[tuple[str, float]]) -> Markup:
    """What pushed an estimate up (right) or down (left)."""
    most = max((abs(value) for _, value in rows), default=1.0) or 1.0
    bars = []
    for name, value in rows:
        width, kind = abs(value) / most / 2, "up" if value > 0 else "down"
        part = _part(0.5 if value > 0 else 0.5 - width, width, 4, 18, kind)
        bars.append(_bar(name, f"{value:+.2f}", _mark_at(0.5, 0, _TALL, "mean"), part))
    return _bars("; ".join(f"{name} {value:+.2f}" for name, value in rows) or "nothing", *bars)


def drift_bars(rows: Sequence[tuple[str, float, bool]], limit: float) -> Markup:
    """Drift of each feature with a scale, and the line from which it is an alert."""
    most = max([value for _, value, _ in rows] + [limit * 1.3])
    bars = [
        _bar(
            name,
            f"{value:.2f}",
            _part(0.0, max(value / most, 0.002), 4, 18, "odd" if odd else "used"),
            _mark_at(limit / most, 0, _TALL, "mean"),
        )
        for name, value, odd in rows
    ]
    label = "; ".join(f"{name} {value:.2f}" for name, value, _ in rows)
    return _bars(label or "no cases yet", *bars, _axis(most, lambda value: f"{value:.3g}"))


def _bars(label: str, *rows: Markup) -> Markup:
    """Rows of a bar chart as text beside pictures: names and numbers have room at every width."""
    return Markup('<div class="bars" role="img" aria-label="{}">{}</div>').format(
        label, Markup("").join(rows)
    )


def _bar(name: str, value: str, *parts: Markup) -> Markup:
    return Markup(
        '<div class="bar"><span class="bar-name">{}</span>'
        '<svg class="chart track" width="100%" height="{}" aria-hidden="true">{}</svg>'
        '<span class="bar-value">{}</span></div>'
    ).format(name, _TALL, Markup("").join(parts), value)


def _axis(most: float, as_text: Callable[[float], str]) -> Markup:
    """The scale below the rows."""
    ticks = [
        Markup('<text class="tick" x="{:.2f}%" y="16" text-anchor="{}">{}</text>').format(
            100 * tick / most, "start" if not tick else "middle", as_text(tick)
        )
        for tick in _ticks(most, 4)
    ]
    return _bar("", "", *ticks)


def _part(start: float, width: float, top: float, height: float, kind: str) -> Markup:
    """A stretch of a row, in shares of its width."""
    return Markup('<rect class="{}" x="{:.2f}%" y="{}" width="{:.2f}%" height="{}" rx="2"/>').format(
        kind, 100 * start, top, max(100 * width, 0.0), height
    )


def _mark_at(share: float, top: float, bottom: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{:.2f}%" x2="{:.2f}%" y1="{}" y2="{}"/>').format(
        kind, 100 * share, 100 * share, top, bottom
    )


def _ticks(most: float, about: int) -> list[float]:
    """Round numbers from 0 to `most`, at most about so many steps."""
    step = 10.0 ** math.floor(math.log10(max(most, 1e-9) / about))
    step = next(s for s in (step, step * 2, step * 5, step * 10) if most / s <= about + 1e-9)
    return [k * step for k in range(int(most / step + 1e-9) + 1)]


def _grid(y_most: float, left: float, width: float, low: float) -> Markup:
    parts = []
    for tick in _ticks(y_most, 6):
        y = low - (low - 16) * tick / y_most
        parts += [_line(left, y, width - 20, y, "grid"), _text(left - 8, y + 4, amount(tick), "tick", "end")]
    return Markup("").join(parts)


def _percent_grid(most: float, left: float, width: float, low: float) -> Markup:
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if most / s <= 6)
    parts = []
    for k in range(int(most / step) + 1):
        y = low - (low - 16) * k * step / most
        parts += [
            _line(left, y, width - 20, y, "grid"),
            _text(left - 8, y + 4, f"{100 * k * step:.0f} %", "tick", "end"),
        ]
    return Markup("").join(parts)


def _day(number: int) -> str:
    """A day since 1970 as month and day."""
    return datetime.fromtimestamp(number * 86400, UTC).strftime("%m-%d")


def _mark(where: tuple[float, float], kind: str, word: str, low: float) -> list[Markup]:
    """A point with its word: today's below it, unless it would run into the scale."""
    x, y = where
    below = y + 24 if y + 24 < low else y - 30
    return [
        Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="6"/>').format(kind, x, y),
        _text(min(x, 590), y - 12 if kind == "here" else below, word, f"value {kind}-word", "middle"),
    ]


def _svg(width: float, height: float, label: str, *parts: Markup, stretch: bool = False) -> Markup:
    more = Markup(' preserveAspectRatio="none"') if stretch else Markup("")
    return Markup(
        '<svg class="chart" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}"{}>{}</svg>'
    ).format(width, height, label, more, Markup("").join(parts))


def _rect(x: float, y: float, width: float, height: float, kind: str, radius: float) -> Markup:
    return Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{}"/>').format(
        kind, x, y, max(width, 0.0), height, radius
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        kind, x1, y1, x2, y2
    )


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        kind, x, y, anchor, escape(words)
    )
