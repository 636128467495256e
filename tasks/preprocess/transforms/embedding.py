"""Transform that adds vectors of the nodes, computed from the graph's edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import RecipeError
from configs.registry import MODELS, TRANSFORMS
from models.vectors.base import FactoredModel
from models.vectors.factorization import unit_rows
from tasks.arrays import Array
from tasks.preprocess.transforms.base import Column, GraphView, StructureTransform
from tasks.preprocess.transforms.vectors import NodeVectors
from tasks.sampling.factor_graph import factor_graph
from tasks.storage.artifacts import atomic_file
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.file_names import file_name

_TINY = 1e-30


@TRANSFORMS.register("embedding")
class Embedding(StructureTransform):
    """Add vectors of the nodes, with the mean square of a number 1: a registered model's, or a factorisation's.

    A factorisation reads what the first layer of a GNN reads: on link tasks without the edges that are held out, and no
    labels. What a registered model's training saw is compared with what is held out (`take_vectors`).
    """

    def column(self, graph: GraphView) -> Column:
        """Return one number for each of the model's dimensions."""
        dim = self.config.dim
        if graph.get("graph_offsets") is not None:
            raise RecipeError("preprocess.transforms: embedding knows nodes of one graph, and this is a set of graphs")
        if self.config.model is not None:
            return Column("embedding", "numeric", self._vectors(graph).manifest.dim)
        if dim > graph.num_nodes:
            raise RecipeError(
                f"preprocess.transforms: embedding has dim={dim}, more than the {graph.num_nodes:,} nodes of the "
                "graph; lower it"
            )
        if not len(graph["csr_indices"]):
            raise RecipeError("preprocess.transforms: embedding has no edges to read; remove it")
        return Column("embedding", "numeric", dim)

    def reads(self, graph: GraphView) -> dict[str, Any]:
        """Vectors of a registered model come by the nodes' ids; those of a method from the edges."""
        if self.config.model is None:
            return super().reads(graph)
        dataset = DatasetStore.open(Path(graph.dataset))
        return {"data": dataset.manifest.digest, "nodes": graph.digest("node_ids")}

    def prepare(self, graph: GraphView) -> None:
        """Compute the vectors of all nodes, into a file that jobs read their rows from."""
        if self.config.model is not None:
            self._vectors(graph).place(self._place(graph))
            return
        options: Any = self.config.method_options()
        model: type[FactoredModel] = MODELS.get(self.config.method)
        arrays = factor_graph(graph, symmetric=graph.symmetric, seed=self.config.seed, weighted=options.weighted)
        vectors = model.compute(options, arrays, self.config.seed, lambda what: None)
        if options.normalize:
            vectors = unit_rows(vectors)
        vectors /= vectors.square().mean().sqrt().clamp(min=_TINY)
        with atomic_file(self._place(graph)) as file:
            np.save(file, vectors.numpy())

    def compute(self, graph: GraphView, first: int, last: int) -> Array:
        """Return the vectors of some nodes."""
        if not self._place(graph).exists():
            self.prepare(graph)
        return np.array(np.load(self._place(graph), mmap_mode="r")[first:last])

    def finish(self, graph: GraphView) -> None:
        """Remove the file."""
        self._place(graph).unlink(missing_ok=True)

    def _vectors(self, graph: GraphView) -> NodeVectors:
        return NodeVectors(self.config.model, self.config.vectors, graph)

    def _place(self, graph: GraphView) -> Path:
        return Path(graph.folder) / file_name("embedding-scratch.npy")


@TRANSFORMS.register("served_embedding")
class ServedEmbedding(Embedding):
    """The transform embedding where nothing is held out; `graphmill predict` puts it into recipes."""
