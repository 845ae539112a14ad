"""Background jobs: refits and backtests, in processes of their own.

`records` are the rows that jobs are, `worker` starts a process for one, `process` is that process,
`kinds` says which kinds there are and what each does. A kind is a module with a function `work` (`refit`,
`backtest`); both learn from the ledger's `learning` history.
"""
