# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # Several machines and people
# A desk has two analysts, a vendor's score and a language model. Each machine has its errors and its price. Which cases
# should each get, and when is it worth asking a machine first?

# %%
import numpy as np
import pandas as pd

from deccaf import Costs, DeCCaF

rng = np.random.default_rng(4)
n = 1200
truth = (rng.random(n) < 0.3).astype(int)  # 1: fraud
kind = rng.choice(["card", "loan"], n)
cases = pd.DataFrame(
    {"signal": rng.normal(size=n) + 0.8 * truth, "product": kind, "tokens": rng.integers(100, 900, n)},
    index=pd.Index([f"case {k}" for k in range(n)], name="case"),
)
right = {  # how often each is right, by kind of case
    "ann": np.where(kind == "card", 0.95, 0.75),
    "bob": np.where(kind == "loan", 0.95, 0.75),
    "vendor": np.where(kind == "card", 0.85, 0.6),
    "llm": np.full(n, 0.8),
}
said = {name: np.where(rng.random(n) < chance, truth, 1 - truth) for name, chance in right.items()}

# %% [markdown]
# ## The log
# One analyst saw each past case, by lot. The machines ran beside them on all of them.

# %%
person = rng.choice(["ann", "bob"], n)
by_people = np.where(person == "ann", said["ann"], said["bob"])
log = pd.DataFrame(
    {
        "case_id": np.tile(cases.index, 3),
        "expert_id": np.concatenate([person, np.repeat(["vendor", "llm"], n)]),
        "decision": np.concatenate([by_people, said["vendor"], said["llm"]]),
    }
)
past, today = cases[:1100], cases[1100:]

# %% [markdown]
# ## Learn, with a price for every answer
# A missed fraud costs 100, a bothered customer 25, an analyst's look 3. The vendor takes 0.50 for an answer, the language
# model something for every token. `machine` is deccaf's own classifier, which is free.

# %%
model = DeCCaF(
    Costs.binary(false_positive=25, false_negative=100, unit="EUR"),
    review_cost=3.0,
    makers={
        "vendor": {"kind": "machine", "price": 0.5},
        "llm": {"kind": "machine", "price": {"fixed": 0.05, "column": "tokens", "rate": 0.001}},
    },
    case_parts=("logistic",),
    decision_parts=("rates", "pooled"),
)
model.fit(past, truth[:1100], decisions=log[log["case_id"].isin(past.index)])
plan = model.assign(today, {"ann": 15, "bob": 15})
plan

# %% [markdown]
# ## Ask first, then decide who
# An answer is worth its price where it changes who decides, or what is decided. The plan says on which cases to ask whom.

# %%
advised = model.assign(today, {"ann": 15, "bob": 15}, advice=True)
print(*advised.summary.advice.lines("EUR"), sep="\n")
ask = advised.table[advised.table["advice"].notna()]
ask[["case_id", "maker", "advice", "advice_saves"]].head()

# %% [markdown]
# Once the answers are there, the same call plans with them, and keeps everybody's limits.

# %%
place = cases.index.get_indexer(ask["case_id"])
answers = pd.DataFrame(
    {
        "case_id": ask["case_id"].to_numpy(),
        "expert_id": ask["advice"].to_numpy(),
        "decision": [said[name][k] for name, k in zip(ask["advice"], place)],
    }
)
then = model.assign(today, {"ann": 15, "bob": 15}, answers=answers)
figure = then.plot()
figure
