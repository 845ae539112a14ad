"""The running work, watched.

Every minute `windows` reads the latest cases and labels, `checks` compares them with what the model expects,
`earlier` with the same weekday before, and `watching` adds labels up over days; `health` is what was found,
`alerts` keeps what came up and who has seen it, `limits` says from where on, `daily` keeps a row a day, and
`monitoring` runs them. `live_losses` adds up a running shift, `metrics` are for
Prometheus.
"""
