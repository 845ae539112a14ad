# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # From your own data to a backtest
# Would deccaf have saved anything on *your* past? Two tables are enough: the cases with what turned out, and who
# decided what. Here they are made up; put `pd.read_csv` in their place.

# %%
import numpy as np
import pandas as pd

from deccaf import History
from deccaf.backtest import Options
from deccaf.backtest.run import backtest
from deccaf.data.config import Config

rng = np.random.default_rng(1)
n = 1500
label = (rng.random(n) < 0.25).astype(int)
cases = pd.DataFrame(
    {
        "case_id": [f"{k:05}" for k in range(n)],
        "opened": pd.Timestamp("2026-01-05") + pd.to_timedelta(np.sort(rng.integers(0, 90, n)), unit="D"),
        "score": (rng.normal(size=n) + 1.2 * label).round(3),
        "channel": rng.choice(["web", "branch"], n),
        "label": label,
    }
)
expert = rng.choice(["ann", "bob", "cyd"], n)
right = np.where((cases["channel"] == "web") == (expert == "ann"), 0.93, 0.72)
log = pd.DataFrame(
    {
        "case_id": cases["case_id"],
        "expert_id": expert,
        "decision": np.where(rng.random(n) < right, label, 1 - label),
    }
)

# %% [markdown]
# ## What the columns are, and what errors cost
# The same as a `deccaf.toml` says; `deccaf init` writes one from your files.

# %%
config = Config.model_validate(
    {
        "columns": {"time": "opened", "label": "label"},
        "costs": {"false_positive": 20.0, "false_negative": 100.0, "unit": "EUR"},
        "model": {"case_parts": ["logistic"], "decision_parts": ["rates", "pooled"]},
    }
)
history = History.from_frames(cases, log, config)

# %% [markdown]
# ## The past, planned again
# The model learns from the first three quarters of the time and plans the last; what that would have cost is
# estimated from the log, with intervals, against the machine alone, random cases and what really happened.

# %%
found = backtest(history, config, Options(policies=("machine", "random", "deccaf")))
found

# %%
figure = found.plot()
figure

# %%
hours = found.plot("hours")
hours

# %% [markdown]
# `deccaf backtest` writes the same as a page, with what every number assumes
# ([reading a backtest](../docs/reading-the-report.md)).
