"""The exact solver of the transportation problem: price, prune, solve, certify, widen.

`transport` stands on `scan` (passes over the matrix), `sample_prices` and `newton` (prices), `refine` (the
open cases), `flow` (OR-Tools), `duals` (shadow prices, certificate) and `out_of_time` (when time is up).
`general` holds CP-SAT and the HiGHS LP.
"""
