"""Model files: identical numbers back, or a clear refusal; nothing in them runs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from deccaf import Costs, DeCCaF, __version__
from deccaf.errors import ModelFileError
from deccaf.models import model_file
from deccaf.models.trees.text_check import check_tree_text, trimmed
from model_damage import damaged, forged, forged_at_random, members, trapped
from models_world import make_world

X = make_world(400, 3).features.iloc[:20]


@pytest.fixture(scope="module")
def model() -> DeCCaF:
    world = make_world(400, 3)
    return DeCCaF(Costs.binary(0.3), review_cost={"e0": 0.01}, half_life=3).fit(
        world.features, world.truth, expert=world.expert, decision=world.decision, time=world.time
    )


@pytest.fixture(scope="module")
def data(model: DeCCaF, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "m.deccaf"
    model.save(path)
    return path.read_bytes()


def load(data: bytes, tmp_path: Path) -> DeCCaF:
    (tmp_path / "m.deccaf").write_bytes(data)
    return DeCCaF.load(tmp_path / "m.deccaf")


def test_a_loaded_model_gives_identical_numbers(model: DeCCaF, data: bytes, tmp_path: Path) -> None:
    again = load(data, tmp_path)
    pd.testing.assert_frame_equal(again.expected_loss(X), model.expected_loss(X), check_exact=True)
    plans = [m.assign(X, {"e0": 4, "new": 3}).table for m in (model, again)]
    pd.testing.assert_frame_equal(*plans, check_exact=True)
    assert again.training_ == model.training_
    assert again.get_params()["review_cost"] == {"e0": 0.01}
    again.save(tmp_path / "again.deccaf")
    assert (tmp_path / "again.deccaf").read_bytes() == data


@pytest.mark.parametrize("method", ["paper", "ova"])
def test_the_papers_methods_and_three_classes_are_kept(method: str, tmp_path: Path) -> None:
    world = make_world(400, 2, 3)
    costs = Costs.from_matrix([[0, 1, 2], [1, 0, 1], [4, 2, 0]], [0, 1, 2], scale="x2")
    cases = world.features.assign(x2=2.0)
    model = DeCCaF(costs, method=method).fit(cases, world.truth, expert=world.expert, decision=world.decision)
    model.save(tmp_path / "m.deccaf")
    again = DeCCaF.load(tmp_path / "m.deccaf")
    np.testing.assert_array_equal(again.expected_loss(cases), model.expected_loss(cases))


def test_the_manifest_says_what_the_model_is(data: bytes) -> None:
    manifest = json.loads(members(data)["manifest.json"])
    assert manifest["format"] == 1
    assert {"deccaf", "lightgbm", "numpy"} <= set(manifest["versions"])
    assert [column["name"] for column in manifest["schema"]] == ["x", "noise", "gap", "kind"]
    assert manifest["training"]["cases"] == 400
    assert all(len(about["sha256"]) == 64 for about in manifest["members"].values())
    assert any(name.startswith("trees/") for name in manifest["members"])


def test_a_damaged_or_truncated_file_never_loads(data: bytes, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for _ in range(400):
        with pytest.raises(ModelFileError):
            load(damaged(data, rng), tmp_path)


def test_a_forged_file_loads_whole_or_is_refused(data: bytes, tmp_path: Path) -> None:
    """Sums are right, so the content must be checked: whatever loads must also predict."""
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(60):
        try:
            loss = load(forged_at_random(data, rng), tmp_path).expected_loss(X)
        except ModelFileError:
            refused += 1
        except ValueError:  # other names of columns, say: a model of another table
            continue
        else:
            assert loss.shape[0] == 20
    assert refused > 30


def test_a_pickle_in_any_member_is_never_executed(data: bytes, tmp_path: Path) -> None:
    trap = tmp_path / "executed"
    for name in members(data):
        content = forged(data, lambda parts, name=name: parts.update({name: trapped(trap)}) if name != "manifest.json" else None)  # fmt: skip
        if name == "manifest.json":
            content = model_file._sealed({**members(data), name: trapped(trap)})
        with pytest.raises(ModelFileError):
            load(content, tmp_path)
    assert not trap.exists()


def test_a_newer_format_is_refused_in_words(data: bytes, tmp_path: Path) -> None:
    content = members(data)
    content["manifest.json"] = content["manifest.json"].replace(b'"format": 1', b'"format": 2')
    with pytest.raises(
        ModelFileError, match=f"format 2, written by deccaf {__version__}; this deccaf reads .* up to 1"
    ):
        load(model_file._sealed(content), tmp_path)


def test_the_key_tells_where_a_file_comes_from(model: DeCCaF, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "signed.deccaf"
    model.save(path, key=b"secret")
    assert DeCCaF.load(path, key=b"secret").experts_ == model.experts_
    assert DeCCaF.load(path).experts_ == model.experts_
    with pytest.raises(ModelFileError, match="signed with another key"):
        DeCCaF.load(path, key=b"other")
    path.write_bytes(forged(path.read_bytes(), lambda parts: None))
    with pytest.raises(ModelFileError, match="signed with another key"):
        DeCCaF.load(path, key=b"secret")
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="is not signed"):
        DeCCaF.load(path, key=b"secret")


def test_what_is_no_model_file_is_said(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.deccaf"
    with pytest.raises(ModelFileError, match="cannot be read: No such file"):
        DeCCaF.load(path)
    for content in (b"", b"case_id,x\n", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(ModelFileError):
            DeCCaF.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ModelFileError, match="not a deccaf model file"):
        DeCCaF.load(path)


def test_a_bomb_is_refused_before_it_is_unpacked(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = members(data) | {"bomb.txt": b"\x00" * (8 << 20)}
    bomb = model_file._sealed(content)
    assert len(bomb) < len(data) + 20_000
    monkeypatch.setattr(model_file, "LARGEST_CONTENT", 4 << 20)
    with pytest.raises(ModelFileError, match="would unpack to"):
        load(bomb, tmp_path)
    monkeypatch.setattr(model_file, "LARGEST_FILE", 1000)
    with pytest.raises(ModelFileError, match="larger than"):
        load(data, tmp_path)


def test_members_that_the_manifest_does_not_list_are_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="disagree about 'extra.txt'"):
        load(model_file._sealed(members(data) | {"extra.txt": b"x"}), tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("left_child=", "left_child=99999 "),
        ("num_leaves=", "num_leaves=1"),
        ("split_feature=", "split_feature=-1 "),
        ("tree_sizes=", "tree_sizes=9"),
        ("max_feature_idx=", "max_feature_idx=1"),
        ("Tree=0", "Tree=7"),
        ("end of trees", "end of forest"),
        ("decision_type=", "decision_type=x"),
        ("version=v4", "version=v9"),
        ("leaf_value=", "leaf_value=0x1"),
        ("internal_count=", "internal_count= "),
        ("shrinkage=", "shrinkages="),
    ],
)
def test_damaged_trees_never_reach_lightgbm(model: DeCCaF, old: str, new: str) -> None:
    text = trimmed(model.learned_.classifier.parts_["boosted"].booster_.model_to_string())
    check_tree_text(text)
    assert old in text
    with pytest.raises(ModelFileError, match="trees: the text is damaged"):
        check_tree_text(text.replace(old, new, 1))
