"""Models in MLflow: a real file store, no network, no pickle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from deccaf.errors import ConfigError, ModelFileError
from deccaf.mlflow import load_model, log_model, save_model
from service_world import history, small_model


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("DO_NOT_TRACK", "true")
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        patch.setenv("GIT_PYTHON_REFRESH", "quiet")
        found = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
        found.set_tracking_uri(tmp_path_factory.mktemp("store").as_uri())
        yield found


@pytest.fixture(scope="module")
def cases() -> pd.DataFrame:
    return history(40, seed=3)[["case_id", "amount", "channel"]]


def test_a_model_is_saved_as_a_pyfunc_with_a_signature_and_without_pickle(
    mlflow: Any, cases: pd.DataFrame, tmp_path: Path
) -> None:
    model = small_model()
    save_model(model, tmp_path / "saved", cases)
    files = {path.name for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    assert "model.deccaf" in files
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".joblib"))]
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert [(column.name, column.type.name) for column in loaded.metadata.signature.inputs] == [
        ("case_id", "string"),
        ("amount", "double"),
        ("channel", "string"),
    ]
    expected = model.expected_loss(cases)
    assert loaded.metadata.signature.outputs.input_names() == list(expected.columns)
    pd.testing.assert_frame_equal(loaded.predict(cases), expected)
    with pytest.raises(mlflow.exceptions.MlflowException, match="channel"):
        loaded.predict(cases[["amount"]])
    plan = load_model(str(tmp_path / "saved")).assign(cases, {"ann": 10, "bob": 10, "machine": 40})
    assert len(plan.table) == len(cases)


def test_a_model_is_logged_registered_and_loaded_by_its_name(mlflow: Any, cases: pd.DataFrame) -> None:
    mlflow.set_experiment("desk")
    with mlflow.start_run() as run:
        info = log_model(small_model(), "team", cases, registered_model_name="desk-team")
        mlflow.log_metric("cost", 1.5)
    assert mlflow.get_run(run.info.run_id).data.metrics == {"cost": 1.5}
    expected = small_model().expected_loss(cases)
    for uri in (info.model_uri, "models:/desk-team/1"):
        pd.testing.assert_frame_equal(mlflow.pyfunc.load_model(uri).predict(cases), expected)
        pd.testing.assert_frame_equal(load_model(uri).expected_loss(cases), expected)


def test_what_is_no_model_of_ours_or_damaged_is_refused(
    mlflow: Any, cases: pd.DataFrame, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    save_model(small_model(), other, cases)
    text = (other / "MLmodel").read_text()
    (other / "MLmodel").write_text(text.replace("loader_module: deccaf.mlflow", "loader_module: elsewhere"))
    with pytest.raises(ConfigError, match="no model of deccaf"):
        load_model(str(other))
    (other / "MLmodel").write_text(text)
    (file,) = other.rglob("model.deccaf")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelFileError):
        mlflow.pyfunc.load_model(str(other))
