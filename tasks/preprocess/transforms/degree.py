"""Features from a node's own edges: degree and edge_mean."""

from __future__ import annotations

import numpy as np

from configs.errors import RecipeError
from configs.registry import TRANSFORMS
from tasks.arrays import Array
from tasks.preprocess.transforms.base import Column, GraphView, StructureTransform

_CHUNK_NODES = 1 << 16


@TRANSFORMS.register("degree")
class Degree(StructureTransform):
    """Add a node's degree as a feature: in- and out-degree, or one number where the graph is symmetric."""

    def column(self, graph: GraphView) -> Column:
        return Column("degree", "numeric", 1 if graph.symmetric else 2)

    def compute(self, graph: GraphView, first: int, last: int) -> Array:
        """Degrees of nodes first to last."""
        names = ("csc_indptr",) if graph.symmetric else ("csc_indptr", "csr_indptr")
        degrees = np.stack([np.diff(graph[name][first : last + 1]) for name in names], 1).astype(np.float32)
        return np.log1p(degrees) if self.config.log else degrees


@TRANSFORMS.register("edge_mean")
class EdgeMean(StructureTransform):
    """Add the mean of a node's in-edges' features: what nodes without features of their own can start from."""

    def column(self, graph: GraphView) -> Column:
        entry = graph.entries.get("edge_feat")
        if entry is None:
            raise RecipeError("preprocess.transforms: edge_mean needs numeric edge features, and the data set has none")
        return Column("edge_mean", "numeric", entry.shape[1])

    def compute(self, graph: GraphView, first: int, last: int) -> Array:
        """Means of nodes first to last; 0 where a node has no in-edge."""
        indptr, edge_feat = graph["csc_indptr"], graph["edge_feat"]
        means = np.zeros((last - first, edge_feat.shape[1]), np.float32)
        for start in range(first, last, _CHUNK_NODES):
            end = min(start + _CHUNK_NODES, last)
            bounds = np.asarray(indptr[start : end + 1])
            degree = np.diff(bounds)
            some = degree > 0
            rows = edge_feat[bounds[0] : bounds[-1]].astype(np.float64)
            if len(rows):
                sums = np.add.reduceat(rows, (bounds[:-1] - bounds[0])[some], axis=0)
                means[start - first : end - first][some] = sums / degree[some, None]
        return means
