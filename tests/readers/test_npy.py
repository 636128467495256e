"""NumPy arrays in users' files: what a header says is compared with what is there before memory is asked for."""

# ruff: noqa: E501 -- one line a mistake reads as a table

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from tasks.ingest.ogb.splits import link_split
from tasks.ingest.raw_rows import NpyRows
from tasks.ingest.writer import DatasetWriter
from tasks.readers import limits
from tasks.readers.arrays.npy import NpyFile, member_names
from tests.ingest.conftest import Ingest


def npy(header: str, body: bytes = b"", version: int = 1) -> bytes:
    text = header.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + body


def shaped(shape: str, kind: str = "<f8", fortran: bool = False) -> str:
    return f"{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {shape}, }}"


HEADERS: list[tuple[str, bytes, str]] = [
    ("10^12 rows", npy(shaped("(1000000000000,)"), b"\0" * 24), r"is cut off or damaged: its header says .* takes 8,000,0"),
    ("10^12 columns", npy(shaped("(3, 1000000000000)"), b"\0" * 24), "is cut off or damaged"),
    ("more than 2^64", npy(shaped(f"({2**40}, {2**40})"), b"\0" * 24), "is cut off or damaged"),
    ("cut off", npy(shaped("(3, 1)"), b"\0" * 23), "is cut off or damaged"),
    ("negative", npy(shaped("(-3, 1)"), b"\0" * 24), "an impossible shape"),
    ("objects", npy(shaped("(3,)", "|O"), b"\0" * 24), "holds object; numbers are needed"),
    ("texts", npy(shaped("(3,)", "<U2"), b"\0" * 24), "holds <U2; numbers are needed"),
    ("deep brackets", npy("(" * 5000), "is not a .npy array"),
    ("deep lists", npy("[" * 9000 + "]" * 900), "is not a .npy array"),
    ("a header of 4 GB", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "its header claims 4,294,967,295 bytes"),
    ("no header", b"\x93NUMPY\x01\x00", "is not a .npy array"),
    ("another version", npy("{}", version=9), "is not a .npy array"),
    ("no keys", npy("{}"), "is not a .npy array"),
    ("text", b"1,2\n3,4\n", "is not a .npy array"),
    ("empty", b"", "is not a .npy array"),
    ("Fortran order", npy(shaped("(3, 2)", fortran=True), b"\0" * 48), "is in Fortran order"),
    ("three dimensions", npy(shaped("(3, 1, 1)"), b"\0" * 24), "has 3 dimensions"),
    ("no columns", npy(shaped("(40, 0)")), r"has no columns \(its shape is \(40, 0\)\)"),
    ("long rows", npy(shaped("(1, 600000)"), bytes(4_800_000)), "has 600,000 columns; a row may have 4,194,304 bytes"),
]  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("content", "words"), [x[1:] for x in HEADERS], ids=[x[0] for x in HEADERS])
def test_headers(tmp_path: Path, content: bytes, words: str, packed: bool) -> None:
    path = tmp_path / ("x.npz" if packed else "x.npy")
    if packed:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.npy", content)
    else:
        path.write_bytes(content)
    rows = NpyRows(path, "a" if packed else None)
    name = r"x\.npz\[a\]" if packed else r"x\.npy"
    for read in (rows.shape, lambda: list(rows.chunks(np.float64))):
        with pytest.raises(DataError, match=rf"{name}: .*{words}"):
            read()


@pytest.mark.parametrize("kind", [">f8", ">i4", "<f2", "|b1", "|u1", "<i8"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_arrays_of_any_byte_order_and_version(tmp_path: Path, kind: str, version: tuple[int, int]) -> None:
    values = np.arange(6).reshape(3, 2).astype(kind)
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, values, version)
    file = NpyFile(tmp_path / "x.npy")
    np.testing.assert_array_equal(file.read(), values)
    np.testing.assert_array_equal(file.mapped(), values)
    np.testing.assert_array_equal(np.concatenate(list(NpyRows(tmp_path / "x.npy").chunks(np.float32))), values)
    np.save(tmp_path / "x.npy", np.asfortranarray(values))
    np.testing.assert_array_equal(file.read(), values)


def test_an_array_that_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(20 << 20))
    monkeypatch.setattr(limits, "available_bytes", lambda: 100 << 20)
    with pytest.raises(DataError, match=r"x\.npz\[a\]: the array takes 0\.2 GB of memory, 0\.1 GB are available"):
        NpyFile(tmp_path / "x.npz", "a").read()


def test_what_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(3), b=np.arange(4))
    whole = path.read_bytes()
    with pytest.raises(DataError, match=r"has no array 'c'.*it has a, b"):
        NpyFile(path, "c").read()
    for content in (b"hello", whole[:-40], b"PK"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.npz: is damaged, or no NumPy archive"):
            member_names(path)


GRAPH = {"edge_index": np.array([[0, 1, 2, 3], [1, 2, 3, 0]]), "y": np.array([0, 1, 0, 1]), "train": np.array([0]),
         "valid": np.array([1]), "test": np.array([2])}  # fmt: skip
CSR = {"x_indptr": np.zeros(5, int), "x_indices": np.empty(0, int), "x_data": np.empty(0)}
GRAPHS: list[tuple[str, dict[str, Any], str]] = [
    ("sparse, no columns", CSR, r"\[x_indptr\]: has 0 columns"),
    ("sparse, 10^9 columns", {**CSR, "num_features": 10**9}, "has 1,000,000,000 columns"),
    ("sparse, two counts", {**CSR, "num_features": np.array([1, 2])}, r"\[num_features\]: is not a number of at least"),
    ("sparse, rows", {**CSR, "x_indptr": np.zeros(4, int)}, "is no CSR matrix of 4 rows"),
    ("sparse, broken", {**CSR, "x_indptr": np.array([0, 1, 2, 3, 4]), "num_features": 3}, "is no CSR matrix"),
    ("a split of no dimension", {"train": np.array(0)}, r"\[train\]: has the shape \(\)"),
    ("labels beyond int64", {"y": np.array([0, 1, 2**63, 1], np.uint64)}, r"\[y\]: 9223372036854775808 does not fit"),
    ("labels that are amounts", {"y": np.array([0, 10**12, 1, 1])}, r"\[y\] \(row 1\): the largest class is 1000000000000"),
    ("long rows", {"x": np.zeros((4, 600_000))}, r"\[x\]: has 600,000 columns"),
    ("features beyond float32", {"x": np.full((4, 1), 1e300)}, r"\[x\] \(row 0, column 0\): 1e\+300 does not fit float32"),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "words"), [x[1:] for x in GRAPHS], ids=[x[0] for x in GRAPHS])
def test_graphs_in_archives(ingest: Ingest, folder: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(folder / "g.npz", **{**GRAPH, **arrays})
    with pytest.raises(DataError, match=rf"g\.npz.*{words}"):
        ingest(name="npz", path="g.npz")


def test_features_without_columns_are_none(ingest: Ingest, folder: Path) -> None:
    np.savez(folder / "g.npz", **GRAPH, x=np.empty((4, 0)))
    assert ingest(name="npz", path="g.npz").manifest.node_types[0].features == ()


def test_nothing_without_columns_is_written(tmp_path: Path) -> None:
    """Arrow divides by the width of a list: it would end the interpreter."""
    with DatasetWriter(tmp_path) as writer, pytest.raises(DataError, match=r"nodes/n\[x\]: has no columns"):
        writer.write("nodes/n", {"node_id": np.arange(4), "x": np.empty((4, 0), np.float32)})


@pytest.mark.parametrize("features", ["lists.parquet", "fixed.parquet", "x.npy"])
def test_zero_width_features_of_tables(ingest: Ingest, folder: Path, features: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "e.csv").write_text("src,dst\n0,1\n1,2\n")
    nodes: dict[str, Any] = {"files": features, "features": "v"}
    if features == "x.npy":
        np.save(folder / "x.npy", np.empty((3, 0)))
        nodes = {"count": 3, "feature_file": "x.npy"}
    else:
        pq.write_table(
            pa.table({"id": [0, 1, 2], "v": pa.array([[], [], []], pa.list_(pa.float32()))}), folder / features
        )
    with pytest.raises(DataError, match=rf"{features}.*(has no columns|lists hold no values)"):
        ingest(name="tables", task="link", nodes=nodes, edges={"files": "e.csv"}, num_negatives=1)


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ({"edge": np.array([[0, 1.5]])}, r"\(row 0, column dst\): node id 1\.5 is not in 0\.\.8"),
        ({"edge": np.array([[0, 1]]), "year": np.array([np.nan])}, "nan does not fit int64"),
        ({"edge": np.array([[0, 1]]), "weight": np.array([1e300])}, "is more than float32 can hold"),
        ({"source_node": np.array([[0]]), "target_node": np.array([1])}, r"'src' has the shape \(1, 1\)"),
        ({"source_node": [[0, 1]] * 3, "target_node": np.array([1])}, "'source_node' holds object"),
    ],
)
def test_link_splits_are_never_rounded(tmp_path: Path, split: dict[str, Any], words: str) -> None:
    import torch

    torch.save(split, tmp_path / "valid.pt", pickle_protocol=4)
    with pytest.raises(DataError, match=rf"valid\.pt.*{words}"):
        link_split(tmp_path, "valid", 9)
