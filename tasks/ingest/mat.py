"""A graph in a MATLAB file: a sparse matrix of edges, and one of nodes by the groups that they belong to."""

from __future__ import annotations

from typing import Any

import numpy as np

from configs.errors import DataError
from configs.registry import DATASETS
from tasks.ingest.base import FileDataset
from tasks.ingest.configs import MatConfig
from tasks.stage import StageContext
from tasks.storage.manifests import SPLITS


@DATASETS.register("mat")
class Mat(FileDataset):
    """A graph in a MATLAB file, with several labels a node, as BlogCatalog, Flickr and PPI are published."""

    Config = MatConfig

    config: MatConfig

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Check the matrices and write them as tables."""
        import scipy.sparse as sp

        from tasks.ingest.edges import EdgeCheck
        from tasks.ingest.writer import DatasetWriter
        from tasks.readers.matlab import read_matrices
        from tasks.storage.manifests import EdgeType, NodeType

        config = self.config
        found = read_matrices(self.path, [config.network, config.groups])
        network, groups = found[config.network], found[config.groups]
        num_nodes = network.shape[0]
        if network.shape[1] != num_nodes or not num_nodes:
            raise DataError(f"has the shape {network.shape}; (n, n) is needed", path=self._member(config.network))
        if groups.shape[0] != num_nodes or not groups.shape[1]:
            shape = f"({num_nodes:,}, groups)"
            raise DataError(f"has the shape {groups.shape}; {shape} is needed", path=self._member(config.groups))
        directed = bool((network != network.T).nnz)
        edges = (network if directed else sp.triu(network)).tocoo()
        check = EdgeCheck(num_nodes, num_nodes)
        ends: list[Any] = [np.asarray(end, np.int64) for end in (edges.row, edges.col)]
        check.add(ends[0], ends[1], self._member(config.network))
        columns = {"src": ends[0], "dst": ends[1]}
        if len(edges.data) and (edges.data != 1).any():
            if (edges.data < 0).any():
                raise DataError("has weights below 0", path=self._member(config.network))
            columns["weight"] = edges.data.astype(np.float32)
        label = (groups != 0).toarray().astype(np.float32)
        splits = self._splits(np.flatnonzero(label.any(1)))
        label[~label.any(1)] = np.nan
        with DatasetWriter(context.work) as writer:
            writer.write("nodes/node", {"node_id": np.arange(num_nodes, dtype=np.int64), "label": label})
            writer.write("edges/node__to__node", columns)
            for name, index in splits.items():
                writer.write(f"split/{name}", {"node_id": index})
        return {
            "dataset": self.path.stem,
            "task": "node",
            "task_type": "multilabel",
            "num_classes": 2,
            "num_tasks": label.shape[1],
            "metric": config.metric,
            "directed": directed,
            "node_types": (NodeType(name="node", num_nodes=num_nodes, features=()),),
            "edge_types": (EdgeType(source="node", relation="to", target="node", num_edges=len(ends[0])),),
            "target_type": "node",
            "splits": {name: len(index) for name, index in splits.items()},
            "num_self_loops": check.num_self_loops,
            "num_duplicate_edges": check.num_duplicates,
            "tables": writer.tables,
        }

    def _member(self, name: str) -> str:
        return f"{self.path}[{name}]"

    def _splits(self, nodes: Any) -> dict[str, Any]:
        """Deal out nodes at random; ascending in each split."""
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
