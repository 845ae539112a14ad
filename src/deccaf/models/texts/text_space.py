"""Texts as numbers: words weighed by TF-IDF, brought down to a few directions by a truncated SVD.

Beside the directions a text has two columns: how many words it has, and the share of them
that the space knows, which tells when texts are unlike those learned from. A missing text stands at 0 in
every direction, and these two are missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from deccaf.data.words import words
from deccaf.errors import ModelFileError, warn

Array = NDArray[np.float64]

DIRECTIONS = 32
MOST_WORDS = 20_000
MOST_TEXTS = 100_000
"""A space is learned from so many texts, drawn at random where there are more."""
_LONGEST_WORD = 1_000
LENGTH, KNOWN = "length", "known words"


@dataclass(frozen=True, eq=False)
class TextSpace:
    """Words, their weights (words,), and the directions (directions, words)."""

    name: str
    words: tuple[str, ...]
    weights: Array
    directions: NDArray[np.float32]
    place: dict[str, int] = field(init=False, repr=False)
    """Where each word stands."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", {word: k for k, word in enumerate(self.words)})

    @classmethod
    def fit(cls, texts: pd.Series, seed: int) -> TextSpace:
        """Learn from texts; words in one text only (or in fewer than one in 10,000) are left out."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import CountVectorizer

        name, present = str(texts.name), texts.dropna()
        if len(present) > MOST_TEXTS:
            present = present.sample(MOST_TEXTS, random_state=seed).sort_index(kind="stable")
        rarest = max(2, len(present) // 10_000)
        counter = CountVectorizer(analyzer=words, min_df=rarest, max_features=MOST_WORDS)
        try:
            counts = counter.fit_transform(present)
        except ValueError:  # no word is left
            warn(f"column {name!r}: no word stands in {rarest} texts, so only their length is learned from")
            return cls(name, (), np.zeros(0), np.zeros((0, 0), np.float32))
        holding = np.asarray((counts > 0).sum(axis=0)).ravel()
        weights = np.log((1.0 + len(present)) / (1.0 + holding)) + 1.0
        size = min(DIRECTIONS, counts.shape[0] - 1, counts.shape[1] - 1)
        directions = np.zeros((0, counts.shape[1]))
        if size > 0:
            reduced = TruncatedSVD(size, random_state=seed).fit(_weighed(counts, weights))
            directions = reduced.components_
        known = tuple(str(word) for word in counter.get_feature_names_out())
        return cls(name, known, weights, directions.astype(np.float32))

    @property
    def columns(self) -> list[str]:
        """The text's length and share of known words, then the directions."""
        more = [str(k + 1) for k in range(len(self.directions))]
        return [f"{self.name}[{part}]" for part in (LENGTH, KNOWN, *more)]

    @property
    def familiar(self) -> str:
        """The column that tells how like those learned from a text is."""
        return f"{self.name}[{KNOWN}]"

    @property
    def told(self) -> list[str]:
        """The columns that mean something to people."""
        return [f"{self.name}[{LENGTH}]", self.familiar]

    def transform(self, values: pd.Series) -> Array:
        """(cases, columns)."""
        found = np.zeros((len(values), 2 + len(self.directions)))
        present = np.flatnonzero(values.notna().to_numpy())
        found[:, :2] = np.nan
        if not len(present):
            return found
        counts, sizes = self._counted(values.iloc[present])
        found[present, 0] = sizes
        found[present, 1] = np.asarray(counts.sum(axis=1)).ravel() / np.maximum(sizes, 1.0)
        if len(self.directions):
            found[present, 2:] = _weighed(counts, self.weights) @ self.directions.T
        return found

    def _counted(self, texts: Iterable[str]) -> tuple[scipy.sparse.csr_matrix, Array]:
        """How often each word stands in each text, and how many words each has, known ones or not."""
        ends, known, sizes = [0], array("i"), []
        for text in texts:
            each = words(text)
            known.extend(self.place[word] for word in each if word in self.place)
            ends.append(len(known))
            sizes.append(len(each))
        ones, shape = np.ones(len(known)), (len(sizes), len(self.words))
        counts = scipy.sparse.csr_matrix((ones, np.frombuffer(known, np.int32).copy(), ends), shape)
        counts.sum_duplicates()
        return counts, np.array(sizes, np.float64)

    def to_dict(self) -> dict[str, Any]:
        """What was learned, for a file."""
        return {
            "kind": "text",
            "words": list(self.words),
            "weights": self.weights,
            "directions": self.directions,
        }

    @classmethod
    def from_dict(cls, name: str, data: Mapping[str, Any]) -> TextSpace:
        """Rebuild what `to_dict` gave; what no space can be is a `ModelFileError`."""
        known, weights, directions = tuple(data["words"]), data["weights"], data["directions"]
        plain = all(isinstance(word, str) and 0 < len(word) <= _LONGEST_WORD for word in known)
        if not plain or len(set(known)) != len(known) or len(known) > MOST_WORDS:
            raise ModelFileError(f"the words of {name!r} are no vocabulary")
        shaped = weights.shape == (len(known),) and directions.ndim == 2 and weights.dtype == np.float64
        if not shaped or directions.shape[1] != len(known) or len(directions) > DIRECTIONS:
            raise ModelFileError(
                f"the space of {name!r} has {len(known):,} words, weights of shape {list(weights.shape)} and "
                f"directions of shape {list(directions.shape)}"
            )
        return cls(name, known, weights, directions.astype(np.float32))


def _weighed(counts: scipy.sparse.csr_matrix, weights: Array) -> scipy.sparse.csr_matrix:
    """TF-IDF with logarithmic counts, every text of length 1."""
    from sklearn.preprocessing import normalize

    weighed = scipy.sparse.csr_matrix(counts, dtype=np.float64, copy=True)
    weighed.data = (1.0 + np.log(weighed.data)) * weights[weighed.indices]
    found: scipy.sparse.csr_matrix = normalize(weighed, copy=False)
    return found
