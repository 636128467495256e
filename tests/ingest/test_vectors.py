"""The data set `vectors`: matrices, tables and images to nodes without edges."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, RecipeError
from configs.load import build_recipe
from tasks.storage.dataset_store import DatasetStore
from tests.ingest.conftest import Ingest

X = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
NAMES = ["b", "a", "b", "", "a", "b", "a"]
NUMBERED = [f"e{i}" for i in range(8)]


def _idx(array: np.ndarray) -> bytes:
    kinds = {"uint8": 8, "int8": 9, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    values = array.astype(array.dtype.newbyteorder(">")).tobytes()
    return bytes([0, 0, kinds[array.dtype.name], array.ndim]) + sizes + values


def _check(store: DatasetStore, expected: np.ndarray = X) -> None:
    np.testing.assert_array_equal(store.column("nodes/vector", "feat"), expected)
    assert store.manifest.task == "layout"
    assert store.manifest.num_edges == 0
    assert store.manifest.splits == {"train": 0, "valid": 0, "test": 0}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int64", "bool"])
def test_matrices(ingest: Ingest, folder: Path, dtype: str) -> None:
    x = (X * 9).astype(dtype)
    np.save("x.npy", x)
    np.savez("x.npz", x=x, y=np.arange(7), names=np.array(NAMES))
    np.save("f.npy", np.asfortranarray(x))
    for file in ("x.npy", "x.npz", "f.npy"):
        store = ingest(name="vectors", files=file)
        _check(store, x.astype(np.float32))
        assert store.manifest.task_type == "layout"
        assert "ids/vector" not in store


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float32", "float64"])
def test_images_in_two_files_are_one_data_set(ingest: Ingest, folder: Path, dtype: str) -> None:
    first, second = (X[:4, :2] * 9).astype(dtype).reshape(4, 1, 2), (X[4:, :2] * 9).astype(dtype).reshape(3, 1, 2)
    Path("a-idx3-ubyte.gz").write_bytes(gzip.compress(_idx(first)))
    Path("b-idx3-ubyte").write_bytes(_idx(second))
    Path("a-idx1-ubyte.gz").write_bytes(gzip.compress(_idx(np.array([5, 0, 5, 9], np.uint8))))
    Path("b-idx1-ubyte").write_bytes(_idx(np.array([0, 0, 9], np.uint8)))
    files = {"files": ["a-idx3-ubyte.gz", "b-idx3-ubyte"], "labels": ["a-idx1-ubyte.gz", "b-idx1-ubyte"]}
    store = ingest(name="vectors", **files)
    _check(store, np.concatenate([first, second]).reshape(7, 2).astype(np.float32))
    assert store.column("nodes/vector", "label").tolist() == [1, 0, 1, 2, 0, 0, 2]
    assert store.column("classes", "name").tolist() == ["0", "5", "9"]


def test_what_export_embeddings_writes(ingest: Ingest, folder: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 3)
    pq.write_table(pa.table({"id": [f"n{i}" for i in range(7)], "embedding": vectors}), "x.parquet")
    np.save("y.npy", X)
    pq.write_table(pa.table({"id": [f"n{i}" for i in range(7)]}), "y.ids.parquet")
    for file in ("x.parquet", "y.npy"):
        store = ingest(name="vectors", files=file)
        _check(store)
        assert store.column("ids/vector", "original_id").tolist() == [f"n{i}" for i in range(7)]


def test_tables_keep_further_columns(ingest: Ingest, folder: Path) -> None:
    columns = {
        "id": pa.array([10, 11, 12, 13, 14, 15, 16]),
        "v": pa.array(X.tolist(), pa.list_(pa.float64())),
        "label": pa.array(NAMES).dictionary_encode(),
        "year": pa.array([1, None, 3, 4, 5, 6, 7]),
        "text": pa.array(["x", None, "z", "", "q", "r", "s"]),
        "yes": pa.array([True, None] + [False] * 5),
        "time": pa.array([1, 2, 3, 4, 5, 6, 7], pa.timestamp("s")),
        "more": pa.array([[1]] * 7, pa.list_(pa.int64())),
    }
    pq.write_table(pa.table(columns).slice(0, 4), "a.parquet")
    pq.write_table(pa.table(columns).slice(4), "b.parquet")
    store = ingest(name="vectors", files=["a.parquet", "b.parquet"], columns="v")
    _check(store)
    assert store.column("nodes/vector", "label").tolist() == [1, 0, 1, -1, 0, 1, 0]
    np.testing.assert_array_equal(store.column("nodes/vector", "year"), [1, np.nan, 3, 4, 5, 6, 7])
    assert store.column("nodes/vector", "text").tolist() == ["x", "", "z", "", "q", "r", "s"]
    assert store.column("nodes/vector", "yes").tolist() == ["true", ""] + ["false"] * 5
    assert store.column("nodes/vector", "time_")[0] == "1970-01-01 00:00:01.000"
    assert "more" not in store.manifest.tables["nodes/vector"].columns
    few = ingest(name="vectors", files="*.parquet", columns="v", keep="text")
    assert {"year", "yes"}.isdisjoint(few.manifest.tables["nodes/vector"].columns)


@pytest.mark.parametrize("header", [True, False])
def test_csv(ingest: Ingest, folder: Path, header: bool) -> None:
    lines = [",".join(f"{value:.7g}" for value in row) for row in X.tolist()]
    if header:
        lines = ["id,first,second,third,label", *(f"{7 - i:03},{line},{i % 2}" for i, line in enumerate(lines))]
    Path("x.csv").write_text("\n".join(lines) + "\n")
    store = ingest(name="vectors", files="x.csv")
    np.testing.assert_allclose(store.column("nodes/vector", "feat"), X, rtol=1e-6)
    if header:
        assert store.column("ids/vector", "original_id").tolist() == [f"{7 - i:03}" for i in range(7)]
        assert store.column("classes", "name").tolist() == ["0", "1"]


def test_some_columns_of_numbers(ingest: Ingest, folder: Path) -> None:
    pq.write_table(pa.table({name: X[:, i] for i, name in enumerate("abc")} | {"d": np.arange(7)}), "x.parquet")
    _check(ingest(name="vectors", files="x.parquet", columns=["c", "a"]), X[:, [2, 0]])
    kept = ingest(name="vectors", files="x.parquet", keep="d")
    _check(kept)
    assert kept.column("nodes/vector", "d").tolist() == list(range(7))


def test_labels_and_ids_beside_a_matrix(ingest: Ingest, folder: Path) -> None:
    np.save("x.npy", X)
    Path("ids.txt").write_text("".join(f"node {i}\n" for i in range(7)))
    Path("labels.txt").write_text("\r\n".join(NAMES))
    np.save("amounts.npy", X[:, :1].astype(np.float16))
    np.save("codes.npy", np.array([3, -1, 3, 4, 4, 4, 20], np.int8))
    store = ingest(name="vectors", files="x.npy", ids="ids.txt", labels="labels.txt")
    assert store.column("ids/vector", "original_id")[6] == "node 6"
    assert store.column("nodes/vector", "label").tolist() == [1, 0, 1, -1, 0, 1, 0]
    amounts = ingest(name="vectors", files="x.npy", labels="amounts.npy")
    assert amounts.manifest.task_type == "regression"
    np.testing.assert_allclose(amounts.column("nodes/vector", "label"), X[:, :1], rtol=1e-2)
    codes = ingest(name="vectors", files="x.npy", labels="codes.npy")
    assert codes.column("nodes/vector", "label").tolist() == [0, -1, 0, 1, 1, 1, 2]
    assert codes.column("classes", "name").tolist() == ["3", "4", "20"]


def _matrix(array: Any = X, file: str = "x.npy", **options: Any) -> None:
    np.save(file, array, **options)


def _beside(content: Any) -> None:
    """Write a matrix, and what lies beside it: an array, or a text."""
    _matrix()
    if isinstance(content, str):
        Path("i.txt").write_text(content)
    else:
        _matrix(content, "i.npy")


def _no_ids() -> None:
    _matrix()
    pq.write_table(pa.table({"id": pa.array([], pa.string())}), "x.ids.parquet")


def _image(content: bytes) -> None:
    Path("x-ubyte").write_bytes(content)


def _cut() -> None:
    _matrix()
    Path("x.npy").write_bytes(Path("x.npy").read_bytes()[:-5])


OBJECTS = np.array([[1, "a"]], object)
WITH_NAN, WITH_LARGE = np.where(X[4, 1] == X, np.nan, X), np.where(X[4, 1] == X, 1e300, X.astype(float))
IDX, NPZ, IDS, LABELS = {"files": "x-ubyte"}, {"files": "x.npz"}, {"ids": "i.npy"}, {"labels": "i.npy"}
MATRICES: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "nan": (lambda: _matrix(WITH_NAN), {}, r"x.npy \(row 4, column 1\): nan is not a finite"),
    "infinite": (lambda: _matrix(WITH_LARGE), {}, r"row 4, column 1.*1e\+300"),
    "no-rows": (lambda: _matrix(X[:0]), {}, "x.npy: has no rows; vectors are rows"),
    "no-columns": (lambda: _matrix(X[:, :0]), {}, "x.npy: has no columns"),
    "one-dimension": (lambda: _matrix(X[:, 0]), {}, r"x.npy: has the shape \(7,\); vectors are rows, .*dataset.labels"),
    "objects": (lambda: _matrix(OBJECTS, allow_pickle=True), {}, "x.npy: holds object"),
    "texts": (lambda: _matrix(np.array(NAMES)), {}, "x.npy: holds <U1; numbers are needed"),
    "cut": (_cut, {}, "x.npy: is cut off or damaged"),
    "empty": (lambda: Path("x.npy").write_bytes(b""), {}, "x.npy: is not a .npy array"),
    "missing": (lambda: None, {}, "x.npy: there is no such file"),
    "repeated-ids": (lambda: _beside([1, 2, 3, 4, 1, 5, 6]), IDS, r"i.npy \(row 4\): the id 1 stands in row 0 already"),
    "few-ids": (lambda: _beside([1, 2]), IDS, "i.npy: ids are 2, and there are 7 vectors"),
    "no-ids": (_no_ids, {}, "x.ids.parquet: ids are 0, and there are 7 vectors"),
    "decimal-ids": (lambda: _beside(X[:, 0]), IDS, "i.npy: holds float; ids are whole numbers or texts"),
    "empty-id": (lambda: _beside("a\nb\n\nd\ne\nf\ng\n"), {"ids": "i.txt"}, r"i.txt \(row 2\): the id is missing"),
    "few-labels": (lambda: _beside([1, 2]), LABELS, "i.npy: labels are 2, and there are 7 vectors"),
    "one-class": (lambda: _beside([1] * 7), LABELS, r"i.npy: has 1 class \(1\); two classes are needed: leave"),
    "wide-labels": (lambda: _beside(X), LABELS, r"i.npy: has the shape \(7, 3\); one value a row"),
    "column": (_matrix, {"label": "y"}, "x.npy: dataset.label is of tables, and this is a matrix"),
    "two-widths": (lambda: _beside(X[:, :2]), {"files": ["x.npy", "i.npy"]}, "i.npy: has 2 columns, and x.npy 3"),
    "two-formats": (lambda: _beside("1,2,3"), {"files": ["x.npy", "i.txt"]}, "are tables and matrices"),
    "twice": (_matrix, {"files": ["x.npy", "x.npy"]}, "is named twice"),
    "wrong-magic": (lambda: _image(b"\1\0\x08\3" + bytes(30)), IDX, "is no idx file: it begins with 01 00 08 03"),
    "short-idx": (lambda: _image(_idx(X)[:-2]), IDX, "x-ubyte: is cut off"),
    "long-idx": (lambda: _image(_idx(X) + b"1"), IDX, "x-ubyte: has more bytes than its array"),
    "idx-header": (lambda: _image(_idx(X)[:7]), IDX, "x-ubyte: is cut off within its header"),
    "idx-labels": (lambda: _image(_idx(np.zeros(3, np.uint8))), IDX, "vectors are rows"),
    "damaged-gz": (lambda: _image(gzip.compress(_idx(X))[:-9]), IDX, "x-ubyte: "),
    "two-arrays": (lambda: np.savez("x.npz", a=X, b=X), NPZ, "x.npz: which array holds the vectors"),
    "no-array": (lambda: np.savez("x.npz", a=X), {**NPZ, "array": "b"}, "x.npz: has no array 'b'"),
    "nothing-in-npz": (lambda: np.savez("x.npz"), NPZ, "x.npz: holds no array"),
    "objects-in-npz": (lambda: np.savez("x.npz", a=OBJECTS, allow_pickle=True), NPZ, r"x.npz.*holds object"),
}


@pytest.mark.parametrize("case", MATRICES)
def test_mistakes_in_matrices(ingest: Ingest, folder: Path, case: str) -> None:
    make, options, message = MATRICES[case]
    make()
    with pytest.raises(DataError, match=message):
        ingest(**{"name": "vectors", "files": "x.npy", **options})


TABLES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "word": ("a,b\n1,2\n3,x\n", {"columns": ["a", "b"]}, r"x.csv \(row 1, column b\): 'x' is not a number"),
    "nearly": ("a,b\n" + "1,2\n" * 20 + "3,x\n", {}, r"row 20, column b\): 'x' is not a number; .*dataset.keep"),
    "nan": ("a,b\n1,2\n3,nan\n", {}, r"x.csv \(row 1, column b\): .*(nan is not a finite|the cell is empty)"),
    "empty-cell": ("a,b\n1,2\n3,\n", {}, r"x.csv \(row 1, column b\): the cell is empty"),
    "ragged": ("a,b\n1,2\n3\n", {}, "x.csv"),
    "texts-only": ("a,b\nx,y\n", {}, "x.csv: has no column of lists and none of numbers"),
    "no-rows": ("a,b\n", {}, "x.csv: has no rows"),
    "semicolons": ("a;b\n1;2\n3;4\n", {}, "x.csv: has no column of lists .*Semicolons part no columns"),
    "repeated-id": ("id,a\nx,1\nx,2\n", {}, r"x.csv \(row 1, column id\): the id 'x' stands in row 0 already"),
    "unknown-column": ("a,b\n1,2\n", {"label": "c"}, "x.csv: has no column 'c'"),
    "unknown-kept": ("a,b\n1,2\n", {"keep": "c"}, "x.csv: has no column 'c'"),
    "array": ("a,b\n1,2\n", {"array": "x"}, "dataset.array is of .npz files"),
    "beyond-float32": ("a,b\n1,1e300\n", {}, r"x.csv \(row 0, column b\): 1e\+300 does not fit float32"),
}


@pytest.mark.parametrize("case", TABLES)
def test_mistakes_in_tables(ingest: Ingest, folder: Path, case: str) -> None:
    text, options, message = TABLES[case]
    Path("x.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        ingest(**{"name": "vectors", "files": "x.csv", **options})


def test_a_table_without_columns(ingest: Ingest, folder: Path) -> None:
    pq.write_table(pa.table({"a": X[:, 0]}).select([]), "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet: has no columns"):  # Arrow would end the process
        ingest(name="vectors", files="x.parquet")


@pytest.mark.parametrize("values", [["one"] * 7, [date(1850, 1, 1)] * 7, [[1]] * 7])
def test_a_column_that_only_is_called_label(ingest: Ingest, folder: Path, values: list[Any]) -> None:
    pq.write_table(pa.table({"v": X.tolist(), "label": values}), "x.parquet")
    store = ingest(name="vectors", files="x.parquet")
    assert store.manifest.task_type == "layout"
    if not isinstance(values[0], list):
        assert store.column("nodes/vector", "label_").tolist() == [str(value) for value in values]
    with pytest.raises(DataError, match=r"x.parquet \(column label\)"):
        ingest(name="vectors", files="x.parquet", label="label")


def test_ragged_lists(ingest: Ingest, folder: Path) -> None:
    pq.write_table(pa.table({"v": pa.array([[1.0, 2], [3.0, 4], [5.0]])}), "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet \(row 2, column v\): the list has 1 values, the others have 2"):
        ingest(name="vectors", files="x.parquet")
    pq.write_table(pa.table({"v": pa.array([[1.0, 2], None])}), "y.parquet")
    with pytest.raises(DataError, match=r"y.parquet \(row 1, column v\): the cell is empty"):
        ingest(name="vectors", files="y.parquet")
    pq.write_table(pa.table({"v": pa.array([[1.0, 2]]), "w": pa.array([[1.0, 2]])}), "z.parquet")
    with pytest.raises(DataError, match="which column holds the vectors"):
        ingest(name="vectors", files="z.parquet")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "files: at least one file|files: is missing"),
        ({"files": "x.npy", "id": "a", "ids": "b.txt"}, "id names a column, and ids files of their own"),
        ({"files": "x.npy", "label": "a", "labels": "b.txt"}, "label names a column, and labels files"),
        ({"files": "x.npy", "label": "a", "keep": "a"}, "column 'a' is named twice"),
        ({"files": "delta:x"}, "vectors are read from plain files"),
        ({"files": "x.npy", "lable": "a"}, "unknown key 'lable' .did you mean 'label'"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    data = {"name": "v", "dataset": {"name": "vectors", **options}, "model": {"name": "largevis"}}
    with pytest.raises(RecipeError, match=message):
        build_recipe(data)


@pytest.mark.parametrize("file", ["x.npy", "a/train-images-idx3-ubyte.gz"])
def test_a_bare_file_of_vectors(file: str) -> None:
    data = {"name": "v", "dataset": {"name": "synthetic"}, "model": {"name": "largevis"}}
    assert build_recipe(dict(data)).preprocess.neighbors is None
    recipe = build_recipe(data, [f"dataset={file}", "dataset.labels=y.npy"])
    assert (recipe.dataset.name, recipe.dataset.files) == ("vectors", (file,))  # type: ignore[attr-defined]
    assert recipe.preprocess.neighbors is not None


def test_a_price_beside_numbered_columns_is_no_vector(
    ingest: Ingest, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    x = np.random.default_rng(1).integers(0, 9, (4, 8)).astype(np.float32)
    lines = [f"P-{row},{row + 0.5},{','.join(map(str, values))}" for row, values in enumerate(x)]
    Path("x.csv").write_text("\n".join(["sku,price", *lines]).replace("price", f"price,{','.join(NUMBERED)}"))
    store = ingest(name="vectors", files="x.csv")
    _check(store, x)
    assert store.read("nodes/vector", ["price"]).column(0).to_pylist() == [0.5, 1.5, 2.5, 3.5]
    assert "vectors: 8 columns, e0, e1, e2, e3, e4 and 3 more; kept: sku, price" in caplog.text
    store = ingest(name="vectors", files="x.csv", id="sku", columns=["e0", "price"])
    _check(store, np.column_stack([x[:, 0], np.arange(4) + 0.5]).astype(np.float32))
    Path("y.csv").write_text(Path("x.csv").read_text().replace("e7", "e"))  # seven are no vector yet
    assert ingest(name="vectors", files="y.csv").manifest.node_types[0].features[0].dim == 9


@pytest.mark.parametrize("text", ["from,to,since\nAnn,Bob,2024\n", "src,dst,weight\n1,2,0.5\n", "1,2\n2,3\n"])
def test_a_list_of_edges_is_no_vectors(ingest: Ingest, folder: Path, text: str) -> None:
    Path("x.csv").write_text(text)
    with pytest.raises(DataError, match=r"x.csv: looks like a list of edges \(.*layout graph-layout dataset=x.csv"):
        ingest(name="vectors", files="x.csv")
    Path("y.csv").write_text("id,u,w,v\n1,0.5,1,2\n2,1,0,1\n")
    assert ingest(name="vectors", files="y.csv", columns=["u", "w", "v"]).manifest.node_types[0].features[0].dim == 3


@pytest.mark.parametrize("what", ["labels", "ids"])
def test_rows_beside_vectors_are_counted_before_they_are_read(
    what: str, ingest: Ingest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("v.npy", np.ones((4, 2)))
    np.save("beside.npy", np.arange(5))
    monkeypatch.setattr("tasks.readers.arrays.npy.read_values", None)
    with pytest.raises(DataError, match=r"beside\.npy: has 5 rows, and there are 4 vectors"):
        ingest(name="vectors", files="v.npy", **{what: "beside.npy"})


def test_groups_lie_apart_and_say_what_they_are(ingest: Ingest) -> None:
    store = ingest(name="synthetic_vectors", num_rows=600, dim=20, num_groups=7)
    vectors, label = store.column("nodes/vector", "feat"), store.column("nodes/vector", "label")
    assert vectors.shape == (600, 20)
    assert store.read("classes").column("name").to_pylist() == [f"group {g}" for g in range(7)]
    families = store.read("nodes/vector", ["family"]).column(0).to_pylist()
    assert families == [f"family {g // 3}" for g in label]
    gaps = np.linalg.norm(vectors[:, None] - vectors[None], axis=2) + 1e9 * np.eye(600)
    assert (label[gaps.argmin(1)] == label).mean() > 0.99
    along = store.column("nodes/vector", "along")
    assert np.abs(along[gaps.argmin(1)] - along).mean() < 0.15  # of random pairs it is 1/3


def test_options_say_it_all(ingest: Ingest) -> None:
    first, again, other = (
        ingest(name="synthetic_vectors", num_rows=100, dim=5, seed=seed).column("nodes/vector", "feat")
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
