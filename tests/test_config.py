from __future__ import annotations

from pathlib import Path

import pytest

from deccaf import ConfigError
from deccaf.data.config import Config


def read(tmp_path: Path, text: str) -> Config:
    (tmp_path / "deccaf.toml").write_text(text)
    return Config.read(tmp_path / "deccaf.toml")


def test_a_whole_file(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        [columns]
        label = "fraud_bool"
        time = "month"
        group = "customer_age"
        categorical = ["branch"]
        [costs]
        false_positive = 0.057
        false_negative = "amount"
        [model]
        method = "paper"
        budget = "standard"
        seed = 7
        """,
    )
    assert config.columns.label == "fraud_bool"
    assert config.columns.group == ("customer_age",)
    assert config.costs.build().cells == ((0.0, 0.057), ("amount", 0.0))
    assert (config.model.method, config.model.budget, config.model.seed) == ("paper", "standard", 7)


def test_a_matrix_with_classes(tmp_path: Path) -> None:
    costs = read(tmp_path, '[costs]\nmatrix = [[0, 1], [2, 0]]\nclasses = ["ok", "bad"]').costs.build()
    assert costs.classes == ("ok", "bad")


COSTS = "[costs]\nfalse_positive = 1\nfalse_negative = 1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (COSTS + "[columns]\nlable = 'y'", r"\[columns\] lable: unknown key.*did you mean 'label'"),
        (
            "[columns]\nlable = 'y'\ntme = 'z'",
            r"lable: unknown key.*; \[columns\] tme: unknown.*\[costs\]: missing",
        ),
        (COSTS + "[colums]\nlabel = 'y'", r"\[colums\]: unknown key.*did you mean 'columns'"),
        ("[costs]\nfalse_positive = 1\nfals_negative = 2", "unknown key.*did you mean 'false_negative'"),
        (COSTS + "[model]\nmethod = 'magic'", r"\[model\] method.*'magic'"),
        (COSTS + "[model]\nseed = -1", r"\[model\] seed"),
        (COSTS + "[columns]\nlabel = 3", r"\[columns\] label.*got 3"),
        ("", r"\[costs\]: missing"),
        ("[costs]\nmatrix = [[0, 1], [2, 0]]", "a matrix needs classes"),
        ("[costs]\nfalse_positive = -1\nfalse_negative = 1", "not negative, got -1"),
        ("[costs]\nfalse_positive = inf\nfalse_negative = 1", "finite"),
        ("[costs]\nmatrix = [[1, 1], [2, 0]]\nclasses = [0, 1]", "must cost 0, got 1"),
        ("[costs\n", "cannot be read"),
    ],
)
def test_a_wrong_file_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(tmp_path, text)
    assert caught.value.exit_code == 2


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.read(tmp_path / "none.toml")
