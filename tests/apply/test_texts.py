"""Columns of texts from users' tables to features, and to a published model's other data."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, RecipeError
from configs.load import build_recipe
from configs.registry import TEXTS
from configs.schema import Recipe
from tasks.calls import load_stage
from tasks.controls.features import ControlledGraph
from tasks.controls.labels import LabelControls
from tasks.evaluators.prediction import Prediction
from tasks.ingest.graph_tables.features import MAX_TEXT_BYTES
from tasks.preprocess.texts.base import make_encoder
from tasks.preprocess.texts.tfidf import Tfidf
from tasks.stage import run_stage
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import IdMap
from tests.apply.test_needs import Prepared, adapted
from tests.preprocess.ears import Ears

N = 61
NAMES = [f"n{i}" for i in range(N)]
PARTS = np.array(["train", "valid", "test"])[np.arange(N) % 3]
WORDS = ["rent", "invoice", "refund", "crypto", "office", "工资", "привет", "straße"]
TFIDF = {"name": "tfidf", "dim": 5}


def memos(seed: int = 0, count: int = N) -> list[str | None]:
    draw = np.random.default_rng(seed)
    texts: list[str | None] = [" ".join(draw.choice(WORDS, draw.integers(1, 6))) for _ in range(count)]
    texts[1], texts[4], texts[5], texts[7] = None, "", "  \n", texts[0]
    return texts


def write(folder: Path, texts: list[str | None], notes: list[str | None] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    nodes = {"id": NAMES[: len(texts)], "memo": texts, "x": np.arange(len(texts)) / 9.0}
    nodes |= {"y": list("ab" * len(texts))[: len(texts)], "part": PARTS[: len(texts)], "t": np.arange(len(texts))}
    pq.write_table(pa.table(nodes), folder / "n.parquet")
    edges: dict[str, Any] = {"src": NAMES[: len(texts) - 1], "dst": NAMES[1 : len(texts)]}
    pq.write_table(pa.table(edges | {"note": notes or memos(9, len(texts) - 1)}), folder / "e.parquet")
    return folder


def recipe_of(folder: Path, texts: Any = TFIDF, *, of_edges: bool = False, **sections: Any) -> Recipe:
    nodes = {"files": str(folder / "n.parquet"), "features": ["x"], "texts": ["memo"], "label": "y"}
    edges = {"files": str(folder / "e.parquet"), "texts": ["note"] if of_edges else []}
    split = {"by": "column", "column": "part"}
    dataset = {"name": "tables", "nodes": nodes, "edges": edges, "split": split}
    preprocess = {"texts": texts, "workers": 1, **sections.pop("preprocess", {})}
    return build_recipe({"name": "demo", "dataset": dataset, "model": "gcn", "preprocess": preprocess, **sections})


def expected(texts: list[str | None], training: np.ndarray, seen: list[str | None] | None = None) -> np.ndarray:
    """What an encoder that learned from some rows makes of texts."""
    encoder = make_encoder(TEXTS.config(TFIDF))
    source = texts if seen is None else seen
    learned = [text for text, trains in zip(source, training, strict=True) if trains and (text or "").strip()]
    state = encoder.learn(pa.array(learned, pa.large_string()))
    filled = [row for row, text in enumerate(texts) if (text or "").strip()]
    x = np.zeros((len(texts), state["dim"]), np.float32)
    x[filled] = encoder.encode(pa.array([texts[row] for row in filled], pa.large_string()), state)
    return x


def test_texts_become_numbers_beside_the_others(home: Home, tmp_path: Path) -> None:
    texts, notes = memos(), memos(5, N - 1)
    prepared = Prepared(home, recipe_of(write(tmp_path / "a", texts, notes), of_edges=True))
    feat = prepared.rows("feat", NAMES)
    np.testing.assert_allclose(feat[:, 1:], expected(texts, PARTS == "train"), atol=2e-3)
    np.testing.assert_allclose(feat[:, 0], np.arange(N) / 9, rtol=1e-6)
    assert not feat[[1, 4, 5], 1:].any()
    assert prepared.graph.manifest.report["texts"] == {"memo": [1, 6]}
    widths = {"feat": {"x": 1, "memo": 5}, "edge_feat": {"note": 5}}
    assert prepared.graph.manifest.report["columns"] == widths | {"feat_cat": {}, "edge_feat_cat": {}}
    of_edges = expected(notes, np.ones(N - 1, bool))
    graph, order = prepared.graph, prepared.graph["csc_indices"]
    target = np.repeat(np.arange(N), np.diff(graph["csc_indptr"]))
    first = np.minimum(order, target)  # edge i joins nodes i and i + 1
    np.testing.assert_allclose(graph["edge_feat"], of_edges[first], atol=2e-3)


def test_a_text_is_encoded_once(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encoder = TEXTS.get("tfidf")
    encode = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda self, t, s: encoded.extend(t.to_pylist()) or encode(self, t, s))
    texts = memos()
    trained = Prepared(home, recipe_of(write(tmp_path / "a", texts)))
    assert sorted(encoded) == sorted({text for text in texts if (text or "").strip()})  # type: ignore[type-var]
    needs = trained.needs(tmp_path / "model")
    encoded.clear()
    more = [*texts[:30], "quite new", texts[3], "quite new"]
    adapted(home, trained, needs, recipe_of(write(tmp_path / "b", more)))
    assert encoded == ["quite new"]
    for path in home.texts.glob("*.sqlite"):  # somebody cleaned meanwhile: what is asked for is encoded again
        path.unlink()
    encoded.clear()
    again = adapted(home, trained, needs, recipe_of(write(tmp_path / "c", [*more, "newer"])))
    assert sorted(encoded) == sorted({text for text in [*more, "newer"] if (text or "").strip()})  # type: ignore[type-var]
    np.testing.assert_array_equal(again.rows("feat", NAMES[:30])[:, 1:], trained.rows("feat", NAMES[:30])[:, 1:])


def test_other_data_is_encoded_as_the_training_learned(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, notes = memos(), memos(5, N - 1)
    options = {"transforms": [{"name": "standardize"}]}
    recipe = recipe_of(write(tmp_path / "old", texts, notes), of_edges=True, preprocess=options)
    trained = Prepared(home, recipe)
    needs = trained.needs(tmp_path / "model")
    others, other_notes = [*texts[::-1][:40], "refund refund", "totally unknown"], [*notes[:40], "crypto"]
    folder = write(tmp_path / "new", others, other_notes)
    new = adapted(home, trained, needs, recipe_of(folder, of_edges=True, preprocess=options))
    plain = Prepared(home, recipe_of(tmp_path / "old")).rows("feat", NAMES)[:, 1:]
    x = expected(others, PARTS == "train", texts)
    mean, scale = plain[PARTS == "train"].mean(0), plain[PARTS == "train"].std(0)
    np.testing.assert_allclose(new.rows("feat", NAMES[:42])[:, 1:], (x - mean) / scale, atol=0.02)
    of_edges = expected(other_notes, np.ones(N - 1, bool), notes)
    target = np.repeat(np.arange(42), np.diff(new.graph["csc_indptr"]))
    places = np.minimum(new.graph["csc_indices"], target)
    np.testing.assert_allclose(new.graph["edge_feat"], of_edges[places], atol=2e-3)
    with pytest.raises(RecipeError, match=r"trained with preprocess\.texts"):
        adapted(home, trained, needs, recipe_of(folder, {"name": "tfidf", "dim": 6}, of_edges=True, preprocess=options))
    with pytest.raises(DataError, match="feature columns of node"):
        adapted(home, trained, needs, recipe_without_texts(folder, options))
    new_folder = write(tmp_path / "newer", [*others, "one more"], [*other_notes, "rent"])
    monkeypatch.setattr(Tfidf, "version", 3)
    with pytest.raises(RecipeError, match=r"note as an earlier version of graphmill's tfidf encodes them; train anew"):
        adapted(home, trained, needs, recipe_of(new_folder, of_edges=True, preprocess=options))


def recipe_without_texts(folder: Path, options: dict[str, Any]) -> Recipe:
    recipe = recipe_of(folder, preprocess=options)
    [nodes] = recipe.dataset.nodes  # type: ignore[attr-defined]
    plain = recipe.dataset.model_copy(update={"nodes": (nodes.model_copy(update={"texts": ()}),)})
    return recipe.model_copy(update={"dataset": plain})


def test_held_out_rows_teach_nothing(home: Home, tmp_path: Path) -> None:
    texts = memos()
    others = [text if trains else "held out" for text, trains in zip(texts, PARTS == "train", strict=True)]
    one = Prepared(home, recipe_of(write(tmp_path / "a", texts))).rows("feat", NAMES)
    other = Prepared(home, recipe_of(write(tmp_path / "b", others))).rows("feat", NAMES)
    np.testing.assert_array_equal(one[PARTS == "train"], other[PARTS == "train"])


def test_a_run_that_is_killed_goes_on_with_what_was_encoded(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, encoded = TEXTS.get("tfidf"), list[str]()
    encode = encoder.encode
    monkeypatch.setattr(encoder, "texts_a_job", 10)

    def some(self: Any, texts: pa.Array, state: Any) -> Any:
        if len(encoded) == 20:
            raise KeyboardInterrupt
        encoded.extend(texts.to_pylist())
        return encode(self, texts, state)

    monkeypatch.setattr(encoder, "encode", some)
    recipe = recipe_of(write(tmp_path / "a", memos()))
    with pytest.raises(KeyboardInterrupt):
        Prepared(home, recipe)
    before = set(encoded)
    monkeypatch.setattr(encoder, "encode", lambda self, t, s: encoded.extend(t.to_pylist()) or encode(self, t, s))
    encoded.clear()
    Prepared(home, recipe)
    assert encoded
    assert not before & set(encoded)
    assert not list(home.cache.rglob("encode_rows-*"))  # kept once
    [path] = home.texts.glob("*.sqlite")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT COUNT(*) FROM vectors").fetchone()[0] == len(before) + len(encoded)


def test_a_long_text_is_cut_between_characters(home: Home, tmp_path: Path) -> None:
    texts = memos()
    texts[0] = "я" * MAX_TEXT_BYTES
    prepared = Prepared(home, recipe_of(write(tmp_path / "a", texts)))
    stored = prepared.dataset.read("nodes/node", ["memo"])["memo"].to_pylist()
    assert stored[0] == "я" * (MAX_TEXT_BYTES // 4)
    assert stored[1:] == [text or "" for text in texts[1:]]
    assert "texts of memo cut behind 16,384 characters" in next(iter(prepared.dataset.manifest.adjusted))


def test_what_is_no_text_is_refused(home: Home, tmp_path: Path) -> None:
    folder = write(tmp_path / "a", memos())
    pq.write_table(pq.read_table(folder / "n.parquet").drop(["memo"]), folder / "n.parquet")
    with pytest.raises(DataError, match=r"n\.parquet.*no column 'memo'"):
        Prepared(home, recipe_of(folder))
    table = pa.table({"id": NAMES, "memo": np.arange(N) / 2, "x": np.arange(N), "y": list("ab" * N)[:N], "part": PARTS})
    pq.write_table(table, folder / "n.parquet")
    with pytest.raises(DataError, match=r"memo.*holds double"):
        Prepared(home, recipe_of(folder))
    with pytest.raises(RecipeError, match="'memo' is named as label and as a feature"):
        build_recipe(recipe_of(folder).model_dump(mode="json") | {"dataset": twice(folder, {"label": "memo"})})
    with pytest.raises(RecipeError, match="'memo' is listed twice"):
        build_recipe(recipe_of(folder).model_dump(mode="json") | {"dataset": twice(folder, {"features": ["memo"]})})
    with pytest.raises(RecipeError, match=r"unknown text encoder 'tfdf'.*tfidf"):
        recipe_of(folder, {"name": "tfdf"})
    with pytest.raises(RecipeError, match=r"preprocess\.texts\.dim"):
        recipe_of(folder, {"name": "tfidf", "dim": 0})


def twice(folder: Path, change: dict[str, Any]) -> dict[str, Any]:
    dataset = recipe_of(folder).dataset.model_dump(mode="json")
    dataset["nodes"][0] |= change
    return dataset


def test_texts_of_several_shards_and_windows(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Prepared(home, recipe_of(write(tmp_path / "a", memos()))).rows("feat", NAMES)
    monkeypatch.setattr("tasks.ingest.writer.TEXT_BYTES", (128 << 20) // 13)
    monkeypatch.setattr("tasks.ingest.writer.GROUP_BYTES", (128 << 20) // 3)
    monkeypatch.setattr("tasks.preprocess.texts.encoding._WINDOW", 20)
    other = Prepared(Home.open(tmp_path / "other"), recipe_of(tmp_path / "a"))
    assert len(other.dataset.table("nodes/node").shards) > 3
    np.testing.assert_allclose(other.rows("feat", NAMES), whole, atol=2e-3)


def test_the_sample_is_spread_over_all_training_rows(home: Home, tmp_path: Path) -> None:
    texts = memos()
    prepared = Prepared(home, recipe_of(write(tmp_path / "a", texts), TFIDF | {"rows": 7}))
    trains = np.flatnonzero(PARTS == "train")
    chosen = np.zeros(N, bool)
    chosen[trains[:: -(-len(trains) // 7)]] = True
    np.testing.assert_allclose(prepared.rows("feat", NAMES)[:, 1:], expected(texts, chosen), atol=2e-3)


def test_how_many_are_new_is_said(home: Home, tmp_path: Path) -> None:
    prepared, ears = Prepared(home, recipe_of(write(tmp_path / "a", memos())), "ingest"), Ears()
    parents = {"ingest": prepared.parents["ingest"]}
    for _ in range(2):
        run_stage(load_stage("preprocess"), prepared.recipe, parents, home, listener=ears, force=True)
    said = [text for text in ears.messages if text.startswith("memo: encoded")]
    distinct = len({text for text in memos() if (text or "").strip()})
    assert [text.split(";")[0] for text in said] == [
        f"memo: encoded {count} of 61 texts (3 empty) by tfidf" for count in (distinct, 0)
    ]
    learnt, encoded = (0, 0, "memo"), (distinct, distinct, "memo")
    assert ears.texts == [learnt, encoded, learnt]


@pytest.mark.parametrize("filtered", [False, True])
def test_a_label_that_stands_in_the_text_shows_in_a_control(home: Home, tmp_path: Path, filtered: bool) -> None:
    draw = np.random.default_rng(3)
    texts = [f"{'alpha' if row % 2 == 0 else 'beta'} {draw.choice(WORDS)}" for row in range(N)]
    recipe = recipe_of(write(tmp_path / "a", texts), TFIDF)
    prepared = Prepared(home, recipe)
    if filtered:  # nodes have other numbers then than rows of the table
        prepared.run("components", "partition")
    parent = prepared.parents["partition" if filtered else "preprocess"]
    store = GraphStore(parent.folder, parent.manifest)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    graph: Any = ControlledGraph(store, prepared.dataset, IdMap(store, prepared.dataset), None, scratch)  # type: ignore[arg-type]
    label = np.asarray(store["label"])
    controls = LabelControls(graph, 2, label)
    truth = label[np.asarray(store["test_idx"])]
    right = {
        name: np.mean(one.scores.argmax(1) == truth)
        for name, one in controls.predictions("test", Prediction(label=truth))
        if one.scores is not None
    }
    assert set(right) == {"majority", "features", "texts"}
    assert right["texts"] > 0.9
    assert right["majority"] < 0.7
    assert controls.state("features", "accuracy")[0]["weight"].shape[0] == 1 + 5


def test_a_snapshot_learns_from_what_trains_then(home: Home, tmp_path: Path) -> None:
    texts, notes = memos(), memos(5, N - 1)
    snapshot = {"as_of": 29, "train": 0.5, "valid": 0.25, "test": 0.25}
    folder = write(tmp_path / "a", texts, notes)
    recipe = recipe_of(folder, of_edges=True, snapshot=snapshot)
    [nodes] = recipe.dataset.nodes  # type: ignore[attr-defined]
    timed = recipe.dataset.model_copy(update={"nodes": (nodes.model_copy(update={"time": "t"}),)})
    early = Prepared(home, recipe.model_copy(update={"dataset": timed}))
    x = expected(texts[:30], np.arange(30) < 15)
    np.testing.assert_allclose(early.rows("feat", NAMES[:30])[:, 1:], x, atol=2e-3)
    assert early.graph.manifest.num_nodes == 30
    assert early.graph["edge_feat"].shape == (2 * 29, 5)
