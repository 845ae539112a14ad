"""Texts as features: how long the encoding takes, and what plans gain by it.

    python benchmarks/texts.py speed     # 50,000 texts of 100 words, against scikit-learn's plain pipeline
    python benchmarks/texts.py worth     # simulated posts with known moderators, with and without the text

Processor seconds; the ratio is measured in the same run.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from deccaf import Capacity, Costs, DeCCaF
from deccaf.models.texts.text_space import DIRECTIONS, MOST_WORDS, TextSpace
from deccaf.simulate.posts import Posts, simulate_posts

COSTS = Costs.binary(false_positive=1.0, false_negative=2.0)


def speed(rows: int, words: int) -> pd.DataFrame:
    """Learning a space and encoding all texts with it, ours and the plain pipeline of scikit-learn."""
    texts = simulate_posts(rows, words=words, seed=0).frame["post"]
    plain = make_pipeline(
        TfidfVectorizer(min_df=2, max_features=MOST_WORDS, sublinear_tf=True),
        TruncatedSVD(DIRECTIONS, random_state=0),
    )
    found = []
    for name, work in (
        ("scikit-learn, fit and transform", lambda: plain.fit(texts).transform(texts)),
        ("deccaf, fit and transform", lambda: TextSpace.fit(texts, 0).transform(texts)),
    ):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        found.append(
            {
                "what": name,
                "seconds": time.perf_counter() - wall,
                "processor seconds": time.process_time() - cpu,
            }
        )
    table = pd.DataFrame(found)
    table["ratio"] = table["processor seconds"] / table["processor seconds"].iloc[0]
    return table.round(2)


def worth(rows: int, seeds: int) -> pd.DataFrame:
    """Real expected cost per 100 posts of plans, by models with and without the text."""
    found = []
    for seed in range(seeds):
        posts = simulate_posts(rows + 1_000, seed=seed)
        for name, columns in (("score alone", ["score"]), ("score and text", ["score", "post"])):
            found.append({"seed": seed, "features": name, "cost per 100": _cost(posts, columns, rows)})
    table = pd.DataFrame(found).pivot(index="seed", columns="features", values="cost per 100")
    table["saved"] = 1.0 - table["score and text"] / table["score alone"]
    return pd.concat([table, table.mean().to_frame("mean").T]).rename_axis("seed").reset_index().round(3)


def _cost(posts: Posts, columns: list[str], rows: int) -> float:
    """Of the posts after the first `rows`, planned by a model that learned from those."""
    past, new = slice(0, rows), slice(rows, None)
    model = DeCCaF(COSTS).fit(
        posts.frame[columns][past],
        posts.truth[past],
        expert=posts.moderator[past],
        decision=posts.decision[past],
    )
    today, truth = posts.frame[columns][new], posts.truth[new]
    room = dict.fromkeys(posts.moderators, round(0.16 * len(today)))
    plan = model.assign(today, Capacity.of(room), intervals=False).table
    price = np.where(truth == 0, 1.0, 2.0)
    machine = (plan["maker"] == "machine").to_numpy()
    who = pd.Index(posts.moderators).get_indexer(pd.Index(plan["maker"]))
    person = posts.errors[new][np.arange(len(truth)), who]
    wrong = np.where(machine, plan["decision"].to_numpy() != truth, person)
    return 100.0 * float((wrong * price).mean())


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("speed", "worth"))
    parser.add_argument("--rows", type=int)
    parser.add_argument("--words", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    table = (
        speed(given.rows or 50_000, given.words)
        if given.what == "speed"
        else worth(given.rows or 6_000, given.seeds)
    )
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
