"""Models that are a vector for each node: what remains of a training by samples, and what is done with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from configs.errors import RecipeError
from models.base import GraphModel
from models.block import Batch
from models.facts import GraphFacts
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.row_tables import RowTable
from models.layers.encoders import NodeEncoder
from models.layers.output_heads import LinkHead, NodeHead
from models.vectors.configs import VectorModelConfig


class RowsModel(GraphModel):
    """A table with a row for each node, and no layers: a node's vector is its row."""

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Make the table. Raises RecipeError: such a model is not for the graph's task."""
        nn.Module.__init__(self)
        config.check_task(facts.task)
        self.config, self.facts = config, facts
        self.encoder = NodeEncoder(replace(facts, feature_dim=0, categories=()), self.vector_dim, project=False)
        self.layers = nn.ModuleList()
        self.finish = nn.Identity()

    @property
    def table(self) -> Tensor:
        """The rows, float32 (N, dim), wherever they are."""
        assert self.encoder.embedding is not None
        return self.encoder.embedding.weight

    @property
    def vector_dim(self) -> int:
        """Columns of a node's row."""
        return int(self.config.dim)

    def represent(self, batch: Batch) -> Tensor:
        """Return the last block's destinations as rows: (num_dst, dim)."""
        count = batch.blocks[-1].num_dst if batch.blocks else len(batch.inputs.node_ids)
        rows: Tensor = self.encoder(batch.inputs)
        return rows[:count]


class VectorModel(RowsModel):
    """A table of vectors and a head that reads them: a linear map to classes, or a score of pairs.

    Vectors are learnt elsewhere (`tasks/train/tables`) and set here, and
    so is the head.
    """

    encoder: NodeEncoder
    head: NodeHead | LinkHead

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for tasks on whole graphs."""
        super().__init__(config, facts)
        self.lengths: Tensor
        self.register_buffer("lengths", torch.ones(facts.num_nodes))
        """float32 (N,): length of each node's vector as it was learnt."""
        self.head = self.make_head()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        """Take the lengths of whatever number of nodes: a model whose table stays in a file is made without it."""
        self.lengths = torch.empty_like(state_dict.get(f"{prefix}lengths", self.lengths))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def make_head(self) -> NodeHead | LinkHead:
        """Return the head of the task."""
        if self.facts.scores_pairs:
            if self.config.score == "mlp":
                return LinkHead(self.config.dim, 2 * self.config.dim, "mlp", 3, 0.0)
            kind = "mlp" if self.config.score == "hadamard" else self.config.score
            return LinkHead(self.config.dim, self.config.dim, kind, 1, 0.0)
        return NodeHead(self.config.dim, self.facts.out_dim)


@dataclass(frozen=True)
class Samples:
    """Positive samples and what is drawn against them, by rows of the tables."""

    centres: NDArray[Any]
    """Rows of the centres' tables (n,)."""
    contexts: NDArray[Any]
    """Rows of the contexts' tables (n,)."""
    negatives: NDArray[Any]
    """Rows of the contexts' tables (n / shared_negatives rounded up, negatives)."""

    @property
    def rows(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Centres, contexts and negatives."""
        return self.centres, self.contexts, self.negatives


@dataclass(frozen=True)
class DeviceSamples:
    """Samples on a device, in C chunks with room for n positive ones each."""

    centres: Tensor
    """Rows of the centres' tables, int32 or int64 (C, n)."""
    contexts: Tensor
    """Rows of the contexts' tables, likewise."""
    negatives: Tensor
    """Rows of the contexts' tables (C, n / shared_negatives rounded up, negatives)."""
    counts: Tensor
    """int64 (C,), how many positive samples of each chunk there are."""

    @property
    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Centres, contexts and negatives."""
        return self.centres, self.contexts, self.negatives


Meeting = Mapping[str, tuple[RowTable, RowTable]]
"""By pairing: the tables, or blocks of them, that hold the rows of centres and of contexts."""
DeviceMeeting = Mapping[str, tuple[DeviceTable, DeviceTable]]
"""A meeting on a device."""
AnyMeeting = Meeting | DeviceMeeting


class LearntFromSamples:
    """What a model says whose rows are learnt from pairs of near nodes, against drawn ones."""

    @classmethod
    def learn(cls, config: Any, tables: Meeting, samples: Samples, rate: float, noise: int) -> None:
        """Take a step for each positive sample, in place.

        Args:
            config: the model's options.
            tables: what the samples' nodes meet in.
            samples: what is learnt from.
            rate: learning rate.
            noise: seed of what is rounded by chance, above 0; another one in every call.
        """
        raise AssertionError(f"{cls.__name__} defines no learn")

    @classmethod
    def learn_on_device(
        cls, config: Any, tables: DeviceMeeting, samples: DeviceSamples, rates: Tensor, noise: int
    ) -> None:
        """Take a step for each positive sample, in place, on a GPU; a model that does not define this trains on CPUs.

        Args:
            config: the model's options.
            tables: what the samples' nodes meet in.
            samples: what is learnt from, in chunks.
            rates: learning rate of each chunk, float32 (C,).
            noise: as in `learn`.
        """
        raise AssertionError(f"{cls.__name__} defines no learn_on_device")

    @classmethod
    def loss(cls, config: Any, tables: AnyMeeting, samples: Samples) -> float:
        """Return the mean loss of the positive samples; arguments as in `learn`."""
        raise AssertionError(f"{cls.__name__} defines no loss")

    @classmethod
    def vectors(
        cls, config: Any, rows: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]]
    ) -> NDArray[np.float32]:
        """Return nodes' vectors, (n, dim), from their rows as centres and as contexts, (n, width) each, by pairing."""
        raise AssertionError(f"{cls.__name__} defines no vectors")


class SampledModel(LearntFromSamples, VectorModel):
    """A model whose vectors are learnt from pairs of near nodes, against drawn ones. A new objective is one file:

        @MODELS.register("mine")
        class Mine(SampledModel):
            \"\"\"One line for `graphmill models`.\"\"\"

            class Config(SampledConfig):
                alpha: float = 0.1
                \"\"\"Options of its own.\"\"\"

    and `learn`, `loss` and `vectors`, as below; with `learn_on_device` it trains on GPUs too. `Config.pairings` names
    the tables that are learnt.
    """


@dataclass(frozen=True)
class FactorGraph:
    """What factorisations read of a graph."""

    adjacency: Adjacency
    """Nodes as destinations, the ends of their out-edges as sources."""
    weight: Tensor | None
    """float32 (E,), in the order of the edges, none below 0 and 1 in the mean; None: ones."""
    pairs: Callable[[int, int, float], Iterator[tuple[NDArray[Any], NDArray[Any]]]]
    """pairs(length, window, count) yields centres and contexts of about `count` pairs on walks from random edges."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.adjacency.num_dst

    def strengths(self) -> Tensor:
        """Return the sum of the weights of each node's out-edges: float32 (N,)."""
        if self.weight is None:
            return self.adjacency.degrees().float()
        return torch.zeros(self.num_nodes).index_add_(0, self.adjacency.targets(), self.weight)


class FactoredModel(VectorModel):
    """A model whose vectors are computed from the graph, without samples to learn from. A new one is one file."""

    @classmethod
    def compute(cls, config: Any, graph: FactorGraph, seed: int, say: Callable[[str], None]) -> Tensor:
        """Return what `factor` does. Raises RecipeError: the vectors say nothing."""
        vectors = cls.factor(config, graph, seed, say)
        finite = bool(vectors.isfinite().all())
        if finite and bool(vectors.any()):
            return vectors
        fault = "nothing but zeros" if finite else "numbers that are not finite"
        own_options = sorted(set(type(config).model_fields) - set(VectorModelConfig.model_fields))
        options = ", ".join(f"{name}={getattr(config, name)}" for name in own_options)
        raise RecipeError(
            f"{config.name} makes {fault} of this graph with {options}: leave out the options that are not as usual "
            f"(graphmill models {config.name} lists them), or take another model"
        )

    @classmethod
    def factor(cls, config: Any, graph: FactorGraph, seed: int, say: Callable[[str], None]) -> Tensor:
        """Return nodes' vectors, float32 (N, dim).

        Args:
            config: the model's options.
            graph: without the edges that the task holds out.
            seed: of all that is drawn.
            say: called with what is computed now, for people.
        """
        raise AssertionError(f"{cls.__name__} defines no factor")
