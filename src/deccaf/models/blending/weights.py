"""What each part of a blend weighs, by its held-out log-loss.

The blend's log-chances are a weighted sum of the parts' (a logarithmic opinion pool), normalised:

    log q(m) = sum over parts p of w_p log q_p(m) + constant,      w_p >= 0, sum of w_p = 1

The weights minimise the held-out log-loss, which is convex in them. A prior keeps them near the parts'
posterior chances as models, softmax of held-out log-likelihoods: on a short log the blend is almost the best
part alone, and only a long one can speak for a mixture. (Weights with a free sum also sharpen or flatten; we
tried them, and they bent to repair a prevalence that drifts, which is the calibration's task.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deccaf.data.log_odds import log_softmax, softmax

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_PRIOR_DEVIATION = 0.25
_NEGLIGIBLE = 0.05


def fit_weights(log_p: Array, target: Ints, weight: Array | None = None, *, drift: bool = False) -> Array:
    """Weights of the parts, from (parts, rows, K) held-out log-chances.

    With `drift` the classes may be more or less frequent than in training: a bias per class is fitted beside
    the weights and forgotten, so that a part is not preferred for being wrong about the frequencies by luck.
    """
    weight = np.ones(len(target)) if weight is None else weight
    parts, rows, classes = len(log_p), np.arange(len(target)), log_p.shape[2]
    prior = softmax(log_p[:, rows, target] @ weight)
    shifts = classes - 1 if drift else 0

    def cost(values: Array) -> tuple[float, Array]:
        w, bias = values[:parts], np.append(0.0, values[parts:])
        mixed = np.tensordot(w, log_p, axes=1) + (bias if drift else 0.0)
        log_q = log_softmax(mixed, axis=1)
        error = np.exp(log_q)
        error[rows, target] -= 1.0
        error *= weight[:, None]
        pull = np.append((w - prior) / _PRIOR_DEVIATION**2, values[parts:])
        loss = -(weight * log_q[rows, target]).sum() + pull @ (values - start) / 2
        slope = np.append(np.einsum("pik,ik->p", log_p, error), error[:, 1:].sum(axis=0)[:shifts])
        return float(loss), slope + pull

    from scipy.optimize import LinearConstraint, minimize

    start = np.append(prior, np.zeros(shifts))
    found = minimize(
        cost,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * parts + [(None, None)] * shifts,
        constraints=LinearConstraint(np.append(np.ones(parts), np.zeros(shifts))[None], 1.0, 1.0),
    )
    weights = np.clip(found.x[:parts] if np.isfinite(found.fun) else prior, 0.0, None)
    return np.asarray(weights / weights.sum())


def pruned_weights(log_p: Array, target: Ints, weight: Array | None = None, *, drift: bool = False) -> Array:
    """`fit_weights`, without parts that would hardly count: they only cost time at prediction."""
    weights = fit_weights(log_p, target, weight, drift=drift)
    keep = (weights >= _NEGLIGIBLE) | (weights == weights.max())
    out = np.zeros(len(weights))
    out[keep] = fit_weights(log_p[keep], target, weight, drift=drift)
    return out


def held_out_losses(
    names: Sequence[str], log_p: Array, blended: Array, target: Ints, weight: Array
) -> dict[str, float]:
    """Held-out log-loss of each part and of the blend."""
    rows = np.arange(len(target))
    losses = [float(np.average(-part[rows, target], weights=weight)) for part in (*log_p, blended)]
    return dict(zip((*names, "blend"), losses, strict=True))


def mix(log_p: list[Array], weights: Array) -> Array:
    """The blend's log-chances, from the parts' (..., K)."""
    total = sum(w * part for w, part in zip(weights, log_p, strict=True))
    return np.asarray(log_softmax(total, axis=-1))
