"""Pages about what models learn from, and about models before they are in force.

`past` brings histories from elsewhere in, `lesson` asks what columns are and what errors cost, `candidate`
shows a version beside the one in force, `trying_out` lets one run beside it.
"""
