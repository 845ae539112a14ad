"""Texts and vectors are features on every road: read by a stated rule, learned with the model, kept in its file."""

from __future__ import annotations

import json
import os
import threading
import tomllib
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from deccaf import Capacity, Cases, Columns, Costs, DataError, DeCCaF, History, ModelFileError
from deccaf.data.rows import CaseRows, check_row
from deccaf.data.schema import Schema
from deccaf.data.words import LONGEST, words
from deccaf.errors import DeccafWarning
from deccaf.estimator import learn_from
from deccaf.models.model_file import read_model_file, write_model_file
from deccaf.models.texts.text_space import TextSpace
from deccaf.models.texts.vector_space import VectorSpace
from deccaf.service.imports import past_import, past_records
from deccaf.service.jobs.learning import read_lesson
from deccaf.service.store import database
from deccaf.service.store.keys import Actor
from deccaf.simulate.posts import Posts, simulate_posts
from pages_world import Person, new_key
from service_world import EXPERTS, world

COSTS = Costs.binary(1.0, 2.0)
QUICK = {"case_parts": ("logistic",), "decision_parts": ("rates", "pooled")}
pytestmark = pytest.mark.filterwarnings("ignore:column .* is read as:deccaf.errors.DeccafWarning")


@pytest.fixture(scope="module")
def posts() -> Posts:
    return simulate_posts(2_200, topics=4, words=30, seed=3)


def fitted(posts: Posts, columns: list[str], rows: int = 1_800, **settings: object) -> DeCCaF:
    known = slice(0, rows)
    return DeCCaF(COSTS, **{**QUICK, **settings}).fit(
        posts.frame[columns][known],
        posts.truth[known],
        expert=posts.moderator[known],
        decision=posts.decision[known],
    )


@pytest.fixture(scope="module")
def model(posts: Posts) -> DeCCaF:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeccafWarning)
        return fitted(posts, ["score", "post"])


def real_cost(model: DeCCaF, posts: Posts, columns: list[str]) -> float:
    new = slice(1_800, None)
    truth = posts.truth[new]
    room = Capacity.of(dict.fromkeys(posts.moderators, 80))
    plan = model.assign(posts.frame[columns][new], room, intervals=False).table
    who = pd.Index(posts.moderators).get_indexer(pd.Index(plan["maker"]))
    person = posts.errors[new][np.arange(len(truth)), who]
    wrong = np.where(plan["maker"] == "machine", plan["decision"].to_numpy() != truth, person)
    return float((wrong * np.where(truth == 0, 1.0, 2.0)).sum())


def test_plans_cost_less_than_without_the_text(model: DeCCaF, posts: Posts) -> None:
    without = real_cost(fitted(posts, ["score"]), posts, ["score"])
    assert real_cost(model, posts, ["score", "post"]) < 0.85 * without


# What is a word, and what is a text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Free MONEY, now!", ["free", "money", "now"]),
        ("Ｆｕｌｌ Straße", ["full", "straße"]),
        ("垃圾邮件", ["垃圾", "圾邮", "邮件"]),
        ("買mac吧", ["買", "mac", "吧"]),
        ("هذا نص عربي", ["هذا", "نص", "عربي"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("ภาษา", ["ภา", "าษ", "ษา"]),
        ("  \n ", []),
        ("🙂🙂", []),
    ],
)
def test_words_in_any_script(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def sentences(count: int) -> list[str]:
    return [f"please look at number {k} soon" for k in range(count)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (sentences(60), "text"),
        ([f"這是第{k}個很長的句子嗎" for k in range(60)], "text"),
        ([f"person {k}" for k in range(60)], None),
        ([f"550e8400-e29b-41d4-a716-4466554400{k:02}" for k in range(60)], None),
        ([f"2024-01-{k % 28 + 1:02} 10:{k:02}:00" for k in range(60)], None),
        (["please call me back soon", "no thanks we are fine here"] * 30, "category"),
        ([f"[0.{k}, 1.5]" for k in range(60)], "vector"),
        ([[k, 1.5] for k in range(60)], "vector"),
    ],
)
@pytest.mark.filterwarnings("ignore::deccaf.errors.DeccafWarning")
def test_what_a_column_is(values: list[object], kind: str | None) -> None:
    frame = pd.DataFrame({"x": np.arange(60.0), "column": values})
    found = {one.name: one.kind for one in Schema.infer(frame, Columns(), ()).features}
    assert found.get("column") == kind


def test_a_guess_is_said_and_can_be_overruled() -> None:
    frame = pd.DataFrame({"x": np.arange(60.0), "note": sentences(60)})
    with pytest.warns(DeccafWarning, match="column 'note' is read as text: 60 different values"):
        Schema.infer(frame, Columns(), ())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Schema.infer(frame, Columns(text=("note",)), ()).features[1].kind == "text"
        assert Schema.infer(frame, Columns(categorical=("note",)), ()).features[1].kind == "category"
        assert Schema.infer(frame, Columns(ignore=("note",)), ()).names == ["x"]


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"text": ["a"], "categorical": ["a"]}, "two kinds"),
        ({"text": ["a"], "ignore": ["a"]}, "ignored"),
        ({"text": ["label"]}, "is the label"),
        ({"vectors": ["a"], "features": ["b"]}, "not among the features"),
    ],
)
def test_kinds_that_contradict_each_other(roles: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Columns(**roles)


# Odd texts and vectors


def test_missing_empty_strange_and_huge_texts(model: DeCCaF) -> None:
    odd = [None, "", "  \n", "🙂", "汉字 и слова", "word1 " * 200_000]
    frame = pd.DataFrame({"score": 0.0, "post": pd.Series(odd, dtype=object)})
    with pytest.warns(DeccafWarning, match=f"cut after {LONGEST:,} characters"):
        loss = model.expected_loss(frame)
    assert np.isfinite(loss.to_numpy()).all()
    assert loss.iloc[0].tolist() == loss.iloc[1].tolist() == loss.iloc[2].tolist()  # blank is missing
    rows = frame.head(5).to_dict("records")
    same = model.learned_.classifier.predict(CaseRows(model.schema_, rows))
    assert same == pytest.approx(model.predict_proba(frame.head(5)))


def test_texts_without_a_common_word_leave_their_length() -> None:
    texts = pd.Series([f"a{k} b{k}" for k in range(30)], name="note")
    with pytest.warns(DeccafWarning, match="no word stands in 2 texts"):
        space = TextSpace.fit(texts, 0)
    assert space.columns == ["note[length]", "note[known words]"]
    assert space.transform(texts).tolist() == [[2.0, 0.0]] * 30


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1, 2], [1, 2], [1, 2, 3]], r"row 3 \(case 2\) has 3 numbers where 2 belong"),
        ([[1, 2], [1, float("nan")]], r"row 2 \(case 1\) holds nan at place 2"),
        ([[1, 2], [float("inf"), 1]], r"row 2 \(case 1\) holds inf at place 1"),
        ([[1, 2], ["a", "b"]], r"row 2 \(case 1\) is no list of numbers"),
        ([[1, 2], [[1], [2]]], r"row 2 \(case 1\) is no list of numbers"),
        (["[1, 2]", "[1, 2"], "row 2"),
        ([None, None], "all vectors are missing"),
    ],
)
def test_vectors_that_cannot_be_used(values: list[object], message: str) -> None:
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    with pytest.raises(DataError, match=message):
        Schema.infer(frame, Columns(vectors=("x",)), ()).cast(frame)


@pytest.mark.filterwarnings("ignore::deccaf.errors.DeccafWarning")
def test_vectors_are_the_same_from_every_format(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 5))
    frame = pd.DataFrame({"case_id": [f"a{k}" for k in range(40)], "e": list(vectors)})
    text = frame.assign(e=[json.dumps(list(row)) for row in vectors])
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float64()), 5)
    pa.parquet.write_table(pa.table({"case_id": frame["case_id"], "e": fixed}), tmp_path / "fixed.parquet")
    frame.to_parquet(tmp_path / "list.parquet")
    text.to_csv(tmp_path / "text.csv", index=False)
    tables = [Cases.read(tmp_path / name) for name in ("fixed.parquet", "list.parquet", "text.csv")]
    tables += [Cases.from_frame(frame), Cases.from_frame(pl.from_pandas(frame))]
    for cases in tables:
        assert cases.schema.features[0].width == 5
        assert np.array_equal(np.stack(cases.features["e"].to_list()), vectors)


# No look into the future, the same for the same seed


def test_a_space_is_learned_from_the_training_cases_alone(posts: Posts) -> None:
    texts = posts.frame["post"].copy()
    texts.iloc[400:] += " unheardof"
    spoiled = replace(posts, frame=posts.frame.assign(post=texts))
    model = fitted(spoiled, ["score", "post"], rows=400, decision_parts=("rates",))
    space = model.schema_.spaces["post"]
    assert isinstance(space, TextSpace)
    assert "unheardof" not in space.words


def test_every_fold_of_a_backtest_learns_its_own_words(
    posts: Posts, run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[pd.Series] = []
    learn = TextSpace.fit.__func__

    def spy(cls: type[TextSpace], texts: pd.Series, seed: int) -> TextSpace:
        seen.append(texts)
        return learn(cls, texts, seed)

    monkeypatch.setattr(TextSpace, "fit", classmethod(spy))
    files = written(posts, tmp_path, 400)
    code, _, err = run("backtest", *files, "--policies", "deccaf,random", "--out", tmp_path / "report")
    assert code == 0, err
    cases = pd.read_csv(tmp_path / "cases.csv", dtype={"case_id": str})
    late = set(cases["case_id"][cases["time"] == cases["time"].max()])
    learned = [texts for texts in seen if len(texts) < len(cases)]
    assert learned
    assert all(late.isdisjoint(texts.index) for texts in learned)


def test_the_same_seed_gives_the_same_model(posts: Posts) -> None:
    new = posts.frame[["score", "post"]][1_800:]
    one, same = (fitted(posts, ["score", "post"], rows=400, decision_parts=("rates",)) for _ in range(2))
    assert one.expected_loss(new).equals(same.expected_loss(new))


# The model file


def test_a_model_file_keeps_the_spaces_and_nothing_that_runs(
    model: DeCCaF, posts: Posts, tmp_path: Path
) -> None:
    new = posts.frame[["score", "post"]][1_800:]
    model.save(tmp_path / "m.deccaf")
    assert DeCCaF.load(tmp_path / "m.deccaf").expected_loss(new).equals(model.expected_loss(new))


@pytest.mark.parametrize(
    ("key", "spoil", "message"),
    [
        ("words", lambda words: [*words[:-1], words[0]], "no vocabulary"),
        ("words", lambda words: words[:-1], "weights of shape"),
        ("words", lambda words: [1, *words[1:]], "no vocabulary"),
        ("directions", lambda array: array[:, :-1], "directions of shape"),
        ("directions", lambda array: np.vstack([array] * 9), "directions of shape"),
        ("kind", lambda kind: "vector", "are not those of"),
    ],
)
def test_a_forged_space_is_refused(model: DeCCaF, tmp_path: Path, key: str, spoil, message: str) -> None:
    model.save(tmp_path / "m.deccaf")
    found = read_model_file(tmp_path / "m.deccaf")
    space = found.model["spaces"]["post"]
    space[key] = spoil(space[key])
    write_model_file(
        tmp_path / "forged.deccaf",
        found.model,
        schema=found.manifest["schema"],
        training=found.manifest["training"],
        deccaf_version="0",
    )
    with pytest.raises(ModelFileError, match=message):
        DeCCaF.load(tmp_path / "forged.deccaf")


def test_numbers_that_are_none_are_not_written(model: DeCCaF, tmp_path: Path) -> None:
    spoiled = replace(model.schema_.spaces["post"])
    spoiled.weights[0] = np.nan
    other = DeCCaF.__new__(DeCCaF)
    other.__dict__ |= {**vars(model), "schema_": replace(model.schema_, spaces={"post": spoiled})}
    try:
        with pytest.raises(ModelFileError, match="NaN"):
            other.save(tmp_path / "m.deccaf")
    finally:
        spoiled.weights[0] = 1.0


# Explanations, drift


def test_explain_names_the_words_that_moved_it(model: DeCCaF, posts: Posts) -> None:
    case = pd.DataFrame({"score": [0.0], "post": ["word1 word2 word3 harm0 harm1 harm2 topic1x0 topic1x1"]})
    found = model.explain(case)
    machine = found.words[found.words["about"] == "machine"].set_index("word")["total"]
    assert machine[["harm0", "harm1", "harm2"]].min() > machine[["word1", "word2", "word3"]].max()
    assert set(found.features["feature"]) == {"score", "post"}
    assert "Words of post that did: harm" in found.text()
    moved = found.features[found.features["about"] == "machine"]["total"].sum()
    plain = model.explain(case.assign(post="")).features
    assert moved > plain[plain["about"] == "machine"]["total"].sum()


@pytest.mark.parametrize(
    ("texts", "odd"),
    [
        (["ganz andere Wörter stehen in diesem Text"] * 60, True),
        (["完全不同的文字在这里"] * 60, True),
        (["word1 word2 topic1x0 word5"] * 60, False),
    ],
)
def test_texts_of_other_words_are_said(model: DeCCaF, texts: list[str], odd: bool) -> None:
    frame = pd.DataFrame({"score": np.linspace(-1, 1, 60), "post": texts})
    found = model.assign(frame, Capacity.of({"moderator_1": 5}), intervals=False).summary.warnings
    assert [one.kind for one in found if one.column == "post"] == (["unfamiliar"] if odd else [])


def test_vectors_on_another_scale_are_said() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(400, 8))
    truth = (vectors[:, 0] + rng.normal(size=400) > 0).astype(int)
    model = DeCCaF(COSTS, case_parts=("logistic",)).fit(pd.DataFrame({"e": list(vectors)}), truth)
    assert model.predict(pd.DataFrame({"e": list(vectors)})).mean() == pytest.approx(truth.mean(), abs=0.2)
    assert model.scored(pd.DataFrame({"e": list(vectors[:100])}), []).warnings == ()
    (said,) = model.scored(pd.DataFrame({"e": list(100 * vectors[:100])}), []).warnings
    assert "vectors lie far from those learned from" in said.said
    check_row(model.schema_, {"e": [0.0] * 8})
    with pytest.raises(DataError, match="7 numbers where 8 belong"):
        check_row(model.schema_, {"e": [0.0] * 7})


def test_a_space_of_one_case_or_one_value() -> None:
    same = pd.Series([np.ones(3)] * 5, name="e")
    assert np.isfinite(VectorSpace.fit(same, 3, 0).transform(same)).all()
    one = pd.Series([np.arange(3.0)], name="e")
    assert VectorSpace.fit(one, 3, 0).columns == ["e[distance]"]


# The command line


def written(posts: Posts, folder: Path, rows: int) -> list[object]:
    """Files of a history, with a configuration."""
    ids = [f"{k:05}" for k in range(rows)]
    cases = posts.frame[:rows].assign(case_id=ids, label=posts.truth[:rows], time=np.arange(rows) // 50)
    cases.to_csv(folder / "cases.csv", index=False)
    log = {"case_id": ids, "expert_id": posts.moderator[:rows], "decision": posts.decision[:rows]}
    pd.DataFrame(log).to_csv(folder / "decisions.csv", index=False)
    parts = 'case_parts = ["logistic"]\ndecision_parts = ["rates", "pooled"]\n'
    costs = "[costs]\nfalse_positive = 1\nfalse_negative = 2\n"
    (folder / "deccaf.toml").write_text(f"{costs}[model]\n{parts}")
    names = {"--cases": "cases.csv", "--decisions": "decisions.csv", "--config": "deccaf.toml"}
    return [part for option, name in names.items() for part in (option, folder / name)]


def test_from_init_to_a_plan(posts: Posts, run, tmp_path: Path) -> None:
    files = written(posts, tmp_path, 400)
    made = tmp_path / "made.toml"
    code, out, err = run("init", tmp_path / "cases.csv", tmp_path / "decisions.csv", "--out", made)
    assert code == 0, err
    assert tomllib.loads(made.read_text())["columns"]["text"] == ["post"]
    code, out, err = run("check", *files, "--json")
    kinds = {one["column"]: (one["part"], one["kind"]) for one in json.loads(out)["columns"]}
    assert kinds["post"] == ("feature", "text")
    code, out, err = run("check", *files)
    assert "column 'post' is read as text" in err
    assert "1 texts" in out
    code, out, err = run("fit", *files, "--out", tmp_path / "m.deccaf")
    assert code == 0, err
    assert "column 'post' is read as text" in err
    (tmp_path / "roster.csv").write_text("expert_id,upper\nmoderator_1,50\nmoderator_2,50\n")
    today = ("--model", tmp_path / "m.deccaf", "--capacity", tmp_path / "roster.csv")
    posts.frame[600:700].assign(case_id=range(100)).to_csv(tmp_path / "today.csv", index=False)
    assert run("assign", *today, "--cases", tmp_path / "today.csv", "--out", tmp_path / "plan.csv")[0] == 0
    code, out, err = run("explain", *today, "--cases", tmp_path / "today.csv", "--case", 7, "--json")
    assert code == 0, err
    assert {"about", "word", "total"} <= set(json.loads(out)["words"][0])


def test_explain_and_init_read_a_named_pipe_once(posts: Posts, model: DeCCaF, run, tmp_path: Path) -> None:
    model.save(tmp_path / "m.deccaf")
    (tmp_path / "roster.csv").write_text("expert_id,upper\nmoderator_1,5\n")
    text = posts.frame[:30].assign(case_id=range(30)).to_csv(index=False)
    for number, command in enumerate(
        (
            (
                "explain",
                "--model",
                tmp_path / "m.deccaf",
                "--capacity",
                tmp_path / "roster.csv",
                "--case",
                3,
                "--cases",
            ),
            ("init", "--out", tmp_path / "new.toml"),
        )
    ):
        pipe = tmp_path / f"pipe{number}"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
        writer.start()
        code, _, err = run(*command, pipe)
        writer.join(10)
        assert code in (0, 3), err
        assert "no such file" not in err
        assert not writer.is_alive()


# The service


def test_the_service_takes_texts_and_vectors(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    past = simulate_posts(300, topics=3, words=15, seed=5)
    frame = past.frame.assign(e=list(rng.normal(size=(300, 4)).round(3)))
    people = dict(zip(past.moderators, EXPERTS, strict=True))
    who = [people[name] for name in past.moderator]
    model = DeCCaF(COSTS, case_parts=("logistic",), decision_parts=("rates",))
    model.fit(frame, past.truth, expert=who, decision=past.decision).save(tmp_path / "m.deccaf")
    new = [{"score": 0.1, "post": row.post, "e": list(row.e)} for row in frame.head(5).itertuples()]
    new[0]["post"] = "word1 <b>bold</b>\n" + "word2 " * 100
    with world(f"sqlite:///{tmp_path}/d.db", {"ann": 9, "bob": 9}, housekeeping=False) as desk:
        content = (tmp_path / "m.deccaf").read_bytes()
        made = desk.lead.post("/v1/models?name=m", content=content)
        assert made.status_code == 201, made.text
        desk.lead.post(f"/v1/models/{made.json()['id']}/activate")
        for number, features in enumerate(new):
            sent = desk.machine.post("/v1/cases", json={"case_id": f"c{number}", "features": features})
            assert sent.status_code in (201, 202), sent.text
        for spoiled in ({**new[1], "e": [1.0, 2.0]}, {**new[1], "post": [1.0]}):
            refused = desk.machine.post("/v1/cases", json={"case_id": "x", "features": spoiled})
            assert refused.status_code == 422
        loss = model.expected_loss(pd.DataFrame(new), ["ann", "bob"])
        known = desk.lead.get("/v1/cases/c0").json()
        assert known["features"]["e"] == new[0]["e"]
        assert known["assignment"]["reason"]["losses"]["ann"] == pytest.approx(loss["ann"].iloc[0])
        file = frame[200:230].assign(case_id=[f"f{k}" for k in range(30)])
        file.to_parquet(tmp_path / "today.parquet")
        content = (tmp_path / "today.parquet").read_bytes()
        kind = {"Content-Type": "application/vnd.apache.parquet"}
        sent = desk.lead.post("/v1/imports?filename=today.parquet", content=content, headers=kind)
        assert sent.status_code == 201, sent.text
        assert sent.json()["accepted"] == 30
        page = Person(desk, new_key(desk, "lead")).get("/cases/c0").text
        assert "&lt;b&gt;bold&lt;/b&gt;" in page
        assert 'class="long"' in page
        assert "4 numbers" in page
        assert "What moved" in page or "post" in page


def test_a_refit_learns_from_the_texts_of_the_ledger(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    past = simulate_posts(300, topics=3, words=15, seed=5)
    frame = past.frame.assign(
        case_id=[f"h{k}" for k in range(300)],
        e=list(rng.normal(size=(300, 4)).round(3)),
        label=past.truth,
        expert_id=past.moderator,
        decision=past.decision,
    )
    settings = {
        "columns": {"text": ["post"]},
        "costs": {"false_positive": 1.0, "false_negative": 2.0},
        "model": {"case_parts": ["logistic"], "decision_parts": ["rates"]},
    }
    with world(f"sqlite:///{tmp_path}/d.db", housekeeping=False) as desk:
        assert desk.lead.put("/v1/settings", json=settings).status_code == 200
        with database.writing(desk.service.engine) as connection:
            past_records.enter_past(connection, past_import.check_past(frame), "past.parquet", Actor(1), 1.0)
        lesson = desk.service.read(read_lesson)
        model = learn_from(
            History.from_frames(lesson.cases, lesson.decisions, lesson.config), lesson.config, print
        )
        assert {one.name: one.kind for one in model.schema_.features} == {
            "score": "number",
            "post": "text",
            "e": "vector",
        }
