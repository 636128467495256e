"""The vectors of a registered model as features: matched to a graph's nodes by their ids, checked, put in its order.

`tasks/apply/vectors.py` makes the artifact; this reads it. Memory: the ids of all vectors, and eight bytes for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from configs.errors import DataError, IntegrityError, RecipeError, StageError
from tasks.arrays import Array, blocks, offsets
from tasks.preprocess.transforms.base import GraphView
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.dataset_store import DatasetStore, matrix
from tasks.storage.file_names import beside
from tasks.storage.graph_store import create_array
from tasks.storage.home import Home
from tasks.storage.ids import find_rows, has_own_ids, structure_digest
from tasks.storage.manifests import DatasetManifest
from tasks.storage.outcomes import VECTORS, VectorsManifest, VectorTable

_ROWS = 1 << 16
_TINY = 1e-30
_SHOWN = 3  # ids in a message


class NodeVectors:
    """The vectors of one model version, and which nodes of a graph they are of."""

    def __init__(self, name: str, key: str, graph: GraphView) -> None:
        """`name` is NAME@VERSION, `key` that of the vectors. Raises StageError where the home does not have them."""
        self.name, self.graph = name, graph
        store = ArtifactStore(Home(Path(graph.home)))
        manifest = store.load(VECTORS, key, VectorsManifest)
        if manifest is None:
            raise StageError(f"the vectors of {name} are no longer in the home; run again, which makes them again")
        self.folder, self.manifest = store.folder(VECTORS, key), manifest
        self.dataset = DatasetStore.open(Path(graph.dataset))

    @cached_property
    def nodes(self) -> Array:
        """The graph's node of each vector, int64 (n,); -1: it is not in the graph.

        Raises:
            DataError: ids cannot be compared.
        """
        ids, of_tables = self.graph["node_ids"], [np.empty(0, np.int64)]
        for table in self.manifest.node_tables:
            kind = self._kind(table)
            rows = np.full(table.num_rows, -1, np.int64)
            if kind is not None:
                rows = self._rows(table, kind)
                rows[rows >= 0] += self._starts[self._number(kind)]
            place = np.minimum(np.searchsorted(ids, rows), max(len(ids) - 1, 0))
            there = (rows >= 0) & (ids[place] == rows)  # the graph may leave nodes of the data set out
            of_tables.append(np.where(there, place, -1))
        return np.concatenate(of_tables)

    @cached_property
    def _starts(self) -> Array:
        """First node of each type in the data set, and the number of nodes."""
        return offsets([one.num_nodes for one in self.dataset.manifest.node_types])

    def check_coverage(self, most_missing: float) -> tuple[int, int]:
        """Return how many nodes have a vector, of how many of the types that the model knows.

        Raises RecipeError where more than that share of the nodes has none.
        """
        types = {self._number(kind) for table in self.manifest.node_tables if (kind := self._kind(table)) is not None}
        bounds = np.searchsorted(self.graph["node_ids"], self._starts)
        num_nodes = int(sum(bounds[t + 1] - bounds[t] for t in types))
        num_found = int(np.count_nonzero(self.nodes >= 0))
        missing = num_nodes - num_found
        if not num_nodes:
            theirs = ", ".join(one.kind for one in self.manifest.node_tables)
            raise RecipeError(
                f"preprocess.transforms: embedding: {self.name} knows nodes of the type {theirs}, and there are only "
                f"{', '.join(one.name for one in self.dataset.manifest.node_types)} here; name the types alike"
            )
        if missing <= most_missing * num_nodes and num_found:
            return num_found, num_nodes
        raise RecipeError(
            f"preprocess.transforms: embedding: {missing:,} of {num_nodes:,} nodes have no vector of "
            f"{self.name}, more than most_missing={most_missing:g} allows. {self._examples()} Train "
            f"{self.name.partition('@')[0]} on these nodes (recipe {self.manifest.recipe}), give both the same ids, or "
            "let more be missing (they get zeros): a larger most_missing"
        )

    def place(self, path: Path) -> None:
        """Write a matrix in the order of the graph's nodes, float32 (N, dim), scaled to a mean square of 1.

        Nodes without a vector have zeros. Raises DataError for numbers that are none.
        """
        draft, first = beside(path, ".partial"), 0
        out = create_array(draft, (self.graph.num_nodes, self.manifest.dim), np.float32)
        scale = np.float32(1 / max(self.manifest.mean_square**0.5, _TINY))
        for values in self._batches():
            nodes = self.nodes[first : first + len(values)]
            there = nodes >= 0
            out[nodes[there]] = values[there] * scale
            first += len(values)
        draft.rename(path)

    def _batches(self) -> Iterator[Array]:
        for table in self.manifest.node_tables:
            with pq.ParquetFile(self.folder / table.file) as file:
                name = next(f.name for f in file.schema_arrow if pa.types.is_fixed_size_list(f.type))
                for batch in file.iter_batches(_ROWS, columns=[name]):
                    values = matrix(batch.column(0))
                    if values.shape[1] != self.manifest.dim:
                        raise IntegrityError(
                            f"{self.folder / table.file} has vectors of {values.shape[1]}, its manifest says "
                            f"{self.manifest.dim}"
                        )
                    if not np.isfinite(values).all():
                        raise DataError(f"vectors of {self.name} hold nan or infinite numbers; train it again")
                    yield values

    def array(self, name: str) -> Iterator[Array]:
        """Yield an array of rows, some at a time, as nodes of the graph (-1: not in it)."""
        rows = np.load(self.folder / name, mmap_mode="r", allow_pickle=False)
        for part in blocks(len(rows), _ROWS):
            yield self.nodes[np.asarray(rows[part])]

    def _number(self, kind: str) -> int:
        return next(i for i, one in enumerate(self.dataset.manifest.node_types) if one.name == kind)

    def _kind(self, table: VectorTable) -> str | None:
        """Return the graph's node type that a table's nodes are of: that of its name, or the only one of both."""
        kinds = [one.name for one in self.dataset.manifest.node_types]
        if len(kinds) == len(self.manifest.node_tables) == 1:
            return kinds[0]
        return table.kind if table.kind in kinds else None

    def _rows(self, table: VectorTable, kind: str) -> Array:
        """Return where a table's nodes stand in the data set's table of a type: int64 (n,), -1: they do not."""
        manifest = self.dataset.manifest
        columns = self._id_columns(table)
        same = structure_digest(manifest) == self.manifest.structure
        if not same:
            refuse_numbers(self.name, table.own_ids, manifest, kind)
        if not same and "row" in columns:
            raise DataError(f"ids of {self.name} name several nodes each, so they cannot be found in another graph")
        numbers = np.asarray(columns["row"]) if "row" in columns else None
        count = manifest.node_types[self._number(kind)].num_nodes
        try:
            return find_rows(self.dataset, f"ids/{kind}", count, columns["id"], numbers)
        except DataError as error:
            raise DataError(f"the ids of {self.name} do not fit those of {manifest.dataset}: {error}") from error

    def _id_columns(self, table: VectorTable) -> dict[str, pa.Array]:
        with pq.ParquetFile(self.folder / table.file) as file:
            names = [name for name in ("id", "row") if name in file.schema_arrow.names]
            columns = file.read(columns=names).combine_chunks()
        if columns.num_rows != table.num_rows:
            raise IntegrityError(f"{self.folder / table.file} has {columns.num_rows:,} rows, not {table.num_rows:,}")
        return {name: pa.concat_arrays(columns.column(name).chunks) for name in names}

    def _examples(self) -> str:
        table, kind = next((one, kind) for one in self.manifest.node_tables if (kind := self._kind(one)) is not None)
        there = self._id_columns(table)["id"][:_SHOWN].to_pylist()
        here = list(range(_SHOWN))
        if f"ids/{kind}" in self.dataset:
            _, group = next(self.dataset.row_groups(f"ids/{kind}", ["original_id"]))
            here = group.column(0)[:_SHOWN].to_pylist()
        return f"Its ids are such as {', '.join(map(repr, there))}; here they are {', '.join(map(repr, here))}."


def refuse_numbers(name: str, own_ids: bool, manifest: DatasetManifest, kind: str) -> None:
    """Raise DataError unless the nodes of a type have ids of their own, here and where `name` was trained."""
    own_ids_here = has_own_ids(manifest, kind)
    if not (own_ids and own_ids_here):
        raise DataError(
            f"the nodes of {name} and those of {manifest.dataset} cannot be told to be the same: "
            f"{'one has' if own_ids or own_ids_here else 'both have'} no ids but numbers, and the two graphs differ; "
            "give nodes ids (dataset.nodes.id of tables), or train the vectors on this graph"
        )
