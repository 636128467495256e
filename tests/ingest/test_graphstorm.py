"""GraphStorm's description of a graph: what becomes of it, what is said, and that the recipe reads the same tables."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from configs.errors import DataError, UserError
from configs.load import load_recipe
from tasks.ingest.graphstorm.recipe import import_graphstorm
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.home import Home
from tests.apply.test_needs import Prepared
from tests.ingest.movies import movie_tables

PARQUET = {"name": "parquet"}


def description(folder: Path, **label: Any) -> dict[str, Any]:
    """The shape of GraphStorm's own example on MovieLens, over tables of our own making."""
    movie_tables(folder)
    movies = pq.read_table(folder / "movies.parquet")
    count = movies.num_rows
    movies = movies.append_column("title", pa.array([f"film number {n}" for n in range(count)]))
    movies = movies.append_column("label", pa.array(np.arange(count) % 3))
    movies = movies.append_column("country", pa.array(["fr", "it", "jp", "fr|it"] * count)[:count])
    pq.write_table(movies, folder / "movies.parquet")
    users = [{"id": f"u{n}", "feat": [n / 60, 1.0]} for n in range(60)]
    (folder / "users.json").write_text("".join(json.dumps(one) + "\n" for one in users))
    return {
        "version": "gconstruct-v0.1",
        "nodes": [
            {
                **{"node_id_col": "id", "node_type": "user", "format": {"name": "json"}, "files": "users.json"},
                "features": [{"feature_col": "feat"}],
            },
            {
                **{"node_id_col": "id", "node_type": "movie", "format": PARQUET, "files": ["movies.parquet"]},
                "features": [
                    {"feature_col": ["year"], "feature_name": "y", "transform": {"name": "max_min_norm"}},
                    {"feature_col": "title", "transform": {"name": "bert_hf", "bert_model": "bert-base-uncased"}},
                    {"feature_col": "country", "transform": {"name": "to_categorical", "separator": "|"}},
                ],
                "labels": [{"label_col": "label", "task_type": "classification", "split_pct": [0.6, 0.2, 0.2]}],
            },
        ],
        "edges": [
            {
                **{"source_id_col": "who", "dest_id_col": "what", "relation": ["user", "rating", "movie"]},
                **{"format": PARQUET, "files": "likes.parquet"},
                "labels": [{"task_type": "link_prediction", "split_pct": [0.1, 0.1, 0.2], **label}],
            },
            {
                **{"source_id_col": "what", "dest_id_col": "who", "relation": ["movie", "rating-rev", "user"]},
                **{"format": PARQUET, "files": "likes.parquet"},
            },
            {
                **{"source_id_col": "movie", "dest_id_col": "genre", "relation": ["movie", "has a", "genre"]},
                **{"format": {"name": "csv", "separator": ","}, "files": "has_genre.csv"},
            },
        ],
    }


def write(folder: Path, said: dict[str, Any]) -> str:
    path = folder / "movielens.json"
    path.write_text(json.dumps(said))
    return str(path)


def test_relations_of_one_name_have_tables_of_their_own(tmp_path: Path) -> None:
    said = description(tmp_path)
    for number, target in enumerate(("movie", "genre", "movie")):
        name = f"likes-{number}.json"
        (tmp_path / name).write_text("".join(json.dumps({"a": "u1", "b": n}) + "\n" for n in range(number + 1)))
        ends = {"source_id_col": "a", "dest_id_col": "b", "relation": ["user", "likes", target]}
        said["edges"].append({**ends, "format": {"name": "json"}, "files": name})
    path, _ = import_graphstorm(write(tmp_path, said), None, 2)
    tables = [
        one["files"] for one in yaml.safe_load(path.read_text())["dataset"]["edges"] if one["relation"] == "likes"
    ]
    assert [pq.read_metadata(path.parent / table).num_rows for table in tables] == [1, 2, 3]


def test_words_of_the_description_are_no_lines_of_the_recipe(tmp_path: Path) -> None:
    said = description(tmp_path) | {"x\nevaluate: {splits: [test]}\n#\x1b[2J": 1}
    path, notes = import_graphstorm(write(tmp_path, said), None, 2)
    assert any("evaluate" in note and "\n" not in note and "\x1b" not in note for note in notes)
    assert "evaluate" not in yaml.safe_load(path.read_text())


def test_the_recipe_of_links_runs(tmp_path: Path, home: Home) -> None:
    said = description(tmp_path)
    said["edges"][2]["format"] = {"name": "csv", "seperator": ","}
    path, notes = import_graphstorm(write(tmp_path, said), None, 2)
    assert path == tmp_path / "movielens-graphmill" / "recipe.yaml"
    recipe = load_recipe(str(path))
    data = Prepared(home, recipe)
    manifest = data.dataset.manifest
    assert [one.name for one in manifest.edge_types] == ["user__rating__movie", "movie__has_a__genre"]
    assert {one.name: one.num_nodes for one in manifest.node_types} == {"user": 60, "movie": 41, "genre": 4}
    likes = pq.read_table(tmp_path / "likes.parquet").num_rows
    assert sum(manifest.splits.values()) == likes
    assert 0.1 < manifest.splits["test"] / likes < 0.3
    assert {one.name: sum(f.dim for f in one.features if f.kind == "numeric") for one in manifest.node_types} == {
        **{"user": 2, "movie": 1},
        "genre": 0,
    }
    assert recipe.name == "movielens-2"
    all_notes = "\n".join(notes)
    for words in (
        "nodes user: JSON is written as Parquet",
        "title: bert_hf (bert_model: bert-base-uncased) becomes a column of texts",
        "country: to_categorical (separator: |) becomes nothing: the column is left out",
        "edges has_a: format: seperator is not taken over (did you mean 'separator'?)",
        "relation 'has a' is called has_a",
        "rating-rev: rating backwards, which preprocess makes itself",
        "split_pct adds up to 0.4; the rest trains too",
        "nodes movie: classification of label is another task; --task 1 makes its recipe",
    ):
        assert words in all_notes
    assert all(f"#   {note}" in path.read_text() for note in notes)


def test_the_recipe_of_nodes_runs(tmp_path: Path, home: Home) -> None:
    path, _ = import_graphstorm(write(tmp_path, description(tmp_path)), str(tmp_path / "out"), 1)
    recipe = load_recipe(str(path))
    assert recipe.name == "movielens"
    manifest = Prepared(home, recipe).dataset.manifest
    assert (manifest.task, manifest.task_type, manifest.target_type, manifest.num_classes) == (
        *("node", "multiclass", "movie"),
        3,
    )


def test_the_recipe_of_edges_with_labels_runs(tmp_path: Path, home: Home) -> None:
    said = description(tmp_path)
    likes = pq.read_table(tmp_path / "likes.parquet")
    stars = [["bad", "good", "great"][n % 3] for n in range(likes.num_rows)]
    pq.write_table(likes.append_column("stars", pa.array(stars)), tmp_path / "likes.parquet")
    rating = {"task_type": "classification", "label_col": "stars", "split_pct": [0.8, 0.1, 0.1]}
    said["edges"] = [said["edges"][1], said["edges"][0] | {"labels": [rating]}, said["edges"][2]]
    said["nodes"][1]["features"].append({"feature_col": "year", "transform": {"name": "standard"}})
    path, notes = import_graphstorm(write(tmp_path, said), None, 2)
    data = Prepared(home, load_recipe(str(path)))
    assert (data.graph.manifest.task, data.graph.manifest.num_classes) == ("edge", 3)
    assert [one.name for one in data.dataset.manifest.edge_types] == ["user__rating__movie", "movie__has_a__genre"]
    assert load_recipe(str(path)).train.loader.name == "labelled_edge"
    assert "numbers that standardize was for: min_max, as all others (preprocess.transforms)" in notes
    rating.pop("split_pct")
    rating["custom_split_filenames"] = {"train": "a.json", "valid": "b.json", "test": "c.json"}
    with pytest.raises(DataError, match="labelled edges are not split by files"):
        import_graphstorm(write(tmp_path, said), str(tmp_path / "other"), 2)


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_ids_of_a_split_are_in_the_column_that_is_named(
    tmp_path: Path, ingest: Callable[..., DatasetStore], ending: str
) -> None:
    said = description(tmp_path)
    movies = pq.read_table(tmp_path / "movies.parquet", columns=["id"])["id"].to_pylist()
    parts = {"train": movies[:20], "valid": movies[20:29], "test": movies[29:]}
    for name, ids in parts.items():
        if ending == "json":
            (tmp_path / f"{name}.json").write_text("".join(f"{json.dumps(one)}\n" for one in ids))
        else:  # the first column are ids too, of others
            pq.write_table(pa.table({"seen_by": ids[::-1][:1] * len(ids), "movie": ids}), tmp_path / f"{name}.parquet")
    files: dict[str, Any] = {name: f"{name}.{ending}" for name in parts}
    label = said["nodes"][1]["labels"][0] = {"label_col": "label", "task_type": "classification"}
    label["custom_split_filenames"] = files
    for number, column in enumerate((["movie"], "movie")):
        files["column"] = column
        path, notes = import_graphstorm(write(tmp_path, said), str(tmp_path / f"out-{number}"), 1)
        assert not any("first columns" in note for note in notes)
        store = ingest(**yaml.safe_load(path.read_text())["dataset"])
        for name, ids in parts.items():
            assert store.column(f"split/{name}", "node_id").tolist() == [movies.index(one) for one in ids]
    files["column"] = ["movie", "seen_by"]
    with pytest.raises(DataError, match=r"filenames\.column names movie, seen_by; it needs the id column"):
        import_graphstorm(write(tmp_path, said), str(tmp_path / "two"), 1)
    if ending == "parquet":
        files["column"] = "film"
        path, _ = import_graphstorm(write(tmp_path, said), str(tmp_path / "none"), 1)
        with pytest.raises(DataError, match=r"train.parquet: has no column 'film'; it has seen_by, movie"):
            ingest(**yaml.safe_load(path.read_text())["dataset"])
        del files["column"]
        _, notes = import_graphstorm(write(tmp_path, said), str(tmp_path / "first"), 1)
        assert "nodes movie: no column, so ids are the first columns of the files of the split" in notes


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_splits_in_files(tmp_path: Path, home: Home, ending: str) -> None:
    said = description(tmp_path)
    likes = pq.read_table(tmp_path / "likes.parquet", columns=["who", "what"]).slice(0, 60)
    for name, part in (("valid", likes.slice(0, 30)), ("test", likes.slice(30))):
        if ending == "json":
            lines = [json.dumps([row["who"], row["what"]]) for row in part.to_pylist()]
            (tmp_path / f"{name}.json").write_text("\n".join(lines))
        else:  # the other way round: by the names of `column`
            pq.write_table(part.select(["what", "who"]), tmp_path / f"{name}.parquet")
    files = {
        "train": "x.json",
        "tset": "x.json",
        "valid": f"valid.{ending}",
        "test": f"test.{ending}",
        "column": ["who", "what"],
    }
    said["edges"][0]["labels"] = [{"task_type": "link_prediction", "custom_split_filenames": files}]
    path, notes = import_graphstorm(write(tmp_path, said), None, 2)
    assert Prepared(home, load_recipe(str(path))).graph.manifest.splits["test"] == 30
    assert any("the train file is not read" in note for note in notes)
    assert "edges rating: custom_split_filenames: tset is not taken over" in notes


def without_labels(said: dict[str, Any]) -> None:
    for one in said["nodes"] + said["edges"]:
        one.pop("labels", None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_labels, "names no labels"),
        (lambda said: said["edges"][0].update(relation=["user", "movie"]), r"edges\[0\].relation: .* at least 3 items"),
        (lambda said: said["nodes"][0].update(format={"name": "hdf5"}), "format.name: .*'parquet', 'csv' or 'json'"),
        (lambda said: said["nodes"].append(said["nodes"][1]), "nodes: a type stands twice: user, movie, movie"),
        (lambda said: said["edges"][0].pop("dest_id_col"), r"edges\[0\].dest_id_col: is missing"),
        (lambda said: said["nodes"][1]["labels"][0].pop("label_col"), "nodes movie: label_col is missing"),
        (
            lambda said: said["nodes"][1]["labels"][0].update(split_pct=[0.9, 0.1, 0.1]),
            r"split_pct \[0.9, 0.1, 0.1\] is not three shares of 1, of which some train",
        ),
        (
            lambda said: said["nodes"][1]["labels"][0].update(split_pct=[0.0, 0.5, 0.5]),
            r"split_pct \[0.0, 0.5, 0.5\] is not three shares of 1, of which some train",
        ),
        (lambda said: said.update(graph={}), "is of GSProcessing"),
        (
            lambda said: said["nodes"][1]["features"][0].update(transform={"name": "max_min"}),
            r"nodes movie: year: unknown transform 'max_min' \(did you mean 'max_min_norm'\?\); known: max_min_norm,",
        ),
    ],
)
def test_what_cannot_be_taken_over(tmp_path: Path, change: Any, message: str) -> None:
    said = description(tmp_path)
    change(said)
    with pytest.raises(UserError, match=message):
        import_graphstorm(write(tmp_path, said), None, 1)


WRONG = [None, 5, True, "csv", "a\0b", "\ud800", "", [], {}, [None], [5], ["a"], {"a": 5}, float("nan"), 1e400]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*at, key))


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_wrong_value_is_told_with_its_place_and_leaves_nothing(tmp_path: Path, wrong: Any) -> None:
    said = description(tmp_path, custom_split_filenames={"valid": "a.json", "test": ["b.json"], "column": ["x"]})
    said["nodes"] = said["nodes"][1:]  # no table is to convert: what is read is the JSON alone
    for number, place in enumerate(places(json.loads(json.dumps(said)))):
        edited = json.loads(json.dumps({"all": said}))
        inner = edited
        for key in ("all", *place)[:-1]:
            inner = inner[key]
        inner[("all", *place)[-1]] = wrong
        out = tmp_path / f"out-{number}"
        given = write(tmp_path, edited["all"])
        with contextlib.suppress(UserError):
            load_recipe(str(import_graphstorm(given, str(out), 1)[0]))
            continue
        assert not list(out.rglob("*")), place


@pytest.mark.parametrize(
    ("place", "wrong", "message"),
    [
        ("nodes.0.format", "csv", r"nodes\[0\].format: .* valid dictionary .*'csv'"),
        ("nodes.1.features", {"feature_col": "year"}, r"nodes\[1\].features: .* valid list"),
        ("nodes.1.labels", {"label_col": "label"}, r"nodes\[1\].labels: .* valid list"),
        ("edges.0.files", 5, r"edges\[0\].files: .* valid list \(got 5\)"),
        ("nodes.1.features.1.feature_col", [None], r"nodes\[1\].features\[1\].feature_col\[0\]: null is no value"),
        ("nodes.1.features.0.transform", "standard", r"nodes\[1\].features\[0\].transform: .* valid dictionary"),
        ("nodes.1.features.0.transform", ["standard"], r"nodes\[1\].features\[0\].transform: .* valid dictionary"),
        ("nodes.1.labels.0.split_pct", 0.8, r"nodes\[1\].labels\[0\].split_pct: .* valid list"),
        ("nodes.1.labels.0.split_pct.1", float("nan"), r"nodes\[1\].labels\[0\].split_pct\[1\]: nan is not a number"),
        (
            "nodes.1.labels.0.split_pct",
            ["a", 0.1, 0.1],
            r"nodes\[1\].labels\[0\].split_pct\[0\]: .* valid number \(got 'a'\)",
        ),
        ("nodes.0.node_type", "a\0b", r"nodes\[0\].node_type: String should match pattern"),
        ("nodes.0.node_id_col", ["id"], r"nodes\[0\].node_id_col: .* valid string"),
        ("edges.0.source_id_col", 5, r"edges\[0\].source_id_col: .* valid string"),
        ("edges.0.relation", [1, None, {}], r"edges\[0\].relation\[0\]: .*\n.*relation\[1\]: .*\n.*relation\[2\]: "),
    ],
)
def test_the_place_of_a_mistake(tmp_path: Path, place: str, wrong: Any, message: str) -> None:
    said = inner = description(tmp_path)
    *keys, last = (int(key) if key.isdigit() else key for key in place.split("."))
    for key in keys:
        inner = inner[key]
    inner[last] = wrong
    with pytest.raises(DataError, match=f"movielens.json: {message}"):
        import_graphstorm(write(tmp_path, said), None, 1)
    assert not (tmp_path / "movielens-graphmill").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id": "u0"}\n{"id": ', "line 2 is no JSON"),
        (b'{"id": "u0"}\n{"id": "\xff"}\n', "line 2: byte 0xFF in .* is not UTF-8"),
        (b'{"id": "u0"}\n{"id": 1}\n', "a column holds values of several kinds"),
        (b'{"id": "u0"}\n["u1", 2]\n', r"line 2 is no JSON of an object: \["),
        (b'{"id": 99999999999999999999999}\n', "a column holds values of several kinds"),
        (b'{"id": null}\n' * 700_000 + b'{"id": 0.5}\n', "a column holds values of several kinds"),
        (b"\n\n", "there are no rows"),
        (b"", "there are no rows"),
    ],
)
def test_a_table_that_cannot_be_converted_leaves_no_other(tmp_path: Path, content: bytes, message: str) -> None:
    said = description(tmp_path)
    (tmp_path / "bad.json").write_bytes(content)
    said["nodes"].append(said["nodes"][0] | {"node_type": "genre", "files": "bad.json"})
    with pytest.raises(DataError, match=message):
        import_graphstorm(write(tmp_path, said), None, 2)
    assert list((tmp_path / "movielens-graphmill").iterdir()) == []


@pytest.mark.parametrize(
    ("given", "shares"), [([0.8, 0.2, 0], (0.7, 0.2, 0.1)), ([1, 0, 0], (0.8, 0.1, 0.1)), (None, (0.8, 0.1, 0.1))]
)
def test_shares_that_are_needed_are_taken_of_the_training_rows(tmp_path: Path, given: Any, shares: Any) -> None:
    said = description(tmp_path)
    said["nodes"][1]["labels"][0]["split_pct"] = given
    (tmp_path / "blank.json").write_text("\n")
    said["nodes"][0]["files"] = ["blank.json", said["nodes"][0]["files"]]  # lines without a row are none
    path, _ = import_graphstorm(write(tmp_path, said), None, 1)
    split = yaml.safe_load(path.read_text())["dataset"]["split"]
    assert tuple(split[name] for name in ("train", "valid", "test")) == shares


def test_a_recipe_that_is_there_stays(tmp_path: Path) -> None:
    given = write(tmp_path, description(tmp_path))
    path, _ = import_graphstorm(given, None, 1)
    before = path.read_text()
    with pytest.raises(DataError, match=r"is there already; remove it, or give another folder \(--out\)"):
        import_graphstorm(given, None, 1)
    assert path.read_text() == before
