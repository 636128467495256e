"""Options of the model `dgl`, apart from its code: recipes are checked without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from configs.errors import RecipeError
from configs.registry import MODELS
from configs.training import TrainConfig
from models.configs import ModelConfig
from models.dgl.convolutions import complete_options, find_convolution, reason_for_whole

if TYPE_CHECKING:
    from configs.schema import Recipe


@MODELS.options("dgl", "dgl.model")
class DglConfig(ModelConfig):
    """Any homogeneous convolution of dgl.nn.pytorch, by name, with its own options; computed by DGL in float32."""

    conv: str = "SAGEConv"
    """Class in `dgl.nn.pytorch`: GATv2Conv, GraphConv, TAGConv, ..."""
    options: dict[str, bool | int | float | str | tuple[float | str, ...] | None] = Field(default_factory=dict)
    """Arguments of its constructor, such as `{num_heads: 8}`; sizes come from the graph, hidden_dim and the task."""
    edge_dim: int | None = Field(default=None, ge=1, le=65_536)
    """Convolutions that read edge features: width to which these are mapped; null: 16."""
    coordinates: int | None = Field(default=None, ge=1, le=65_536)
    """EGNNConv: so many of the last feature columns are positions; null: 3."""

    @model_validator(mode="after")
    def _check_options(self) -> DglConfig:
        complete_options(self.conv, self.options)
        reads = find_convolution(self.conv).reads
        if self.coordinates is not None and "coordinates" not in reads:
            raise ValueError(f"coordinates is for EGNNConv, and conv is {self.conv}; remove it")
        if self.edge_dim is not None and not {"edges", "edges_if_any"} & set(reads):
            raise ValueError(f"edge_dim does nothing in {self.conv}; remove it")
        return self

    def reason_for_whole(self, *, symmetric: bool) -> str:
        """Say why the convolution needs all nodes of a graph at once; an empty text if it does not."""
        return reason_for_whole(self.conv, self.options, edge_weights=self.edge_weights, symmetric=symmetric)

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse a loader of blocks for a convolution that cannot read them. Raises ValueError."""
        super().check_recipe(recipe)
        assert isinstance(recipe.train, TrainConfig)
        keeps_nodes = getattr(recipe.train.loader, "keeps_nodes", True)
        self.check_batches(recipe.train.loader.name, keeps_nodes=keeps_nodes, all_neighbors=True, symmetric=True)

    def check_batches(self, loader: str, *, keeps_nodes: bool, all_neighbors: bool, symmetric: bool) -> None:
        """Refuse blocks, or parts of a graph, for a convolution that cannot read them. Raises RecipeError."""
        reason = self.reason_for_whole(symmetric=symmetric)
        if reason and not (keeps_nodes and (all_neighbors or not find_convolution(self.conv).whole)):
            raise RecipeError(
                f"model.conv={self.conv}: {reason}, and train.loader={loader} gives parts of the graph; take "
                "train.loader=full (full_edge on link tasks), or another convolution or option"
            )
