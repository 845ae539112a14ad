# ---
# jupyter: {jupytext: {text_representation: {extension: .py, format_name: percent}}}
# ---

# %% [markdown]
# # The paper's comparison, small
# *Cost-Sensitive Learning to Defer to Multiple Experts with Workload Constraints* compares ways to give cases to experts
# with limited time. All of it is `deccaf bench run` and `deccaf bench report` ([the benchmark](../docs/benchmark.md));
# this notebook draws its two main figures on a world that fits into seconds: expected cost by method, and whether
# the chances can be trusted.

# %%
import numpy as np
import pandas as pd

from deccaf import Costs, DeCCaF, expected_loss
from deccaf.assign import solve
from deccaf.evaluate.measures import reliability
from deccaf.report import canvas, reliability_picture

rng = np.random.default_rng(3)
names, n = [f"analyst_{j}" for j in range(1, 5)], 1200
x = rng.normal(size=(n, 3))
p_fraud = 1 / (1 + np.exp(-(1.4 * x[:, 0] - 1.6)))
truth = (rng.random(n) < p_fraud).astype(int)

# %% [markdown]
# Analysts as in the paper's simulator: the chance of an error depends on the case, by weights of their own (eq. 12).

# %%
weights = rng.normal(size=(4, 3))
lean = x @ weights.T
false_alarm = 1 / (1 + np.exp(-(-1.3 + lean)))
missed = 1 / (1 + np.exp(-(-1.3 - lean)))
q = np.stack([np.stack([1 - false_alarm, false_alarm], -1), np.stack([missed, 1 - missed], -1)], axis=2)
who = rng.integers(4, size=n)
said = (rng.random(n) < q[np.arange(n), who, truth, 1]).astype(int)
X = pd.DataFrame(x, columns=["a", "b", "c"])

# %% [markdown]
# ## Fit on the first three quarters, decide the last
# Every method gets the same roster: a fifth of the cases for each analyst, and for the machine.

# %%
costs = Costs.binary(false_positive=0.3, false_negative=1.0)
old, new = slice(0, 900), slice(900, n)
true = expected_loss(np.column_stack([1 - p_fraud, p_fraud])[new], q[new], costs.array())
roster = {"machine": 60, **dict.fromkeys(names, 60)}
cost = {}
for method in ("ova", "paper", "deccaf"):
    model = DeCCaF(costs, method=method)
    model.fit(X[old], truth[old], expert=np.array(names)[who[old]], decision=said[old])
    plan = model.assign(X[new], roster, intervals=False)
    maker = [["machine", *names].index(name) for name in plan.frame["maker"]]
    cost[method] = 100 * true[np.arange(300), maker].mean()
cost["random"] = 100 * true.mean()
cost["experts known exactly"] = 100 * solve(true, [60] * 5).objective / 300

# %%
best = min((name for name in cost if "known" not in name), key=cost.__getitem__)
figure, axes = canvas(f"{best} costs least of those that must learn: {cost[best]:.1f} per 100 cases")
bars = axes.barh(
    list(cost), list(cost.values()), color=["#7b8794", "#d9730d", "#2563a8", "#9aa5b1", "#12a37a"]
)
axes.bar_label(bars, [f"{value:.1f}" for value in cost.values()], padding=3)
axes.set_xlabel("Expected cost of errors per 100 cases")
figure

# %% [markdown]
# ## Can the chances be trusted?

# %%
chance = model.predict_proba(X[new])[:, 1]
trusted = reliability_picture({"deccaf": reliability(truth[new], chance, bins=5)}, what="fraud")
trusted
