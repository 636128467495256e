"""Models with learnable embeddings of nodes: as a parameter, or as a table of rows in CPU memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from configs.errors import RecipeError
from configs.registry import EMBEDDINGS, MODELS
from models.base import GraphModel
from models.facts import GraphFacts
from models.relational.base import RelationalModel
from models.relational.configs import RelationalModelConfig
from tasks.storage.graph_store import ALWAYS, GraphStore
from tasks.train.embeddings.configs import DenseConfig, SparseConfig
from tasks.train.embeddings.host_tables import SparseEmbedding, without_table
from tasks.train.embeddings.sharded import ShardedEmbedding
from tasks.train.job import GnnJob
from tasks.train.strategies.base import Ranks

if TYPE_CHECKING:
    from tasks.sampling.parts.ranges import Ranges


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
