"""DGL's HeteroGraphConv as a model: `model: {name: dgl_hetero, conv: {default: SAGEConv, a__likes__b: GATConv}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from configs.matching import did_you_mean, listed
from configs.registry import MODELS
from models.dgl.adapter import load_dgl, make_bipartite
from models.dgl.conv import Sizes, make_convolution
from models.dgl.convolutions import TWO_MAPS, check_convolution, find_convolution, place_of
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.layers.encoders import CategoryEmbedding
from models.relational.base import LayerPlan, RelationalModel, TypedConv
from models.relational.batch import RelationBlock, TypedBlock
from models.relational.configs import DglHeteroConfig
from models.relational.encoders import columns_of


class RelationEdges(nn.Module):
    """What a relation's edges carry, as vectors (E, dim)."""

    def __init__(self, facts: GraphFacts, number: int, dim: int) -> None:
        """`number` is that of the relation. Raises RecipeError where its edges carry nothing."""
        super().__init__()
        width = len(columns_of(facts.edge_columns, number, facts.edge_feature_dim))
        codes = columns_of(facts.edge_codes, number, len(facts.edge_categories))
        if not width and not codes:
            name = facts.relation_names[number]
            raise RecipeError(f"{place_of(name)} reads edge features, and edges of {name} have none; take another one")
        self.dim = dim
        self.numbers = Linear(width, dim) if width else None
        self.categories = CategoryEmbedding(tuple(facts.edge_categories[c] for c in codes), dim) if codes else None

    def forward(self, relation: RelationBlock) -> Tensor:
        """Encode each edge."""
        results = torch.zeros(relation.num_edges, self.dim, device=relation.indices.device)
        if self.numbers is not None:
            results = results + self.numbers(relation.edge_feat)
        if self.categories is not None:
            results = results + self.categories(relation.edge_feat_cat)
        return results


class RelationConv(nn.Module):
    """A convolution of `dgl.nn.pytorch` over the edges of one relation, from hidden_dim to hidden_dim columns."""

    def __init__(self, config: DglHeteroConfig, facts: GraphFacts, number: int) -> None:
        """Raises RecipeError where the convolution, its options and the relation do not fit."""
        super().__init__()
        relation, dim = facts.relation_names[number], config.hidden_dim
        self.name, given = config.of(relation)
        options = check_convolution(relation, self.name, given, width=dim)
        spec, heads = find_convolution(self.name), options.get("num_heads", 1)
        self.edges: RelationEdges | None = None
        if spec.reads:
            like_nodes = "edges_like_nodes" in spec.reads
            self.edges = RelationEdges(facts, number, dim if like_nodes else config.edge_dim)
        sizes = Sizes(dim, dim, heads, False, 1, config.edge_dim, facts, pair=self.name in TWO_MAPS)
        self.conv = make_convolution(self.name, options, sizes, place_of(relation))

    def forward(self, relation: RelationBlock, x: Tensor, x_dst: Tensor) -> Tensor:
        """Convolve in float32: x (num_src, dim), x_dst (num_dst, dim) -> (num_dst, dim). Raises RecipeError: DGL's."""
        num_dst, num_src = len(x_dst), len(x)
        indptr, indices = relation.indptr, relation.indices.long()
        with torch.autocast(x.device.type, enabled=False):
            pair = x.float(), x_dst.float()
            edges = None if self.edges is None else self.edges(relation)
            if not relation.num_edges:
                # Some convolutions fail where no message is sent at all: one more edge, between nodes of its own.
                pair = (
                    torch.cat([pair[0], pair[0].new_zeros(1, x.shape[1])]),
                    torch.cat([pair[1], pair[1].new_zeros(1, x.shape[1])]),
                )
                indptr, indices = torch.cat([indptr, indptr.new_ones(1)]), indices.new_tensor([num_src])
                edges = None if edges is None else torch.cat([edges, edges.new_zeros(1, edges.shape[1])])
            graph = make_bipartite(indptr, indices, len(pair[0]))
            try:
                y: Tensor = self.conv(graph, pair, *([] if edges is None else [edges]))
            except (load_dgl().DGLError, RuntimeError, TypeError, ValueError, AssertionError, KeyError) as error:
                reason = str(error).strip() or type(error).__name__
                raise RecipeError(f"dgl.nn.pytorch.{self.name}: {reason}") from error
        return y[:num_dst].flatten(1).to(x.dtype)


class DglHeteroConv(TypedConv):
    """y_v = agg_{r into t} conv_r(x, x_v), t the type of v; as dgl.nn.pytorch.HeteroGraphConv.

    A type that no relation leads to, which has no result there, keeps its vectors. Relations without edges in a batch
    give what their convolution gives of no messages, as they do there.
    """

    def __init__(self, facts: GraphFacts, hop: LayerPlan, config: DglHeteroConfig) -> None:
        super().__init__()
        self.hop, self.aggregate, dim = hop, config.aggregate, config.hidden_dim
        self.mods = nn.ModuleDict({str(r): RelationConv(config, facts, r) for r in hop.relations})
        counts = {t: sum(facts.relation_ends[r][1] == t for r in hop.relations) for t in hop.targets}
        stacks = counts if config.aggregate == "stack" else {}
        self.stacks = nn.ModuleDict({str(t): Linear(n * dim, dim) for t, n in stacks.items() if n})

    def forward(self, block: TypedBlock, x: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Convolve: x by type (num_src_t, dim) -> by target type (num_dst_t, dim)."""
        target_rows = {t: x[t][: block.num_dst[t]] for t in self.hop.targets}
        results: dict[int, list[Tensor]] = {t: [] for t in self.hop.targets}
        for number in self.hop.relations:
            relation = block.by_number[number]
            t = relation.target_type
            results[t].append(self.mods[str(number)](relation, x[relation.source_type], target_rows[t]))
        return {t: self._join(t, parts) if parts else target_rows[t] for t, parts in results.items()}

    def _join(self, t: int, parts: list[Tensor]) -> Tensor:
        """Return what becomes of the relations' results (num_dst, dim) each."""
        if self.aggregate == "stack":
            joined: Tensor = self.stacks[str(t)](torch.cat(parts, 1))
            return joined
        stacked = torch.stack(parts)
        if self.aggregate in ("max", "min"):
            return (stacked.max(0) if self.aggregate == "max" else stacked.min(0)).values
        return stacked.sum(0) if self.aggregate == "sum" else stacked.mean(0)


@MODELS.register("dgl_hetero")
class DglHetero(RelationalModel):
    """DGL's HeteroGraphConv: a convolution of dgl.nn.pytorch for each relation, by name; computed by DGL in float32."""

    Config = DglHeteroConfig

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for relations that the graph has not, or that have no convolution."""
        for name in config.conv:
            if name != "default" and facts.relation_names and name not in facts.relation_names:
                raise RecipeError(
                    f"model.conv: the graph has no relation {name}{did_you_mean(name, facts.relation_names)}; there "
                    f"are {listed(facts.relation_names)}"
                )
        super().__init__(config, facts)

    def make_typed_conv(self, hop: LayerPlan) -> TypedConv:
        """Return one convolution."""
        return DglHeteroConv(self.facts, hop, self.config)
