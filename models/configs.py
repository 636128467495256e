"""Options of the models, apart from their code: recipes are checked without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from configs.base import ComponentConfig

if TYPE_CHECKING:
    from configs.schema import Recipe


class ModelConfig(ComponentConfig):
    """Options of every stacked message-passing model."""

    file: str | None = None
    """A Python file of your own that registers the model; null: one of graphmill's."""
    file_sha256: str | None = None
    """Digest of that file; filled in when the recipe is read."""
    hidden_dim: int = Field(default=256, ge=1, le=65_536)
    """Width of all layers."""
    num_layers: int = Field(default=3, ge=1, le=10_000)
    """Message-passing layers; nodes see so many hops."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Share of a layer's outputs that is dropped while training."""
    input_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of what the first layer reads that is dropped while training."""
    activation: Literal["relu", "elu", "gelu"] = "relu"
    """What stands after each layer's norm."""
    norm: Literal["batch", "layer", "none"] = "batch"
    """Normalisation after each layer (none after the last layer of a link task or with head=none)."""
    norm_first: bool = False
    """Residual layers x + f(conv(norm(x))) on inputs mapped to hidden_dim, and a last norm before the head."""
    feed_forward: Literal[0, 1, 2] = 0
    """Linear maps after each convolution, dropout and activation before the last one."""
    residual: bool = False
    """Add a layer's input to its output (through a linear map where their widths differ)."""
    jumping: Literal["none", "sum", "max", "cat"] = "none"
    """Jumping knowledge: combine the outputs of all layers instead of taking the last."""
    head: Literal["linear", "none"] = "linear"
    """Node tasks: a linear map from the last layer to the scores, or none: the last convolution makes the scores."""
    embedding_dim: int | None = Field(default=None, ge=1, le=65_536)
    """Graphs without node features: width of the learnable node embeddings; null: hidden_dim."""
    edge_weights: bool = False
    """Weigh messages by the edges' weights."""
    label_reuse: bool = False
    """Node tasks: known training labels of other nodes as further inputs (https://arxiv.org/abs/2103.13355)."""
    label_iterations: int = Field(default=0, ge=0, le=16)
    """label_reuse: how often the model runs again with what it predicted itself as the labels that are not known;
    gradients are those of the last run. For batches whose nodes stay from layer to layer."""
    decoder: Literal["mlp", "dot"] | None = None
    """Link tasks: score a pair by an MLP on the product of its ends, or by their dot product; null: mlp."""
    decoder_layers: int | None = Field(default=None, ge=1, le=1000)
    """Link tasks with the MLP decoder: its linear layers; null: 3."""
    pooling: Literal["mean", "sum", "max"] | None = None
    """Graph tasks: how a graph's nodes become one vector; null: mean."""

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse to measure a model by nodes whose own labels it reads. Raises ValueError."""
        if self.label_reuse and "train" in recipe.evaluate.splits:
            raise ValueError(
                "evaluate.splits names train, and with model.label_reuse=true the model reads those nodes' own labels: "
                "their score would mean nothing; leave train out of evaluate.splits or set model.label_reuse=false"
            )
