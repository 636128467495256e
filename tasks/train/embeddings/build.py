"""Models with learnable embeddings of nodes: as a parameter, or as a table of rows in CPU memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from configs.errors import RecipeError
from configs.registry import EMBEDDINGS, MODELS
from models.base import GraphModel
from models.facts import GraphFacts
from models.relational.base import RelationalModel
from models.relational.configs import RelationalModelConfig
from tasks.arrays import offsets
from tasks.inference.layerwise import scratch_array
from tasks.sampling.parts.kernels import count_owners, deal_out
from tasks.sampling.parts.ranges import Ranges
from tasks.storage.graph_store import ALWAYS, GraphStore
from tasks.train.embeddings.configs import DenseConfig, SparseConfig
from tasks.train.embeddings.host_tables import SPREAD_ROWS, SparseEmbedding, coalesce, draw_rows, without_table
from tasks.train.job import GnnJob
from tasks.train.strategies.base import Ranks


@EMBEDDINGS.register("dense")
class DenseEmbeddings:
    """The model as it is."""

    def __init__(self, config: DenseConfig) -> None:
        self.config = config

    def build(self, job: GnnJob, facts: GraphFacts, ranks: Ranks, ranges: Ranges | None = None) -> GraphModel:
        """Build the recipe's model on the CPU.

        Raises RecipeError: the graph lies in parts (`ranges`), and each rank would hold a row for every node of it.
        """
        if ranges is not None and ranks.world_size > 1 and not (facts.feature_dim or facts.categories):
            raise RecipeError(
                "train.strategy=partitioned: the nodes have no features, and with train.embeddings=dense every rank "
                "would learn rows for all of them; take train.embeddings=sparse, whose rows lie with their nodes"
            )
        model: GraphModel = MODELS.create(job.model, facts)
        return model


@EMBEDDINGS.register("sparse")
class SparseEmbeddings:
    """Puts a table of rows where the model would have a parameter."""

    def __init__(self, config: SparseConfig) -> None:
        self.config = config

    def build(self, job: GnnJob, facts: GraphFacts, ranks: Ranks, ranges: Ranges | None = None) -> GraphModel:
        """Build the recipe's model on the CPU, with its table in the memory that the machine's ranks share.

        `ranges`: where the graph lies in parts, each rank holds the rows of its own nodes.

        Raises RecipeError: there are no nodes to embed.
        """
        if isinstance(job.model, RelationalModelConfig):
            return self._beside_features(job, facts, ranks)
        if facts.feature_dim or facts.categories or facts.many_graphs:
            graphs = facts.many_graphs
            why = "nodes of unseen graphs have no rows of their own" if graphs else "the nodes have features"
            raise RecipeError(f"train.embeddings=sparse: {why}, so there is nothing to embed; remove the option")
        model = without_table(job.model, facts)
        if model.encoder.embedding is None:
            raise RecipeError(f"train.embeddings=sparse: {job.model.name} embeds no nodes; remove it")
        dim = model.encoder.embedding.embedding_dim
        options = facts.num_nodes, dim, self.config, ranks, job.seed
        if ranges is None:
            model.encoder.embedding = SparseEmbedding(*options)  # type: ignore[assignment]
        else:
            model.encoder.embedding = ShardedEmbedding(*options, ranges)  # type: ignore[assignment]
        return model

    def _beside_features(self, job: GnnJob, facts: GraphFacts, ranks: Ranks) -> GraphModel:
        """Build a model of typed graphs, which may learn vectors of single rows beside their columns."""
        if not job.model.embedded(facts):  # type: ignore[attr-defined] # a RelationalModelConfig
            return DenseEmbeddings(DenseConfig()).build(job, facts, ranks)
        model: Any = without_table(job.model, facts)
        rows = model.encoder.ids
        model.encoder.embedding = SparseEmbedding(rows.num_rows, rows.dim, self.config, ranks, job.seed)
        return model


def clear_later_rows(model: nn.Module, store: GraphStore) -> None:
    """Set to 0 the learnt vectors of rows of tables that came later than all that a training sees.

    What they begin with would be noise in scores. A task sees rows before its moment; a row that is predicted itself
    also what is of its own time.
    """
    if not isinstance(model, RelationalModel) or not model.embedded or "node_time" not in store:
        return
    time, facts = np.asarray(store["node_time"]), model.facts
    last = int(time[store.training_rows()].max(initial=ALWAYS))
    if last == ALWAYS:
        return  # what is predicted has no times, and sees everything
    is_task = facts.label_type != facts.seed_type
    later = np.flatnonzero(time >= last if is_task else time > last)
    own = later if "node_ids" not in store else np.asarray(store["node_ids"][later], np.int64)
    offsets, first = store.manifest.type_offsets, 0
    assert model.encoder.embedding is not None
    weight: Any = model.encoder.embedding.weight
    with torch.no_grad():
        for t in model.embedded:
            numbers = own[(own >= offsets[t]) & (own < offsets[t + 1])] - offsets[t]
            weight[torch.from_numpy(first + numbers)] = 0
            first += facts.type_sizes[t]


_GATHERED_ROWS = 1 << 16


class ShardedEmbedding(SparseEmbedding):
    """A table whose rows lie with their nodes: int64 ids (n,) -> float32 (n, dim) on the ids' device.

    Where gradients are computed all ranks call it together; else only a rank's own rows can be looked up.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, config: SparseConfig, ranks: Ranks, seed: int, ranges: Ranges
    ) -> None:
        """Make this rank's rows; `ranges` says which those are."""
        self.ranges = ranges
        super().__init__(num_embeddings, embedding_dim, config, ranks, seed)
        self.copies = 1

    def begin_rows(self, num_rows: int, dim: int) -> Tensor:
        """Return this rank's own rows, as they begin."""
        first, end = self.ranges.own
        weight = torch.zeros(end - first, dim)
        draw_rows(weight.numpy(), first, self.bound, self.seed)
        return weight

    def make_zeros(self, shape: tuple[int, ...]) -> Tensor:
        """Return memory of this rank's own."""
        return torch.zeros(shape)

    def look_up(self, node_ids: Tensor) -> Tensor:
        """Return rows, float32 (n, dim), of nodes on the CPU."""
        if not torch.is_grad_enabled():
            return self.weight.index_select(0, node_ids - self.ranges.own[0])
        return torch.from_numpy(self.ranges.fetch_any(self.weight.numpy(), node_ids.numpy()))

    def share_gradients(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Send gradients to the ranks that hold their rows; return those of this rank's, by place in its table."""
        bounds, exchange, nodes = self.ranges.bounds, self.ranges.exchange, ids.numpy()
        counts = np.zeros(exchange.world_size, np.int64)
        count_owners(nodes, 0, 0, bounds, counts)
        order, place = np.empty_like(nodes), np.empty(len(nodes), np.int64)
        deal_out(nodes, 0, 0, bounds, offsets(counts)[:-1], nodes[:0], order, place)
        sent = np.empty_like(rows.numpy())
        sent[~place] = rows.numpy()
        back = exchange.counts(counts[:, None])[:, 0].tolist()
        own = exchange.send(order, counts.tolist(), back) - self.ranges.own[0]
        grads = exchange.send(sent, counts.tolist(), back)
        grads /= np.float32(self.ranks.world_size)
        count = coalesce(own, grads, self._slots, 0, 1)
        return torch.from_numpy(own[:count]), torch.from_numpy(grads[:count])

    def gathered(self, tables: dict[str, Tensor], scratch: Path, *, writes: bool) -> dict[str, Tensor]:
        """Bring all ranks' rows of tables (own rows, ...) together on the ranks that write; all ranks together.

        They lie in mapped files in `scratch`, which go with the last look at them. Others get no table.
        """
        exchange, bounds, whole = self.ranges.exchange, self.ranges.bounds, {}
        for name, rows in tables.items():
            flat = rows.reshape(len(rows), rows.shape[1:].numel()).numpy()
            out = scratch_array(scratch, int(bounds[-1]), flat.shape[1]) if writes else None
            for first in range(0, exchange.largest(len(flat)), _GATHERED_ROWS):
                pieces, start = exchange.gather(np.ascontiguousarray(flat[first : first + _GATHERED_ROWS])), 0
                if out is None:
                    continue
                for low, end in zip(bounds[:-1] + first, bounds[1:], strict=True):
                    count = max(0, min(_GATHERED_ROWS, int(end - low)))
                    out[low : low + count] = pieces[start : start + count]
                    start += count
            if out is not None:
                whole[name] = torch.from_numpy(out).reshape(len(out), *rows.shape[1:])
        return whole

    def beginning(self) -> Tensor:
        """Return the rows of all ranks as they begin, float32 (num_embeddings, dim), mapped from a file."""
        rows = np.asarray(scratch_array(None, self.num_embeddings, self.embedding_dim))
        draw_rows(rows, 0, self.bound, self.seed)
        return torch.from_numpy(rows)

    def _take(self, own: Tensor, saved: Tensor | None) -> None:
        """Fill this rank's rows, (own, ...), from rank 0's `saved` (N, ...), a piece at a time."""
        first, end = self.ranges.own
        for start in range(0, self.num_embeddings, SPREAD_ROWS):
            stop = min(start + SPREAD_ROWS, self.num_embeddings)
            piece = torch.empty(stop - start, *own.shape[1:]) if saved is None else saved[start:stop].clone()
            if self.ranks.world_size > 1:
                dist.broadcast(piece, 0)
            low, high = max(first, start), min(end, stop)
            if low < high:
                own[low - first : high - first] = piece[low - start : high - start]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Nothing: `gathered` brings the rows of all ranks together."""
