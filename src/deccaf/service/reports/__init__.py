"""What people want to know of the work, straight from the ledger.

`shift_report` (a shift and its cost), `expert_report` (everybody's errors), `person_report` (one person),
`team_report` (calibration and disagreement), `model_report` (versions while in force),
`letting_report` (rejects let through by lot), `what_if` (the day with other capacities),
`next_week` (how many hours of whom), `installation` (what is set up).
"""
