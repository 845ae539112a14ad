"""A team's own log: what plans would have cost, against what one would do otherwise.

`options` says what may be chosen, `split` which cases are tested on and who was there, `policies` learns and
plans, `outcomes` says what plans would have decided, `results` puts the figures together, `verdict` says what
to make of them, `report` shows them, and `run.backtest` is the one entry.
"""
