"""Posts with texts, and moderators whose errors depend on what a text is about.

Every post has a topic and is harmful or not; its words are drawn from those of its topic, some from those of
harmful posts, most from those that everybody uses. A moderator knows some topics well and others badly. The
only number beside the text is a weak score. Who leaves the text out cannot know whom to ask; here the chance
of every moderator's error is known, so the real expected cost of any plan is, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_COMMON, _OF_TOPIC, _HARMFUL = 3_000, 300, 60
_SHARE_OF_TOPIC, _SHARE_HARMFUL = 0.15, 0.04


@dataclass(frozen=True, eq=False)
class Posts:
    """Posts, their truth (0 harmless, 1 harmful), one moderator's decision each, and everybody's error."""

    frame: pd.DataFrame
    """`score` and `post`, the text."""
    truth: Ints
    topic: Ints
    moderators: tuple[str, ...]
    errors: Array
    """(posts, moderators): the chance that a moderator decides the post wrongly."""
    moderator: NDArray[np.str_]
    decision: Ints


def simulate_posts(rows: int, *, topics: int = 5, words: int = 40, seed: int = 0) -> Posts:
    """So many posts of about so many words; as many moderators as topics, each at home in two of them."""
    rng = np.random.default_rng(seed)
    topic, truth = rng.integers(0, topics, rows), (rng.random(rows) < 0.3).astype(np.int64)
    texts = _texts(topic, truth, topics, words, rng)
    score = (truth + rng.normal(0.0, 1.5, rows)).round(3)
    names = tuple(f"moderator_{k + 1}" for k in range(topics))
    people = np.arange(topics)
    at_home = (topic[:, None] == people) | (topic[:, None] == (people + 1) % topics)
    errors = np.where(at_home, 0.05, 0.35)
    who = rng.integers(0, topics, rows)
    wrong = rng.random(rows) < errors[np.arange(rows), who]
    return Posts(
        frame=pd.DataFrame({"score": score, "post": texts}),
        truth=truth,
        topic=topic,
        moderators=names,
        errors=errors,
        moderator=np.array(names)[who],
        decision=np.where(wrong, 1 - truth, truth),
    )


def _texts(topic: Ints, truth: Ints, topics: int, words: int, rng: np.random.Generator) -> list[str]:
    """Words by Zipf's law: common ones, those of the topic, and in harmful posts some of theirs."""
    known = np.array(
        [f"word{k}" for k in range(_COMMON)]
        + [f"topic{t}x{k}" for t in range(topics) for k in range(_OF_TOPIC)]
        + [f"harm{k}" for k in range(_HARMFUL)]
    )
    lengths = np.maximum(rng.poisson(words, len(topic)), 3)
    of_post = np.repeat(np.arange(len(topic)), lengths)
    place = _ranks(_COMMON, len(of_post), rng)
    kind = rng.random(len(of_post))
    about = kind < _SHARE_OF_TOPIC
    place[about] = _COMMON + topic[of_post[about]] * _OF_TOPIC + _ranks(_OF_TOPIC, int(about.sum()), rng)
    harmful = (kind > 1.0 - _SHARE_HARMFUL) & (truth[of_post] == 1)
    place[harmful] = _COMMON + topics * _OF_TOPIC + _ranks(_HARMFUL, int(harmful.sum()), rng)
    drawn = known[place]
    return [" ".join(part) for part in np.split(drawn, np.cumsum(lengths)[:-1])]


def _ranks(count: int, size: int, rng: np.random.Generator) -> Ints:
    chances = 1.0 / np.arange(1, count + 1)
    return np.asarray(rng.choice(count, size, p=chances / chances.sum()), np.int64)
