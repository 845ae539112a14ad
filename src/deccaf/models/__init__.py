"""What is learned: P(truth | case), and how each expert decides.

- `CaseClassifier`: p[i, y], calibrated and unweighted, for every cost structure.
- `DecisionModel`: q[i, j, y, m], the chance that expert j says m on case i if the truth is y; a blend of
  `ShrunkenRates`, `PooledLogistic` and `BoostedDecisions`. Both are a `blending.blend.Blend` of parts.
- `protocols`: what a part or a method must be; `methods`: what a method learns from a history.
- `PaperClassifier`, `HumanExpertiseModel`, `OneVsAll`: the paper's models, the baselines of the benchmark.
- `reweighted`, `unweighted`: between plain probabilities and those of cost-weighted training.
- `ExpertScorer`: a LightGBM model for all experts at once.
- `parts_kept_in`: a fit that was stopped goes on where it was.

All have `fit`, `predict`, `to_dict` and `from_dict`; what is learned ends in an underscore. `docs/models.md`
says how they compare.
"""

from typing import TYPE_CHECKING

from deccaf.optional import lazy_names

if TYPE_CHECKING:
    from deccaf.models.blending.kept_parts import parts_kept_in
    from deccaf.models.cases.classifier import CaseClassifier, reweighted, unweighted
    from deccaf.models.decisions.boosted import BoostedDecisions
    from deccaf.models.decisions.model import DecisionModel
    from deccaf.models.decisions.pooled import PooledLogistic
    from deccaf.models.decisions.rates import ShrunkenRates
    from deccaf.models.paper.expertise import HumanExpertiseModel, OneVsAll
    from deccaf.models.paper.paper_classifier import PaperClassifier
    from deccaf.models.trees.expert_scorer import ExpertScorer

__all__ = [
    "BoostedDecisions",
    "CaseClassifier",
    "DecisionModel",
    "ExpertScorer",
    "HumanExpertiseModel",
    "OneVsAll",
    "PaperClassifier",
    "PooledLogistic",
    "ShrunkenRates",
    "parts_kept_in",
    "reweighted",
    "unweighted",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "deccaf.models.blending.kept_parts": "parts_kept_in",
        "deccaf.models.cases.classifier": "CaseClassifier reweighted unweighted",
        "deccaf.models.decisions.boosted": "BoostedDecisions",
        "deccaf.models.decisions.model": "DecisionModel",
        "deccaf.models.decisions.pooled": "PooledLogistic",
        "deccaf.models.decisions.rates": "ShrunkenRates",
        "deccaf.models.paper.expertise": "HumanExpertiseModel OneVsAll",
        "deccaf.models.paper.paper_classifier": "PaperClassifier",
        "deccaf.models.trees.expert_scorer": "ExpertScorer",
    },
)
