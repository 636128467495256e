"""A graph in a MATLAB file: a sparse matrix of edges, and one of nodes by the groups that they belong to."""

from __future__ import annotations

from typing import Any

import numpy as np

from configs.errors import DataError
from configs.registry import DATASETS
from tasks.arrays import Array
from tasks.ingest.base import FileDataset
from tasks.ingest.configs import MatConfig
from tasks.ingest.edges import EdgeCheck, refuse_weights
from tasks.ingest.labels import has_label, say_unlabelled
from tasks.readers.limits import MAX_ROW_BYTES, check_memory
from tasks.stage import StageContext
from tasks.storage.manifests import SPLITS

_EDGE_BYTES = 64
"""What an entry of the network takes while it is compared with its mirror image and made an edge."""
_LABEL_BYTES = 4
_ROUNDING = 1e-6
"""An entry and its mirror image that differ by no more of the larger one are one number, rounded twice."""


@DATASETS.register("mat")
class Mat(FileDataset):
    """A graph in a MATLAB file, with several labels a node, as BlogCatalog, Flickr and PPI are published."""

    config: MatConfig

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Check the matrices and write them as tables."""
        from tasks.ingest.dataset_fields import dataset_fields
        from tasks.ingest.writer import DatasetWriter
        from tasks.readers.arrays.matlab import read_matrices

        config = self.config
        matrices = read_matrices(self.path, [config.network, config.groups], self._check_shapes)
        network, label = matrices[config.network], self._labels(matrices[config.groups])
        edges, check, directed = self._edges(network)
        say_unlabelled(has_label(label), "node", context)
        splits = self._splits(np.flatnonzero(has_label(label)))
        with DatasetWriter(context.work) as writer:
            writer.write("nodes/node", {"node_id": np.arange(len(label), dtype=np.int64), "label": label})
            writer.write("edges/node__to__node", edges)
            for name, index in splits.items():
                writer.write(f"split/{name}", {"node_id": index})
        return dataset_fields(
            writer, self.path.stem, "multilabel", metric=config.metric, directed=directed, checks=[check]
        )

    def _check_shapes(self, shapes: dict[str, tuple[int, ...]]) -> None:
        config = self.config
        network, groups = shapes[config.network], shapes[config.groups]
        if network[0] != network[1]:
            words = f"has the shape {network}; (n, n) is needed, a row and a column for each node"
            raise DataError(f"{words} (option network)", path=self._member(config.network))
        if groups[0] != network[1]:
            words = f"has the shape {groups}; ({network[1]:,}, groups) is needed, a row for each node"
            raise DataError(f"{words} (option groups)", path=self._member(config.groups))

    def _edges(self, network: Any) -> tuple[dict[str, Array], EdgeCheck, bool]:
        """Return the table of edges, what was counted in it, and whether edges have a direction.

        They have none where the matrix is symmetric but for the rounding of numbers: the upper half counts then.

        Raises DataError: a weight is below 0, or not what float32 can hold.
        """
        import scipy.sparse as sp

        member, num_nodes = self._member(self.config.network), network.shape[0]
        check_memory(_EDGE_BYTES * network.nnz, "the table of edges", member)
        given = network.tocoo()
        refuse_weights(given.data.astype(np.float64), member, lambda at: (int(given.row[at]), int(given.col[at])))
        exact = network.astype(np.float64)
        mirror = exact.T.tocsc()
        directed = bool((abs(exact - mirror) > _ROUNDING * exact.maximum(mirror)).nnz)
        edges = (network if directed else sp.triu(network)).tocsr().tocoo()  # by source: ids that ascend take less room
        columns = {"src": edges.row.astype(np.int64), "dst": edges.col.astype(np.int64)}
        check = EdgeCheck(num_nodes, num_nodes)
        check.add(columns["src"], columns["dst"], member)
        if (edges.data != 1).any():
            columns["weight"] = edges.data.astype(np.float32)
        return columns, check, directed

    def _labels(self, groups: Any) -> Array:
        """Return (nodes, groups) float32 of 0 and 1; NaN where a node has no group."""
        member, (num_nodes, num_groups) = self._member(self.config.groups), groups.shape
        if num_groups * _LABEL_BYTES > MAX_ROW_BYTES:
            words = f"has {num_groups:,} groups; a row may have {MAX_ROW_BYTES:,} bytes, {_LABEL_BYTES} a group"
            raise DataError(f"{words}: keep the most frequent ones", path=member)
        check_memory(num_nodes * num_groups * _LABEL_BYTES, "the matrix of labels", member)
        entries = groups.tocoo()
        below = np.flatnonzero(entries.data < 0)
        if len(below):
            at = below[0]
            raise DataError(
                f"holds {entries.data[at]:g} ({len(below):,} such entries): 1 is where a node is in a group, else 0 "
                "(a row of zeros is a node without label)",
                path=member,
                row=int(entries.row[at]),
                column=int(entries.col[at]),
            )
        label = (groups != 0).astype(np.float32).toarray(order="C")
        label[~label.any(1)] = np.nan
        return label

    def _member(self, name: str) -> str:
        return f"{self.path}[{name}]"

    def _splits(self, nodes: Any) -> dict[str, Any]:
        config = self.config
        order = np.random.Generator(np.random.Philox(config.seed)).permutation(nodes)
        valid, test = (round(share * len(nodes)) for share in (config.valid_share, config.test_share))
        cut = {"valid": order[:valid], "test": order[valid : valid + test], "train": order[valid + test :]}
        empty = [name for name in SPLITS if not len(cut[name])]
        if empty:
            raise DataError(
                f"the {empty[0]} split is empty ({len(nodes):,} nodes have a group)", path=self._member(config.groups)
            )
        return {name: np.sort(cut[name]) for name in SPLITS}
