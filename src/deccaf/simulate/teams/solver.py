"""The logits that give each expert exactly the error rates that were asked for.

On the cases of one truth, mean sigmoid(b + z) rises with b from 0 to 1, so for every target in between there
is exactly one b (the paper's appendix, "Controlling Expert Performance"). Chandrupatla's bracketing method
finds it for all experts at once, and the bracket needs no search: with b = logit(target) - max z no case can
exceed the target, with b = logit(target) - min z none can stay below.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize.elementwise import find_root
from scipy.special import expit, logit, logsumexp

from deccaf.errors import SolverError

Array = NDArray[np.float64]

TOLERANCE = 1e-10
_SWEEPS = 500


def solve_shift(z: Array, target: Array) -> Array:
    """b[j] with mean_i sigmoid(b[j] + z[j, i]) = target[j], for all experts j at once."""

    def excess(b: Array, expert: NDArray[np.float64]) -> Array:
        rows = expert.astype(np.int64)
        return np.asarray(expit(b[:, None] + z[rows]).mean(axis=1) - target[rows])

    # One more on either side: without it a constant z has an empty bracket.
    low = logit(target) - z.max(axis=1) - 1.0
    high = logit(target) - z.min(axis=1) + 1.0
    experts = np.arange(len(z), dtype=np.float64)
    found = find_root(excess, (low, high), args=(experts,), tolerances={"fatol": TOLERANCE * 1e-4})
    return np.asarray(found.x, np.float64)


def solve_intercepts(logits: Array, truth: int, rates: Array) -> Array:
    """Intercepts (J, K) of the decisions on cases of one truth; 0 for the right one.

    `logits[j, m, i]` is what case i adds to expert j's logit of decision m, `rates[j, m]` the wanted share of
    decision m. With two classes there is one unknown. With more, the wrong decisions are solved in turn until
    all rates are met: each turn minimises the same convex function (mean log-sum-exp - rates . intercepts) in
    one coordinate, so the turns converge to its only minimum.
    """
    experts, classes, _ = logits.shape
    intercepts = np.zeros((experts, classes))
    wrong = [m for m in range(classes) if m != truth]
    for _ in range(_SWEEPS):
        for m in wrong:
            others = [k for k in range(classes) if k != m]
            rest = logsumexp(logits[:, others] + intercepts[:, others, None], axis=1)
            intercepts[:, m] = solve_shift(logits[:, m] - rest, rates[:, m])
        miss = float(np.abs(_shares(logits, intercepts)[:, wrong] - rates[:, wrong]).max(initial=0.0))
        if miss <= TOLERANCE:
            return intercepts
    raise SolverError(
        f"error rates missed by {miss:.2g} after {_SWEEPS} rounds; move the targets off 0 and 1"
    )


def _shares(logits: Array, intercepts: Array) -> Array:
    shifted = logits + intercepts[:, :, None]
    shifted -= shifted.max(axis=1, keepdims=True)
    np.exp(shifted, out=shifted)
    return np.asarray((shifted / shifted.sum(axis=1, keepdims=True)).mean(axis=2))
