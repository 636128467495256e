"""Apply a model to a whole split in bounded memory: no sampling, no dropout, no gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from configs.errors import DataError, RecipeError
from models.base import GraphModel
from models.block import Batch, Block, Inputs
from models.kernels.sparse.segment import segment_reduce
from models.layers.output_heads import GraphHead
from models.relational.base import RelationalModel
from tasks.arrays import blocks
from tasks.edge_ends import ends_of
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.ranked_rows import RankedRows
from tasks.inference.kept_layers import KeptLayers
from tasks.inference.kept_rows import KeptRows
from tasks.inference.layerwise import CHUNK_EDGES, Layerwise, bounded_slices, chunk_rows, widest
from tasks.inference.ranked import RankedScores
from tasks.inference.row_stable import by_rows
from tasks.inference.rule import Rule
from tasks.inference.sampled import SampledScores
from tasks.inference.triples import TripleSplits
from tasks.negatives import draw_pool, graph_pairs
from tasks.ranking.rank import MEMORY
from tasks.sampling.graphs import GraphBatches
from tasks.sampling.rows.features import FeatureSource, whole_graph
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.manifests import SPLITS

# Up to this estimate a graph goes through all layers at once; above it, layer by layer.
WHOLE_GRAPH_BYTES = 1 << 30
_ROWS = 1 << 16
"""Whose outputs are handed on at a time."""
_NEGATIVE_SEED = 20_240_601  # where a split has no negatives: its own ones, the same in every evaluation


class Predictor:
    """Applies models to one graph. A small graph stays in memory between calls; a large one is read layer by layer."""

    def __init__(
        self,
        store: GraphStore,
        *,
        device: torch.device | None = None,
        batch_size: int = 16384,
        ranking_memory: int = MEMORY,
        scratch: Path | None = None,
        whole_graph_bytes: int = WHOLE_GRAPH_BYTES,
        chunk_edges: int = CHUNK_EDGES,
    ) -> None:
        """Open nothing yet.

        `device`: where the models are. `batch_size`: nodes, pairs or graphs that are scored at a time.
        `ranking_memory`: bytes that ranking triples may use. `scratch`: folder for the layers' outputs of large graphs;
        None: the system's own. `whole_graph_bytes`: up to this (estimated) size all layers run at once, else in chunks
        of `chunk_edges` edges.
        """
        self.store, self.device, self.scratch = store, device or torch.device("cpu"), scratch
        self.batch_size, self.ranking_memory = batch_size, ranking_memory
        self.whole_graph_bytes, self.chunk_edges = whole_graph_bytes, chunk_edges
        self._whole: dict[tuple[bool, ...], tuple[Block, Inputs]] = {}  # by what is read
        self.kept: KeptLayers | KeptRows | None = None
        """Where set, vectors of all nodes come from there, and each row's bits are its own."""
        self._layerwise: Layerwise | None = None
        self._sampled: dict[Any, SampledScores] = {}  # by fan-outs
        self._ranked: dict[SampledScores, RankedScores] = {}
        self._negatives: dict[str, Array] = {}

    @cached_property
    def triple_splits(self) -> TripleSplits:
        """The triples of a knowledge graph."""
        return TripleSplits(self.store, self.ranking_memory)

    def split_array(self, name: str) -> Array:
        """Return a split's array. Raises DataError where the graph has none."""
        if name not in self.store:
            raise DataError(f"{self.store.manifest.dataset} has no {name}; leave that split out of evaluate.splits")
        return self.store[name]

    def node_scores(self, model: GraphModel, nodes: Array) -> Array:
        """Score distinct nodes, int64 (n,): float32 (n, C)."""
        if isinstance(model, Rule):
            return model.node_scores(nodes)
        if isinstance(model, RelationalModel):
            with evaluating(model):
                return self._sampled_scores(model).scores(model, nodes, self.device, self.batch_size)
        scores = np.empty((len(nodes), model.facts.out_dim), np.float32)
        with evaluating(model):
            table = model.table  # its rows are read as they are needed
            vectors: Any = self.node_vectors(model, nodes) if table is None else None
            for part in blocks(len(nodes), self.batch_size):
                rows = vectors[part] if table is None else table[torch.from_numpy(nodes[part])]
                scores[part] = model.score(self.tensor(rows)).cpu().numpy()
        return scores

    def _sampled_scores(self, model: RelationalModel) -> SampledScores:
        """Return what scores rows by sampling around them; it stays for models that sample alike."""
        sampling = model.facts.fanouts, model.facts.newest
        if sampling not in self._sampled:
            self._sampled[sampling] = SampledScores(self.store, model)
        return self._sampled[sampling]

    def ranked(self, model: GraphModel, tasks: Array, k: int | None = None) -> RankedRows:
        """Rank all candidates for tasks, int64 (n,): where what is right stands, with the first `k` of each list."""
        if isinstance(model, Rule):
            return model.ranked(tasks, k)
        assert isinstance(model, RelationalModel), "others are refused where candidates are ranked"
        with evaluating(model):
            return self._ranked_scores(model).ranked(model, tasks, self.device, k)

    def _ranked_scores(self, model: RelationalModel) -> RankedScores:
        sampled = self._sampled_scores(model)
        if sampled not in self._ranked:
            self._ranked[sampled] = RankedScores(self.store, sampled.neighborhoods, self.scratch)
        return self._ranked[sampled]

    def link_pairs(self, split: str) -> tuple[Array, Array]:
        """Return the pairs that a split is measured by: edges (n, 2), and given or drawn negatives (..., 2).

        Raises DataError: the graph has no such split.
        """
        positive, negative = self.split_array(f"{split}_edges"), self.store.get(f"{split}_negative")
        if negative is None:
            negative = self._drawn_negatives(split, len(positive))
        return positive, negative

    def link_scores(
        self,
        model: GraphModel,
        positive: Array,
        negative: Array,
        relations: tuple[Array, Array] | None = None,
        *,
        split: str | None = None,
    ) -> Prediction:
        """Score positive and negative pairs as `link_pairs` gives them.

        `relations`: those asked about. `split`: whose pairs these are; ranks that hold a graph together have them too.
        """
        kinds = self.store.manifest.negative_kinds if negative.ndim == 3 else ()
        if isinstance(model, Rule):
            of_pairs = model.pair_scores(np.concatenate([np.asarray(positive), np.asarray(negative).reshape(-1, 2)]))
            parts = of_pairs[: len(positive)], of_pairs[len(positive) :].reshape(negative.shape[:-1])
            return Prediction(positive=parts[0], negative=parts[1], relations=relations, negative_kinds=kinds)
        of_true, of_false = relations if relations is not None and model.scores_relations else (None, None)
        with evaluating(model):
            vectors = self.node_vectors(model)
            return Prediction(
                positive=self.pair_scores(model, vectors, positive, of_true),
                negative=self.pair_scores(model, vectors, negative.reshape(-1, 2), of_false).reshape(
                    negative.shape[:-1]
                ),
                relations=relations,
                negative_kinds=kinds,
            )

    def _drawn_negatives(self, split: str, count: int) -> Array:
        """Return negatives of a split that has none, as preprocess draws those of the held-out splits: int (n, 2)."""
        if split not in self._negatives:
            manifest, edges = self.store.manifest, graph_pairs(self.store.get)
            number, directed = SPLITS.index(split), not manifest.symmetric
            ends = ends_of(self.store.get("edge_role"), self.store.get("edge_side"))
            pool = draw_pool(number, count, manifest.num_nodes, _NEGATIVE_SEED, edges, directed=directed, ends=ends)
            self._negatives[split] = np.stack([pool["src"], pool["dst"]], 1)
        return self._negatives[split]

    def pair_scores(self, model: GraphModel, vectors: Any, pairs: Array, relation: Array | None = None) -> Array:
        """Score pairs of rows of `vectors` (see `node_vectors`), int (n, 2): float32 (n,). Inside of `evaluating`.

        `relation`: that of each pair, int (n,), for models that score pairs by it.
        """
        scores = np.empty(len(pairs), np.float32)
        for part in blocks(len(pairs), self.batch_size):
            ends = np.asarray(pairs[part], np.int64)
            both = [self.tensor(vectors[ends[:, end]]) for end in (0, 1)]
            if relation is not None:
                both.append(self.tensor(np.asarray(relation[part], np.int64)))
            scores[part] = self._by_rows(model.score, *both)
        return scores

    def edge_outputs(self, model: GraphModel, edges: Array) -> Iterator[tuple[slice, Array]]:
        """Yield the scores of edges that the graph has rows of, int64 (n,), some at a time. In `evaluating`."""
        ends = np.asarray(self.store["edge_ends"][edges], np.int64)
        vectors, place = self._vectors_of(model, ends)
        carried = [(self.store.get("scored_feat"), np.float32), (self.store.get("scored_feat_cat"), np.int64)]
        for part in blocks(len(edges), self.batch_size):
            rows = [None if table is None else np.asarray(table[edges[part]], kind) for table, kind in carried]
            numbers, codes = (None if some is None else self.tensor(some) for some in rows)
            source, target = (self.tensor(vectors[place[part, end]]) for end in (0, 1))
            yield part, model.score_edges(source, target, numbers, codes).cpu().numpy()

    def edge_scores(self, model: GraphModel, edges: Array) -> Array:
        """Score edges as `edge_outputs` does: float32 (n, C)."""
        return _joined(model, len(edges), self.edge_outputs(model, edges))

    def _by_rows(self, function: Callable[..., Tensor], *rows: Tensor) -> Array:
        """Return function(*rows), which maps tensors (n, ...) row by row."""
        result = function(*rows) if self.kept is None else by_rows(function, *rows)
        return result.cpu().numpy()

    def graph_scores(self, model: GraphModel, graphs: Array) -> Array:
        """Score graphs, int64 (n,): float32 (n, C)."""
        return _joined(model, len(graphs), self.graph_outputs(model, graphs))

    def graph_batches(self, model: GraphModel, graphs: Array) -> Iterator[tuple[slice, Batch]]:
        """Yield graphs, int64 (n,), in batches of bounded size on the device, with their place among `graphs`."""
        loader = GraphBatches(self.store, FeatureSource.of(self.store, model), graphs)
        first, last = loader.offsets[graphs], loader.offsets[graphs + 1]
        work = (last - first) + (loader.indptr[last] - loader.indptr[first])
        for part in bounded_slices(np.cumsum(work), chunk_rows(model, self.chunk_edges), self.batch_size):
            yield part, loader.batch(np.arange(part.start, part.stop)).to(self.device)

    def pooled(self, model: GraphModel, graphs: Array) -> Iterator[tuple[slice, Array]]:
        """Yield the vectors of graphs, int64 (n,), some at a time with their place: float32 (n, D). In `evaluating`.

        Raises RecipeError: the model's head is one of its own.
        """
        if isinstance(model, Rule):
            raise no_vectors(model)
        if not isinstance(model.head, GraphHead):
            raise RecipeError(f"{model.config.name} has a head of its own: it has no vectors of graphs")
        for part, batch in self.graph_batches(model, graphs):
            assert batch.graph_offsets is not None
            vectors = segment_reduce(model.finish(model.represent(batch)), batch.graph_offsets, model.head.pooling)
            yield part, vectors.cpu().numpy()

    def graph_outputs(self, model: GraphModel, graphs: Array) -> Iterator[tuple[slice, Array]]:
        """Yield the scores of graphs as `pooled` yields vectors."""
        if isinstance(model, Rule):
            yield slice(0, len(graphs)), model.graph_scores(graphs)
            return
        for part, batch in self.graph_batches(model, graphs):
            yield part, model(batch).cpu().numpy()

    def finished(self, model: GraphModel, nodes: Array) -> Iterator[tuple[slice, Array]]:
        """Yield the vectors of nodes, int64 (n,), some at a time with their place: float32 (n, D). In `evaluating`."""
        return self._outputs(model, nodes, model.finish)

    def node_outputs(self, model: GraphModel, nodes: Array) -> Iterator[tuple[slice, Array]]:
        """Yield the scores of nodes as `finished` yields vectors."""
        if isinstance(model, Rule):
            distinct, rows = np.unique(nodes, return_inverse=True)
            yield slice(0, len(nodes)), model.node_scores(distinct)[rows]
            return
        yield from self._outputs(model, nodes, model.score)

    def _outputs(
        self, model: GraphModel, nodes: Array, function: Callable[[Tensor], Tensor]
    ) -> Iterator[tuple[slice, Array]]:
        vectors, rows = self._vectors_of(model, nodes)
        for part in blocks(len(nodes), _ROWS):
            yield part, self._by_rows(function, self.tensor(vectors[rows[part]]))

    def _vectors_of(self, model: GraphModel, nodes: Array) -> tuple[Any, Array]:
        """Return vectors, and where among them those of nodes stand; of all nodes where most are asked about."""
        most = self.kept is not None or 2 * nodes.size > self.store.manifest.num_nodes
        if most and not model.facts.fanouts and not isinstance(model, Rule):
            return self.node_vectors(model), nodes
        distinct, rows = np.unique(nodes, return_inverse=True)
        return self.node_vectors(model, distinct), rows.reshape(nodes.shape)

    def pair_scorer(self, model: GraphModel, pairs: Array) -> Callable[[slice, int | None], Array]:
        """Return what scores some of the pairs, int64 (n, 2), in one relation or in none: float32. In `evaluating`."""
        if isinstance(model, Rule):
            return lambda part, _: model.pair_scores(pairs[part])
        vectors, place = self._vectors_of(model, pairs)

        def score(part: slice, relation: int | None) -> Array:
            numbers = None if relation is None else np.full(len(place[part]), relation, np.int64)
            return self.pair_scores(model, vectors, place[part], numbers)

        return score

    def node_vectors(self, model: GraphModel, nodes: Array | None = None) -> Any:
        """Return the model's vectors of nodes, int64 (n,) distinct (None: all), by all their in-edges. In `evaluating`.

        They are float32 (n, model.vector_dim): a tensor on the device, a file's map (see `Layerwise.vectors`), or the
        table that the model is, wherever that lies.
        """
        if isinstance(model, Rule):
            raise no_vectors(model)
        if model.table is not None:
            return model.table if nodes is None else model.table[torch.from_numpy(nodes)]
        if isinstance(model, RelationalModel):
            assert nodes is not None, "vectors of typed graphs are those of rows that are predicted"
            if model.facts.rank_type is not None:
                return self._ranked_scores(model).seed_vectors(model, nodes, self.device)
            if isinstance(self.kept, KeptRows):
                return self.kept.vectors(model, nodes)
            return self._sampled_scores(model).vectors(model, nodes, self.device, self.scratch)
        if isinstance(self.kept, KeptLayers):
            return self.kept.vectors(model, nodes)
        features = FeatureSource.of(self.store, model)
        manifest = self.store.manifest
        carried_edges = manifest.num_edges if model.edge_facts is not None else 0
        # Some layers' rows, of edges too where they carry messages, and the CSC.
        whole_bytes = 16 * (manifest.num_nodes + carried_edges) * widest(model) + 16 * manifest.num_edges
        if model.is_layered and whole_bytes > self.whole_graph_bytes:
            if self._layerwise is None:
                self._layerwise = Layerwise(self.store, self.device, self.scratch, self.chunk_edges)
            return self._layerwise.vectors(model, features, nodes)
        carried = (
            model.edge_facts is not None,
            model.uses_edge_types,
            model.uses_node_types,
            model.config.edge_weights,
            model.config.label_reuse,
        )
        if carried not in self._whole:
            block, inputs = whole_graph(self.store, features)
            self._whole[carried] = block.to(self.device), inputs.to(self.device)
        block, inputs = self._whole[carried]
        vectors = model.represent(Batch([block], inputs, torch.empty(0), 0))
        return vectors if nodes is None else vectors[torch.from_numpy(nodes).to(self.device)]

    def tensor(self, values: Any) -> Tensor:
        """Return rows as a tensor on the device."""
        return (values if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values))).to(self.device)


def _joined(model: GraphModel, count: int, outputs: Iterator[tuple[slice, Array]]) -> Array:
    scores = np.empty((count, model.facts.out_dim), np.float32)
    with evaluating(model):
        for part, values in outputs:
            scores[part] = values
    return scores


def no_vectors(rule: Rule) -> RecipeError:
    """Return what is said where vectors are wanted of a control."""
    return RecipeError(f"this is {rule.what}, published in place of a model: it has predictions only")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No gradients, no dropout, running statistics; the mode of before comes back."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
