"""A team's own log: what plans would have cost, against what one would do otherwise.

`options` says what may be chosen, `split` which cases are tested on and who was there, `policies` learns and
plans, `outcomes` says what plans would have decided, `desk` does that for every split and draw, here or on a
cluster, `kept` keeps what was learned from run to run, `results` puts the figures together, `verdict` says
what to make of them, `report` shows them, and `run.backtest` is the one entry.
"""

from typing import TYPE_CHECKING

from deccaf.optional import lazy_names

if TYPE_CHECKING:
    from deccaf.backtest.options import Options
    from deccaf.backtest.report import backtest_report, calibration_table, cost_table, write_backtest
    from deccaf.backtest.results import Backtest
    from deccaf.backtest.run import backtest
    from deccaf.backtest.verdict import Verdict

__all__ = [
    "Backtest",
    "Options",
    "Verdict",
    "backtest",
    "backtest_report",
    "calibration_table",
    "cost_table",
    "write_backtest",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "deccaf.backtest.options": "Options",
        "deccaf.backtest.report": "backtest_report calibration_table cost_table write_backtest",
        "deccaf.backtest.results": "Backtest",
        "deccaf.backtest.run": "backtest",
        "deccaf.backtest.verdict": "Verdict",
    },
)
