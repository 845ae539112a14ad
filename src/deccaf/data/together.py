"""How errors go together: makers who share what makes a case hard are wrong on the same cases.

Given the truth and the features each maker errs with a chance of their own. That two of them err on the same
case is told by one number, the *correlation* r of their latent difficulties (a Gaussian copula): maker j is
wrong where a standard normal Z_j lies below the quantile of j's chance of error, and Z_j, Z_k have
correlation r. With r = 0 the errors are independent; with r = 1 the one who errs less often errs only where
the other does. Nobody's own chance of error changes.

Of three makers the latent parts are those of one shared difficulty of the case, u ~ N(0, 1), with loadings
that meet the three correlations as nearly as possible.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]

CLOSEST = 0.9995
"""The largest correlation: copies of one machine."""
_TINY = 1e-9
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_U = np.linspace(-4.8, 4.8, 49)
_MASS = np.exp(-0.5 * _U**2) / np.exp(-0.5 * _U**2).sum()


def both_wrong(first: Array, second: Array, r: Array) -> Array:
    """The chance that both err, from each one's chance of error: Phi_2(a, b; r) = Phi(a) Phi(b) + an
    integral.

    The integral of the density over the correlation from 0 to r (Drezner and Wesolowsky), by 16 points.
    """
    a, b = (scipy.special.ndtri(np.clip(chance, _TINY, 1.0 - _TINY)) for chance in (first, second))
    angle = np.arcsin(np.clip(r, -CLOSEST, CLOSEST))
    total = np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(angle)))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        sine = np.sin(angle * (node + 1.0) / 2.0)
        total += weight * np.exp((a * b * sine - (a * a + b * b) / 2.0) / (1.0 - sine * sine))
    joint = first * second + angle / 2.0 * total / (2.0 * np.pi)
    return np.clip(joint, np.maximum(first + second - 1.0, 0.0), np.minimum(first, second))


def all_wrong(errors: Array, r: Array) -> Array:
    """The chance that all of three err; `errors` is (..., 3), `r` (..., 3) of the pairs 01, 02 and 12."""
    loads = _loadings(r)
    cut, spread = scipy.special.ndtri(np.clip(errors, _TINY, 1.0 - _TINY)), np.sqrt(1.0 - loads**2)
    total = np.zeros(errors.shape[:-1])
    for u, mass in zip(_U, _MASS, strict=True):
        total += mass * scipy.special.ndtr((cut - loads * u) / spread).prod(axis=-1)
    return total


def patterns(errors: Array, r: Array) -> Array:
    """(..., 2 ** k): the chance of every pattern of right (0) and wrong (1) of k makers, the first makers'
    bit highest.

    `errors` is (..., k) with k of 1 to 3, `r` (..., pairs) of the pairs in the order of
    `itertools.combinations`.
    """
    k = errors.shape[-1]
    if k == 1:
        return np.stack([1.0 - errors[..., 0], errors[..., 0]], axis=-1)
    a, b = errors[..., 0], errors[..., 1]
    ab = both_wrong(a, b, r[..., 0])
    if k == 2:
        return np.stack([1.0 - a - b + ab, b - ab, a - ab, ab], axis=-1)
    c = errors[..., 2]
    ac, bc = both_wrong(a, c, r[..., 1]), both_wrong(b, c, r[..., 2])
    low = np.maximum.reduce([ab + ac - a, ab + bc - b, ac + bc - c, np.zeros_like(a)])
    high = np.minimum.reduce([ab, ac, bc, 1.0 - a - b - c + ab + ac + bc])
    abc = np.clip(all_wrong(errors, r), np.minimum(low, high), high)
    cells = [
        1.0 - a - b - c + ab + ac + bc - abc,
        c - ac - bc + abc,
        b - ab - bc + abc,
        bc - abc,
        a - ab - ac + abc,
        ac - abc,
        ab - abc,
        abc,
    ]
    found = np.maximum(np.stack(cells, axis=-1), 0.0)
    return np.asarray(found / found.sum(axis=-1, keepdims=True))


def _loadings(r: Array) -> Array:
    """(..., 3): loadings on one shared difficulty whose products are as near as can be to the
    correlations."""
    r = np.clip(r, 0.0, CLOSEST)
    table = np.zeros((*r.shape[:-1], 3, 3))
    for place, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
        table[..., i, j] = table[..., j, i] = r[..., place]
    loads = np.sqrt(table.max(axis=-1))
    for _ in range(30):
        for i in range(3):  # one after the other: together they would swing
            others = [j for j in range(3) if j != i]
            square = (loads[..., others] ** 2).sum(axis=-1)
            fit = (table[..., i, others] * loads[..., others]).sum(axis=-1) / np.maximum(square, 1e-12)
            loads[..., i] = np.clip(fit, 0.0, CLOSEST)
    return np.asarray(loads)
