"""Model files: identical numbers back, or a clear refusal; nothing in them runs."""

from __future__ import annotations

import copy
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
FIXTURES = Path(__file__).parent / "fixtures"


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
    ends = ["loss_low", "loss_high"]  # from a posterior that files keep in single precision
    pd.testing.assert_frame_equal(*[plan.drop(columns=ends) for plan in plans], check_exact=True)
    pd.testing.assert_frame_equal(*[plan[ends] for plan in plans], rtol=1e-5)
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
    assert manifest["format"] == 2
    assert {"deccaf", "lightgbm", "numpy"} <= set(manifest["versions"])
    assert [column["name"] for column in manifest["schema"]] == ["x", "noise", "gap", "kind"]
    assert manifest["training"]["cases"] == 400
    assert all(len(about["sha256"]) == 64 for about in manifest["members"].values())
    assert any(name.startswith("trees/") for name in manifest["members"])
    assert {Path(name).suffix for name in manifest["members"]} == {".json", ".npy", ".txt"}


def test_a_file_of_format_1_loads_and_gives_its_numbers(tmp_path: Path) -> None:
    """Written by deccaf 0.1.0, with what it predicted; `case_parts` and all three decision parts are in it."""
    told = json.loads((FIXTURES / "format_1.json").read_text())
    cases = pd.DataFrame(told["cases"])
    old = DeCCaF.load(FIXTURES / "format_1.deccaf")
    assert set(old.learned_.decisions.parts_) == {"rates", "pooled", "boosted"}
    old.save(tmp_path / "new.deccaf")
    for model in (old, DeCCaF.load(tmp_path / "new.deccaf")):
        np.testing.assert_allclose(model.predict_proba(cases), told["p"], rtol=1e-12)
        loss = model.expected_loss(cases, ["ann", "bob", "cat", "new"])
        np.testing.assert_allclose(loss, told["loss"], rtol=1e-12)
    assert json.loads(members((tmp_path / "new.deccaf").read_bytes())["manifest.json"])["format"] == 2


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
    content["manifest.json"] = content["manifest.json"].replace(b'"format": 2', b'"format": 3')
    with pytest.raises(
        ModelFileError, match=f"format 3, written by deccaf {__version__}; this deccaf reads .* up to 2"
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


@pytest.mark.parametrize("name", ["../x.txt", "/x.txt", "arrays/../../x", "a\\x", "c:x", ".."])
def test_names_that_lead_out_of_the_archive_are_refused(data: bytes, tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match="a member is called"):
        load(forged(data, lambda parts: parts.update({name: b"x"})), tmp_path)


def _changed(
    data: bytes, change: Callable[[dict[str, Any]], None], text: tuple[str, str] = ("", "")
) -> bytes:
    """The file with other content in `model.json`."""

    def rewritten(parts: dict[str, bytes]) -> None:
        model = json.loads(parts["model.json"])
        change(model)
        parts["model.json"] = json.dumps(model).replace(*text).encode()

    return forged(data, rewritten)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    "change",
    [
        lambda model: model["costs"]["matrix"][1].__setitem__(0, "@"),
        lambda model: model["learned"]["classifier"]["weights"].update(logistic="@"),
        lambda model: model["learned"]["decisions"]["calibrators"][0].update(slope="@"),
        lambda model: model["settings"].update(review_cost="@"),
    ],
    ids=["cost", "weight", "slope", "review"],
)
def test_numbers_that_are_none_are_refused(
    data: bytes, tmp_path: Path, change: Callable[[dict[str, Any]], None], number: str
) -> None:
    with pytest.raises(ModelFileError, match="holds the number"):
        load(_changed(data, change, ('"@"', number)), tmp_path)


def test_arrays_and_leaves_that_hold_no_numbers_are_refused(data: bytes, tmp_path: Path) -> None:
    def nan_in(parts: dict[str, bytes]) -> None:
        name = next(name for name in parts if name.endswith(".npy"))
        parts[name] = parts[name][:-8] + np.float64(np.nan).tobytes()

    with pytest.raises(ModelFileError, match="NaN or infinite"):
        load(forged(data, nan_in), tmp_path)

    def nan_leaf(parts: dict[str, bytes]) -> None:
        name = next(name for name in parts if name.startswith("trees/"))
        head, mark, rest = parts[name].partition(b"leaf_value=")
        first, space, others = rest.partition(b" ")
        parts[name] = head + mark + b"nan" + space + others
        sizes = re.search(rb"tree_sizes=(\d+)", parts[name])
        assert sizes is not None
        size = int(sizes[1]) + len(b"nan") - len(first)
        parts[name] = parts[name].replace(sizes[0], b"tree_sizes=%d" % size, 1)

    with pytest.raises(ModelFileError, match="no finite number"):
        load(forged(data, nan_leaf), tmp_path)


def test_a_model_that_holds_no_numbers_is_not_written(model: DeCCaF, tmp_path: Path) -> None:
    bad = copy.deepcopy(model)
    bad.learned_.classifier.calibrators_[0].slope_ = float("nan")
    with pytest.raises(ModelFileError, match="cannot be written"):
        bad.save(tmp_path / "m.deccaf")
    assert not (tmp_path / "m.deccaf").exists()


def test_weights_that_are_none_are_refused(data: bytes, tmp_path: Path) -> None:
    for weight in (-0.5, 2.0):
        with pytest.raises(ModelFileError, match="sum to 1"):
            load(
                _changed(data, lambda m, w=weight: m["learned"]["classifier"]["weights"].update(logistic=w)),
                tmp_path,
            )


def test_a_part_that_is_not_installed_says_what_to_install(data: bytes, tmp_path: Path) -> None:
    def renamed(model: dict[str, Any]) -> None:
        team = model["learned"]["decisions"]
        for table in ("parts", "weights"):
            team[table]["theirs"] = team[table].pop("pooled")

    with pytest.raises(
        ModelFileError, match="needs the decision part 'theirs', which is not installed here: install"
    ):
        load(_changed(data, renamed), tmp_path)
    with pytest.raises(ModelFileError, match="needs the method 'os:system'"):
        load(_changed(data, lambda model: model["learned"].update(method="os:system")), tmp_path)


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
