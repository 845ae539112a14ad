"""What people want to know of the running work.

Reports, straight from the ledger: `shift_report` (a shift and its cost, with `live_losses`), `expert_report`
(everybody's errors), `team_report` (calibration and disagreement), `model_report` (versions while in force),
`what_if` (the day with other capacities), `installation` (what is set up), `metrics` (for Prometheus).

Checks, every minute: `windows` reads the latest cases and labels, `checks` compares them with what the model
expects, `health` is what was found, `alerts` keeps what came up, `monitoring` runs them.
"""
