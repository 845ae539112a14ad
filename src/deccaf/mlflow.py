"""Models in MLflow: saved, logged and loaded as a pyfunc whose artefact is deccaf's own model file.

MLflow keeps that file as it is and calls `_load_pyfunc` here to open it: no pickle, and nothing in the file
is executed. The pyfunc says what it is expected to cost to let each maker decide a case; who decides within
everybody's limits is a plan, which `load_model(...).assign` makes. Needs the extra `mlflow`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from deccaf import __version__
from deccaf.errors import ConfigError
from deccaf.fitted import FittedTeam
from deccaf.optional import extra

if TYPE_CHECKING:
    import pandas as pd

    from deccaf.estimator import DeCCaF

__all__ = ["load_model", "log_model", "save_model"]

_LOADER = "deccaf.mlflow"
_FILE = "model.deccaf"
_FLAVOUR = "python_function"


def save_model(model: FittedTeam, path: str | Path, example: pd.DataFrame, **options: Any) -> None:
    """Save a fitted model as an MLflow model in the folder `path`, which must not exist.

    `example` holds some cases like those to come: the signature has the types of its columns, and MLflow
    refuses others. `options` are those of `mlflow.pyfunc.save_model`.
    """
    with extra("mlflow", "deccaf.mlflow"):
        from mlflow import pyfunc
    with _parts(model, example) as parts:
        pyfunc.save_model(str(path), **parts, **options)


def log_model(model: FittedTeam, name: str, example: pd.DataFrame, **options: Any) -> Any:
    """Log a fitted model to the active run of MLflow; its `ModelInfo`, whose `model_uri` loads it.

    `options` are those of `mlflow.pyfunc.log_model`, among them `registered_model_name`.
    """
    with extra("mlflow", "deccaf.mlflow"):
        from mlflow import pyfunc
    with _parts(model, example) as parts:
        return pyfunc.log_model(name=name, **parts, **options)


def load_model(uri: str) -> DeCCaF:
    """The model itself, to plan, explain and onboard with; `mlflow.pyfunc.load_model` gives the pyfunc."""
    with extra("mlflow", "deccaf.mlflow"):
        from mlflow.artifacts import download_artifacts
        from mlflow.models import Model
    from deccaf.estimator import DeCCaF

    folder = download_artifacts(uri)
    flavour = Model.load(folder).flavors.get(_FLAVOUR, {})
    if flavour.get("loader_module") != _LOADER:
        raise ConfigError(f"{uri}: no model of deccaf; expected one of deccaf.mlflow.save_model or log_model")
    return DeCCaF.load(Path(folder) / flavour["data"])


class _Pyfunc:
    """What MLflow asks: cases in, expected loss of every maker out."""

    def __init__(self, model: FittedTeam) -> None:
        self._model = model

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> Any:
        return self._model.expected_loss(model_input)


def _load_pyfunc(path: str) -> _Pyfunc:
    """What MLflow calls to open the model file."""
    return _Pyfunc(FittedTeam.load(path))


@contextmanager
def _parts(model: FittedTeam, example: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The model file and what MLflow writes beside it."""
    from mlflow.models import infer_signature

    columns = [*model.feature_names, *model.review_columns]
    cases = example[[column for column in dict.fromkeys(columns) if column in example.columns]]
    signature = infer_signature(cases, model.expected_loss(example))
    with TemporaryDirectory(prefix="deccaf-mlflow-") as folder:
        model.save(Path(folder) / _FILE)
        yield {
            "loader_module": _LOADER,
            "data_path": str(Path(folder) / _FILE),
            "signature": signature,
            "pip_requirements": [f"deccaf=={__version__}"],  # else MLflow loads the model to find out
        }
