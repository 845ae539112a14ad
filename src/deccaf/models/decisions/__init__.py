"""P(decision | case, truth, expert): the decision model, its parts, and the log that they learn from."""
