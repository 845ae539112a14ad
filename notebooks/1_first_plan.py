# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # A first plan
# A team of three has decided 600 cases, one person each; later it turned out who was right. Forty new cases
# came in this morning, and everybody has time for a few. Who decides which, and what may the machine decide alone?

# %%
import numpy as np
import pandas as pd

from deccaf import Costs, DeCCaF

rng = np.random.default_rng(0)
n = 640
truth = (rng.random(n) < 0.3).astype(int)  # 1: fraud
cases = pd.DataFrame(
    {"signal": rng.normal(size=n) + truth, "product": rng.choice(["card", "loan"], n)},
    index=pd.Index([f"case {k}" for k in range(n)], name="case"),
)
who = rng.choice(["ann", "bob", "cyd"], n)
good_at = {"ann": "card", "bob": "loan", "cyd": "nothing"}
right = np.where([good_at[name] == kind for name, kind in zip(who, cases["product"])], 0.95, 0.7)
said = np.where(rng.random(n) < right, truth, 1 - truth)

# %% [markdown]
# ## Learn
# A missed fraud costs 100, a bothered customer 25. Nothing else has to be said.

# %%
past, today = cases[:600], cases[600:]
model = DeCCaF(Costs.binary(false_positive=25, false_negative=100, unit="EUR"))
model.fit(past, truth[:600], expert=who[:600], decision=said[:600])
model

# %%
people = model.plot_people()
people

# %% [markdown]
# ## Plan
# Ann has time for ten cases, Bob for ten, Cyd for five; the machine has no limit.

# %%
plan = model.assign(today, {"ann": 10, "bob": 10, "cyd": 5})
plan

# %%
figure = plan.plot()
figure

# %% [markdown]
# Why does a case go where it goes? Everybody's expected loss and price are compared, and the least wins.

# %%
model.explain(today, plan, case=today.index[0])

# %% [markdown]
# And if Bob were ill?

# %%
answer = model.what_if(today, {"ann": 10, "bob": 10, "cyd": 5}, {"bob": "0"})
print(f"without Bob the day costs {-answer.saves:.0f} EUR more; {answer.moved} cases go to somebody else")
