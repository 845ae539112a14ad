# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # What an hour is worth, and how many to buy
# "Can we afford another reviewer? Can we afford not to?" The plan's prices answer for today, `staff` for next week.

# %%
import numpy as np
import pandas as pd

from deccaf import Costs, DeCCaF

rng = np.random.default_rng(2)
days = pd.bdate_range("2026-03-02", periods=15)
n = 15 * 24
opened = pd.Series(np.repeat(days, n // 15))
truth = (rng.random(n) < 0.3).astype(int)
cases = pd.DataFrame({"signal": rng.normal(size=n) + truth, "product": rng.choice(["card", "loan"], n)})
who = rng.choice(["ann", "bob", "cyd"], n)
good_at = {"ann": "card", "bob": "loan", "cyd": "nothing"}
right = np.where([good_at[name] == kind for name, kind in zip(who, cases["product"])], 0.95, 0.7)
said = np.where(rng.random(n) < right, truth, 1 - truth)
model = DeCCaF(
    Costs.binary(false_positive=25, false_negative=100, unit="EUR"),
    case_parts=("logistic",),
    decision_parts=("rates", "pooled"),
)
model.fit(cases, truth, expert=who, decision=said, time=opened)

# %% [markdown]
# ## Today: the price of one more case
# While somebody has room their next case saves nothing; when they are full it saves what the worst-served case loses.

# %%
today = cases[-24:]
for room in (2, 6, 12):
    plan = model.assign(today, {"ann": room, "bob": room})
    print(room, "cases each:", plan.summary.makers["price"].round(2).to_dict())

# %% [markdown]
# ## Next week: wages against errors
# Each past Monday stands for the next one. An hour of Ann costs 18, of Bob 14, of Cyd 8, and is time for four cases.

# %%
staffing = model.staff(
    cases,
    {"wage": {"ann": 18, "bob": 14, "cyd": 8}, "hours": 4, "minutes": 15, "kind": "product"},
    dates=opened,
)
staffing

# %%
staffing.hours

# %%
figure = staffing.plot()
figure

# %% [markdown]
# ## Whom to train in what
# What a week would save if somebody decided one kind of case as well as a colleague does.

# %%
staffing.training
