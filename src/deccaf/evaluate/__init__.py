"""Measures of decisions: what they cost, how they agree, how far an estimate can be trusted.

- `measures`: how well chances are calibrated, and how well they rank.
- `off_policy`, `propensity`: what another policy would have cost, estimated from a log.
- `agreement`, `fairness`: who errs where others do not; rates and costs by group.
- `inter_rater`: how far people agree on the same cases, and which cases to talk about.
- `audit_sample`: decisions drawn for a quality audit, and how good all decisions are by what it found.
- `audit`: the look at a history before anybody learns from it: `leaks`, `selective` (missing labels),
  `sentinels` (values that stand for "missing").
- `drift`: whether new cases look like those that a model has learned from.
- `people`: how everybody decided; `training`: what a model file remembers of its history.
- `trial`: a candidate beside today's practice, by lot, with intervals that hold at every look.
- `scorer`: decisions scored by their cost, for scikit-learn.
"""

from typing import TYPE_CHECKING

from deccaf.optional import lazy_names

if TYPE_CHECKING:
    from deccaf.evaluate.agreement import (
        agreement_table,
        complementarity,
        error_by_group,
        kappa_between,
        outcome_shares,
        outcome_table,
    )
    from deccaf.evaluate.fairness import by_group
    from deccaf.evaluate.leaks import Leak, Leaks, find_leaks
    from deccaf.evaluate.measures import (
        bootstrap,
        brier,
        ece,
        log_loss,
        measure,
        measure_by_expert,
        reliability,
        roc_auc,
        wilson,
    )
    from deccaf.evaluate.off_policy import Estimate, Logged, logged, mean_with_interval
    from deccaf.evaluate.people import People
    from deccaf.evaluate.propensity import Propensities, estimate_propensities
    from deccaf.evaluate.scorer import CostScorer, make_cost_scorer
    from deccaf.evaluate.selective import LabelsByDecision, MissingLabels, missing_labels_by_decision

__all__ = [
    "CostScorer",
    "Estimate",
    "LabelsByDecision",
    "Leak",
    "Leaks",
    "Logged",
    "MissingLabels",
    "People",
    "Propensities",
    "agreement_table",
    "bootstrap",
    "brier",
    "by_group",
    "complementarity",
    "ece",
    "error_by_group",
    "estimate_propensities",
    "find_leaks",
    "kappa_between",
    "log_loss",
    "logged",
    "make_cost_scorer",
    "mean_with_interval",
    "measure",
    "measure_by_expert",
    "missing_labels_by_decision",
    "outcome_shares",
    "outcome_table",
    "reliability",
    "roc_auc",
    "wilson",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "deccaf.evaluate.agreement": "agreement_table complementarity error_by_group kappa_between "
        "outcome_shares outcome_table",
        "deccaf.evaluate.fairness": "by_group",
        "deccaf.evaluate.leaks": "Leak Leaks find_leaks",
        "deccaf.evaluate.measures": "bootstrap brier ece log_loss measure "
        "measure_by_expert reliability roc_auc wilson",
        "deccaf.evaluate.off_policy": "Estimate Logged logged mean_with_interval",
        "deccaf.evaluate.people": "People",
        "deccaf.evaluate.scorer": "CostScorer make_cost_scorer",
        "deccaf.evaluate.propensity": "Propensities estimate_propensities",
        "deccaf.evaluate.selective": "LabelsByDecision MissingLabels missing_labels_by_decision",
    },
)
