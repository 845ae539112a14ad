"""Background jobs: refits and backtests in processes of their own."""
