"""The generator of applications: schema, determinism, and the published figures it must meet."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf.errors import ConfigError
from deccaf.simulate import generate_applications
from deccaf.simulate.applications import BLOCK, load_world
from deccaf.simulate.baf import CATEGORIES, COLUMNS, FEATURES, INTEGERS, LABEL, MONTH

# Published for BAF Base: applications and fraud rate per month (baf_facts.json).
APPLICATIONS = [132440, 127620, 136979, 150936, 127691, 119323, 108168, 96843]
FRAUD_RATES = [0.011326, 0.009387, 0.008746, 0.009222, 0.011371, 0.011825, 0.013405, 0.014746]
# Published minimum and maximum of each numeric feature (base_numeric_describe.csv).
RANGES = {
    "income": (0.1, 0.9),
    "name_email_similarity": (1.43e-06, 1.0),
    "prev_address_months_count": (-1, 383),
    "current_address_months_count": (-1, 428),
    "customer_age": (10, 90),
    "days_since_request": (4e-09, 78.457),
    "intended_balcon_amount": (-15.531, 112.957),
    "zip_count_4w": (1, 6700),
    "velocity_6h": (-170.604, 16715.6),
    "velocity_24h": (1300.3, 9506.9),
    "velocity_4w": (2825.7, 6994.8),
    "bank_branch_count_8w": (0, 2385),
    "date_of_birth_distinct_emails_4w": (0, 39),
    "credit_risk_score": (-170, 389),
    "email_is_free": (0, 1),
    "phone_home_valid": (0, 1),
    "phone_mobile_valid": (0, 1),
    "bank_months_count": (-1, 32),
    "has_other_cards": (0, 1),
    "proposed_credit_limit": (190, 2100),
    "foreign_request": (0, 1),
    "session_length_in_minutes": (-1, 85.9),
    "keep_alive_session": (0, 1),
    "device_distinct_emails_8w": (-1, 2),
    "device_fraud_count": (0, 0),
}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return generate_applications(200_000, seed=7)


def fingerprint(table: pd.DataFrame) -> str:
    return hashlib.sha256(pd.util.hash_pandas_object(table, index=True).to_numpy().tobytes()).hexdigest()


def test_schema_is_that_of_base_csv(table: pd.DataFrame) -> None:
    assert tuple(table.columns) == COLUMNS
    assert len(COLUMNS) == 32
    assert len(FEATURES) == 30
    for name in COLUMNS:
        if name in CATEGORIES:
            assert tuple(table[name].cat.categories) == CATEGORIES[name]
        else:
            assert table[name].dtype == (np.int64 if name in INTEGERS else np.float64)
    assert not table.isna().any().any()


def test_months_have_the_published_sizes_in_order(table: pd.DataFrame) -> None:
    assert table[MONTH].is_monotonic_increasing
    counts = table[MONTH].value_counts().sort_index().to_numpy()
    assert np.abs(counts - np.array(APPLICATIONS) / 5).max() < 1
    assert np.bincount(load_world().months(1_000_000)).tolist() == APPLICATIONS


def test_fraud_rates_follow_the_months(table: pd.DataFrame) -> None:
    for month, part in table.groupby(MONTH)[LABEL]:
        error = 4 * np.sqrt(FRAUD_RATES[month] / len(part))  # four standard errors of a rare rate
        assert part.mean() == pytest.approx(FRAUD_RATES[month], abs=error)


@pytest.mark.parametrize("name", RANGES)
def test_values_stay_in_the_published_range(table: pd.DataFrame, name: str) -> None:
    low, high = RANGES[name]
    assert table[name].min() >= low
    assert table[name].max() <= high
    assert low == high or table[name].nunique() > 1


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("prev_address_months_count", 0.71292),
        ("bank_months_count", 0.253635),
        ("session_length_in_minutes", 0.002015),
    ],
)
def test_missing_codes_have_the_published_shares(table: pd.DataFrame, name: str, share: float) -> None:
    assert table[name].eq(-1).mean() == pytest.approx(share, abs=0.02)
    between = table[name].between(-1, 0, inclusive="neither")
    assert not between.any(), "-1 is a code, not the end of a continuous range"


def test_income_takes_the_nine_values_of_the_files(table: pd.DataFrame) -> None:
    assert set(table["income"].unique()) <= {0.1, 0.2, 0.3, 0.1 * 3, 0.4, 0.5, 0.1 * 6, 0.1 * 7, 0.8, 0.9}


def test_dependences_known_from_baf(table: pd.DataFrame) -> None:
    """Signs and strengths that a table of independent columns would miss."""
    missing_bank = table.groupby("payment_type", observed=True)["bank_months_count"].agg(
        lambda c: c.eq(-1).mean()
    )
    assert missing_bank["AC"] > 0.85  # 1,845 of 1,978 in the sample
    assert missing_bank.drop("AC").max() < 0.1
    by_month = table.groupby(MONTH)["velocity_4w"].mean()
    assert by_month.iloc[0] > 6000 > 4400 > by_month.iloc[6] > by_month.iloc[7]
    assert table["credit_risk_score"].corr(table["proposed_credit_limit"]) > 0.4
    assert table["customer_age"].corr(table["date_of_birth_distinct_emails_4w"]) < -0.3


def test_fraud_depends_on_features(table: pd.DataFrame) -> None:
    rates = table.groupby("housing_status", observed=True)[LABEL].mean()
    assert rates["BA"] > 2 * rates["BC"]
    assert table.loc[table["has_other_cards"] == 1, LABEL].mean() < table[LABEL].mean()


def test_same_seed_same_table_whatever_the_jobs() -> None:
    rows = 2 * BLOCK + 17
    first = generate_applications(rows, seed=3, jobs=1)
    pd.testing.assert_frame_equal(first, generate_applications(rows, seed=3, jobs=2))
    pd.testing.assert_frame_equal(first, generate_applications(rows, seed=3, jobs=5))
    assert fingerprint(first) != fingerprint(generate_applications(rows, seed=4))


def test_same_table_in_another_process() -> None:
    code = (
        "import hashlib, pandas as pd; from deccaf.simulate import generate_applications as g;"
        "t = g(20_000, seed=11, jobs=1);"
        "print(hashlib.sha256(pd.util.hash_pandas_object(t, index=True).to_numpy().tobytes()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "5"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == fingerprint(generate_applications(20_000, seed=11, jobs=2))


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_small_tables(rows: int) -> None:
    table = generate_applications(rows)
    assert len(table) == rows
    assert tuple(table.columns) == COLUMNS
    assert table.index.equals(pd.RangeIndex(rows))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"rows": 0}, "rows"), ({"rows": -5}, "rows"), ({"jobs": 0}, "jobs"), ({"seed": -1}, "seed")],
)
def test_useless_arguments(arguments: dict[str, int], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        generate_applications(**arguments)


def test_world_holds_constants_and_no_rows() -> None:
    """The licence rule: no table in the file is as long as data, and it stays small."""
    from importlib import resources

    text = resources.files("deccaf.simulate").joinpath("world.json").read_text("utf-8")
    assert len(text) < 200_000
    world = json.loads(text)
    assert "BAF" in world["about"]
    assert max(len(feature["bins"]) for feature in world["features"]) < 60
    assert {feature["name"] for feature in world["features"]} == set(FEATURES) - {"device_fraud_count"}


def shared_data() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("DECCAF_SHARED_DATA", default))


def test_monthly_means_against_the_real_sample(table: pd.DataFrame) -> None:
    path = shared_data() / "baf_applications_uniform_1pct_months_0_to_5.parquet"
    if not path.is_file():
        pytest.skip(f"no real sample at {path}; set DECCAF_SHARED_DATA to run this")
    real = pd.read_parquet(path)
    real = real[(real["customer_age"] != -1) & (real["velocity_24h"] != -1)]
    for name in RANGES:
        column = real[name].astype(float)
        gap = column.groupby(real[MONTH]).mean() - table[table[MONTH] < 6].groupby(MONTH)[name].mean()
        assert gap.abs().max() <= 0.15 * column.std(), name  # five standard errors of a month's sample mean
