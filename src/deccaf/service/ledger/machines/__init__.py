"""Machines among the makers: they have no hours, claim nothing, and the service sends them their cases.

`seats` says who is a machine and what its place on a roster is; `standing` enters those of the configuration,
and keeps which of them answer; `sendings` keeps which cases are under way to a machine, and what comes of
them: a decision like anybody's, or a hand-back with its reason. `service.dispatching` does the sending.
"""
