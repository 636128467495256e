"""Small data sets in ingest's format, cut into several shards, and a runner of the stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.base import ComponentConfig
from configs.registry import TRANSFORMS
from configs.schema import ComponentsConfig, EvaluateConfig, PreprocessConfig, Recipe
from tasks.preprocess.stage import STAGE
from tasks.stage import Listener, Parent, map_in_process, run_stage
from tasks.storage.artifacts import describe_files
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import DatasetManifest, EdgeType, FeatureColumn, NodeType, Table
from tests.preprocess.ears import Ears
from tests.preprocess.snapshot_tables import Run, runner, small_shards

RESERVED = {"node_id", "label", "time", "src", "dst", "weight", "graph_id"}


def to_arrow(values: Any) -> pa.Array:
    array = np.asarray(values)
    if array.ndim == 2:
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
    return pa.array(array.tolist() if array.dtype.kind in "UO" else array)


def write_table(folder: Path, name: str, columns: dict[str, Any], shard_rows: int) -> Table:
    table = pa.table({key: to_arrow(value) for key, value in columns.items()})
    (folder / name).mkdir(parents=True)
    shards, rows = [], []
    for start in range(0, max(table.num_rows, 1), shard_rows):
        path = f"{name}/{len(shards):05d}.parquet"
        piece = table.slice(start, shard_rows)
        pq.write_table(piece, folder / path, row_group_size=max(1, shard_rows // 2))
        shards.append(path)
        rows.append(piece.num_rows)
    types = {field.name: str(field.type) for field in table.schema}
    return Table(num_rows=table.num_rows, columns=types, shards=tuple(shards), shard_rows=tuple(rows))


def features_of(columns: dict[str, Any], cardinalities: dict[str, tuple[int, ...]]) -> tuple[FeatureColumn, ...]:
    found = []
    for name, values in columns.items():
        array = np.asarray(values)
        if name not in RESERVED:
            categorical = name in cardinalities or array.dtype.kind in "UO"
            found.append(
                FeatureColumn(
                    column=name,
                    kind="categorical" if categorical else "numeric",
                    dim=array.shape[1] if array.ndim == 2 else 1,
                    cardinalities=cardinalities.get(name, ()),
                )
            )
    return tuple(found)


@pytest.fixture
def make_dataset(tmp_path: Path) -> Callable[..., Parent]:
    """Write tables: nodes {type: (number, columns)}, edges {(source, relation, target): columns}, others by name."""

    def make(
        nodes: dict[str, tuple[int, dict[str, Any]]],
        edges: dict[tuple[str, str, str], dict[str, Any]],
        tables: dict[str, dict[str, Any]],
        shard_rows: int = 7,
        cardinalities: dict[str, tuple[int, ...]] | None = None,
        name: str = "dataset",
        **fields: Any,
    ) -> Parent:
        folder = tmp_path / name
        known = cardinalities or {}
        written, node_types, edge_types = {}, [], []
        for node_type, (number, columns) in nodes.items():
            columns = {"node_id": np.arange(number), **columns}
            written[f"nodes/{node_type}"] = write_table(folder, f"nodes/{node_type}", columns, shard_rows)
            node_types.append(NodeType(name=node_type, num_nodes=number, features=features_of(columns, known)))
        for (source, relation, target), columns in edges.items():
            edge_type = EdgeType(
                source=source,
                relation=relation,
                target=target,
                num_edges=len(columns["src"]),
                features=features_of(columns, known),
            )
            written[f"edges/{edge_type.name}"] = write_table(folder, f"edges/{edge_type.name}", columns, shard_rows)
            edge_types.append(edge_type)
        for table, columns in tables.items():
            written[table] = write_table(folder, table, columns, shard_rows)
        splits = {split: written[f"split/{split}"].num_rows for split in ("train", "valid", "test")}
        values: dict[str, Any] = {
            "dataset": "test",
            "task": "node",
            "task_type": "multiclass",
            "num_classes": 2,
            "metric": "rmse" if fields.get("task_type") == "regression" else "accuracy",
            "directed": True,
            "target_type": next(iter(nodes)),
        }
        manifest = DatasetManifest(
            stage="ingest",
            stage_version=1,
            key="test",
            config={},
            parents={},
            files=describe_files(folder),
            node_types=tuple(node_types),
            edge_types=tuple(edge_types),
            splits=splits,
            tables=written,
            **{**values, **fields},
        )
        return Parent(manifest, folder)

    return make


@pytest.fixture
def node_splits() -> Callable[[int], dict[str, dict[str, Any]]]:
    def split(number: int) -> dict[str, dict[str, Any]]:
        ids = np.arange(number)
        return {f"split/{name}": {"node_id": ids[k::3]} for k, name in enumerate(("train", "valid", "test"))}

    return split


def make_recipe(**options: Any) -> Recipe:
    transforms = tuple(TRANSFORMS.config(t) for t in options.pop("transforms", ()))
    preprocess = PreprocessConfig(transforms=transforms, **{"workers": 2, **options})
    return Recipe.model_construct(
        name="test",
        dataset=ComponentConfig(name="test"),
        preprocess=preprocess,
        components=ComponentsConfig(),
        evaluate=EvaluateConfig(),
    )


@pytest.fixture
def preprocess(home: Home) -> Callable[..., GraphStore]:
    """Run the stage; returns the graph. `ears` hears the messages."""

    def run(
        dataset: Parent, ears: Listener | None = None, map_shards: Any = map_in_process, **options: Any
    ) -> GraphStore:
        outcome = run_stage(
            STAGE,
            make_recipe(**options),
            {"ingest": dataset},
            home,
            force=True,
            listener=ears or Ears(),
            map_shards=map_shards,
        )
        assert not (outcome.folder / "scratch").exists()
        types = (*dataset.manifest.node_types, *dataset.manifest.edge_types)
        reads_texts = any(column.kind == "text" for one in types for column in one.features)
        arrays = {entry.path for entry in outcome.manifest.arrays.values()}
        assert set(outcome.manifest.files) == arrays | ({"texts.json", "texts.npz"} if reads_texts else set())
        return GraphStore(outcome.folder, outcome.manifest)

    return run


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def run(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Ingest and preprocess a data set given as its recipe's section, in shards of a few rows."""
    small_shards(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return runner(home)
