"""Who gets which case.

`registry` holds the model in force and what it believes; `arrivals` routes cases that cannot wait;
`pricing` renews bid prices while a shift runs. For plans, `drafting` makes a `draft` from the cases that
wait (with the `lottery` of cases that are dealt at random), and `plans` keeps drafts and commits them.
"""
