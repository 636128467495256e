"""What relational models share: encoders by type, layers over relations, a head on the rows that are asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from configs.errors import RecipeError
from models.base import GraphModel
from models.facts import GraphFacts
from models.layers.layer import Activation, make_norm, normalise
from models.layers.output_heads import NodeHead
from models.relational.batch import RankingBatch, TypedBatch, TypedBlock
from models.relational.configs import ImportanceWalksConfig
from models.relational.encoders import TypedEncoder
from models.relational.ranking import RankingHead


def message_relations(facts: GraphFacts) -> tuple[int, ...]:
    """Return the relations that carry messages: all, but those to or from tasks (an entity at a moment)."""
    tasks = facts.label_type if facts.label_type != facts.seed_type else -1
    return tuple(number for number, ends in enumerate(facts.relation_ends) if tasks not in ends)


@dataclass(frozen=True)
class LayerPlan:
    """What one layer computes: only what the layers after it read, so that every weight takes part in every step."""

    targets: tuple[int, ...]
    """Types of its destinations."""
    relations: tuple[int, ...]
    """Relations into these."""
    sources: frozenset[int]
    """Types of its sources, the destinations among them."""


def plan_hops(facts: GraphFacts, num_layers: int) -> list[LayerPlan]:
    """Return the layers of a model, from the outermost to the one whose destinations are the seeds."""
    hops: list[LayerPlan] = []
    targets = frozenset(t for t in (facts.seed_type, facts.rank_type) if t is not None)
    for _ in range(num_layers):
        relations = tuple(r for r in message_relations(facts) if facts.relation_ends[r][1] in targets)
        sources = targets | {facts.relation_ends[r][0] for r in relations}
        hops.insert(0, LayerPlan(tuple(sorted(targets)), relations, sources))
        targets = sources
    return hops


class TypedConv(nn.Module):
    """One convolution over relations: forward(block, x by type (num_src_t, in)) -> by target type (num_dst_t, out)."""

    def forward(self, block: TypedBlock, x: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Convolve."""
        raise AssertionError(f"{type(self).__name__} defines no forward")


class RelationalLayer(nn.Module):
    """Convolution, then norm, activation, dropout and residual of each type by itself."""

    def __init__(self, conv: TypedConv, hop: LayerPlan, config: Any, *, activate: bool) -> None:
        """`activate`: whether activation and dropout stand after the norm."""
        super().__init__()
        self.conv, self.hop = conv, hop
        self.out_dim: int = config.hidden_dim
        self.residual = getattr(config, "residual", False)
        self.norms = nn.ModuleDict({str(t): make_norm(config.norm, config.hidden_dim) for t in hop.targets})
        self.activation = Activation(config.activation, config.dropout) if activate else nn.Identity()

    def forward(self, block: TypedBlock, x: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Run the layer: x by type (num_src_t, dim) -> by target type (num_dst_t, dim)."""
        y = self.conv(block, x)
        for number in self.hop.targets:
            y[number] = normalise(self.norms[str(number)], self.activation, y[number])
            if self.residual:
                y[number] = y[number] + x[number][: block.num_dst[number]]
        return y


class RelationalModel(GraphModel):
    """Encoders by type, layers over relations, and a linear map from the seeds' vectors to their scores.

    `forward` takes a `TypedBatch`. The model is sized by the relations that lead to the seeds within its layers, and
    has no weights for others.
    """

    uses_edge_features = True
    uses_edge_types = True
    uses_node_types = True
    activates = True
    """Whether activation and dropout stand after each layer's norm."""

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for a graph that does not say which types its relations join."""
        config.check_facts(facts, weighs_edges=False)
        self.hops = self.plan(facts, config.num_layers)
        super().__init__(config, facts)
        self.row_numbers: dict[int, Any] = {}
        """By type int64 (n,): see `numbered`."""

    # ---- what a model defines

    def plan(self, facts: GraphFacts, num_layers: int) -> list[LayerPlan]:
        """Return what each layer computes, from the outermost on."""
        return plan_hops(facts, num_layers)

    def make_typed_conv(self, hop: LayerPlan) -> TypedConv:
        """Return one convolution, from hidden_dim to hidden_dim columns."""
        raise RecipeError(
            f"model.name={self.config.name}: its class {type(self).__name__} has to define make_typed_conv(hop)"
        )

    # ----

    def make_encoder(self) -> Any:
        """Return the encoders of the types that the first layer reads."""
        return TypedEncoder(self.facts, self.hops[0].sources, self.config)

    def make_layers(self, in_dim: int) -> nn.ModuleList:
        """Return a layer for each hop."""
        return nn.ModuleList(
            RelationalLayer(self.make_typed_conv(hop), hop, self.config, activate=self.activates) for hop in self.hops
        )

    def make_finish(self) -> nn.Module:
        """Return nothing: every layer has its norm."""
        return nn.Identity()

    def make_head(self) -> nn.Module:
        """Return a linear map of the seeds' vectors, or what ranks candidates for them."""
        if self.facts.rank_type is None:
            return NodeHead(self.head_dim, self.facts.out_dim)
        ids, dim = self.embedded, self.config.id_options.dim
        dims = tuple(dim if t in ids else 0 for t in (self.facts.seed_type, self.facts.rank_type))
        return RankingHead(self.vector_dim, dims, self.config.ranking, self.config.dropout)  # type: ignore[arg-type]

    @property
    def embedded(self) -> tuple[int, ...]:
        """Types of nodes of which the model learns a row for each."""
        types: tuple[int, ...] = self.config.embedded(self.facts)
        return types

    @property
    def numbered(self) -> dict[int, Any]:
        """Those types, with the number in its table of each row that a graph has, where that is another graph's."""
        return {number: self.row_numbers.get(number) for number in self.embedded}

    @property
    def walks(self) -> tuple[ImportanceWalksConfig, int] | None:
        """Options of walks and number of layers, where rows read what their walks visit; None: what keys lead to."""
        return None

    @property
    def head_dim(self) -> int:
        """Columns of the vectors of what is scored."""
        return int(self.vector_dim if self.facts.rank_type is None else self.config.ranking.dim or self.vector_dim)

    def forward(self, batch: TypedBatch) -> Tensor:  # type: ignore[override]
        """Return the scores that the batch asks for: (n, out_dim), or of each candidate for each seed (B, n)."""
        if self.facts.rank_type is None:
            scores: Tensor = super().forward(batch)  # type: ignore[arg-type]
            return scores
        assert isinstance(batch, RankingBatch)
        assert isinstance(self.head, RankingHead)
        return self.head.of_batch(*self.towers(batch), batch)

    def towers(self, batch: RankingBatch) -> tuple[Tensor, Tensor]:
        """Return the vectors of the seeds, (B, width), and of the candidates, (n, width)."""
        assert isinstance(self.head, RankingHead)
        assert self.facts.rank_type is not None
        x, ids = self._convolve(batch)
        rows = (self.facts.seed_type, batch.rows), (self.facts.rank_type, batch.candidate_rows)
        seeds, candidates = ((x[t][at], ids[t][at] if t in ids else None) for t, at in rows)
        return self.head.towers((seeds[0], candidates[0]), (seeds[1], candidates[1]))

    def represent(self, batch: TypedBatch) -> Tensor:  # type: ignore[override]
        """Return the last block's destinations of the seeds' type as vectors: (num_dst, hidden_dim)."""
        return self._convolve(batch)[0][self.facts.seed_type]

    def _convolve(self, batch: TypedBatch) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """Return what the layers end with by type, and the learnt rows of the first layer's sources by type."""
        encoder: Any = self.encoder
        ids: dict[int, Tensor] = encoder.look_up(batch.inputs)
        x: dict[int, Tensor] = encoder(batch.inputs, ids)
        for block, layer in zip(batch.blocks, self.layers, strict=True):
            x = layer(block, x)
        return x, ids
