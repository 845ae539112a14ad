"""A team's own log: what plans would have cost, against what one would do otherwise."""

from typing import TYPE_CHECKING

from deccaf.optional import lazy_names

if TYPE_CHECKING:
    from deccaf.backtest.report import backtest_report, calibration_table, cost_table
    from deccaf.backtest.run import Backtest, Options, backtest

__all__ = [
    "Backtest",
    "Options",
    "backtest",
    "backtest_report",
    "calibration_table",
    "cost_table",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "deccaf.backtest.report": "backtest_report calibration_table cost_table",
        "deccaf.backtest.run": "Backtest Options backtest",
    },
)
