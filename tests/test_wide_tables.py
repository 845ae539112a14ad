"""Tables with a column per person: read where nothing else can be meant, and said."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from deccaf.data.capacity import Capacity
from deccaf.data.decisions import Decisions
from deccaf.errors import DataError, DeccafWarning

PREDICTIONS = pd.DataFrame(
    {
        "case_id": [7, 8, 12],
        "standard#0": [0, 1, None],
        "unfair#1": [1, 1, 0],
        "model#0": [0.1, 0.93, 0.4],
    }
)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_decisions_of_a_published_set(tmp_path: Path, ending: str) -> None:
    """An index called case_id, as pandas writes it, is a column of the file."""
    path, frame = tmp_path / f"expert_predictions.{ending}", PREDICTIONS.set_index("case_id")
    frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path)
    with pytest.warns(
        DeccafWarning, match=r"each of 2 people, 'standard#0' to 'unfair#1'; left out.*'model#0'"
    ):
        found = Decisions.read(path)
    rows = list(zip(found.case, found.expert, found.decision.tolist(), strict=True))
    assert rows == [
        ("7", "standard#0", 0),
        ("8", "standard#0", 1),
        ("7", "unfair#1", 1),
        ("8", "unfair#1", 1),
        ("12", "unfair#1", 0),
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {
            "case_id": [1, 2],
            "analyst": ["ann", "bob"],
            "decided": [0, 1],
        },  # names that were spelled otherwise
        {"case_id": [1, 2], "verdict": [0, 1]},
        {"case_id": [1, 2], "x": [0.5, 2.0], "amount": [10.0, 3.0]},
    ],
)
def test_what_may_be_meant_otherwise_is_not_taken_for_wide(columns: dict[str, list[object]]) -> None:
    with pytest.raises(DataError, match="expert_id"):
        Decisions.from_frame(pd.DataFrame(columns))


def test_the_capacity_of_a_published_set(tmp_path: Path) -> None:
    path = tmp_path / "capacity.csv"
    path.write_text("batch_id,batch_size,standard#0,unfair#1\n1,10,4,0\n2,10,3,2\n")
    with pytest.warns(DeccafWarning, match="a column for each of 2 people"):
        found = Capacity.read(path)
    assert found.batches == ("1", "2")
    assert found.upper.loc["2", ["standard#0", "unfair#1"]].tolist() == [3, 2]
    assert found.lower.loc["2"].sum() == 0
