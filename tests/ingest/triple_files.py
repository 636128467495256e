"""Small knowledge graphs as files, and what ingest made of them under the names that stand there."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.storage.dataset_store import DatasetStore

Triple = tuple[Any, ...]
TRAIN: list[Triple] = [("ann", "knows", "bob"), ("bob", "knows", "cy"), ("ann", "likes", "dan"), ("dan", "likes", "cy")]
VALID: list[Triple] = [("ann", "knows", "cy")]
TEST: list[Triple] = [("bob", "likes", "dan"), ("cy", "knows", "ann")]
SPLITS = {"train": TRAIN, "valid": VALID, "test": TEST}


def lines(rows: Sequence[Triple], delimiter: str = "\t", head: str = "") -> str:
    return head + "".join(delimiter.join(map(str, row)) + "\n" for row in rows)


def put(path: Path, text: str) -> None:
    """Write a text, compressed as the name says."""
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = pa.compress(data, codec="zstd", asbytes=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def put_splits(folder: Path, ending: str = ".txt", **changed: Sequence[Triple]) -> Path:
    for split, rows in (SPLITS | changed).items():
        put(folder / f"{split}{ending}", lines(rows))
    return folder


def named(store: DatasetStore) -> dict[str, list[Triple]]:
    """Return the triples of each split by the names that users know."""
    entities: list[Any] = []
    for kind in store.manifest.node_types:
        table = f"ids/{kind.name}"
        entities += store.read(table)["original_id"].to_pylist() if table in store else range(kind.num_nodes)
    relations = store.read("relations")["name"].to_pylist()
    found = {}
    for split in store.manifest.splits:
        rows = store.read(f"split/{split}").to_pydict()
        ends = [[entities[i] for i in rows[column]] for column in ("src", "dst")]
        found[split] = list(zip(ends[0], [relations[r] for r in rows["relation"]], ends[1], strict=True))
    return found
