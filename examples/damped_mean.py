"""A model of your own in one file: `graphmill run examples/damped-mean.yaml` trains it.

y_v = W (alpha x_v + (1 - alpha) mean_{u in N(v)} x_u): neighbours' mean, damped by the node's own vector.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from configs.registry import MODELS
from models.base import GraphModel, ModelConfig
from models.block import Block, aggregate


class DampedMeanConv(nn.Module):
    """One convolution: x (num_src, in_dim) -> (num_dst, out_dim). The destinations are the first sources."""

    def __init__(self, in_dim: int, out_dim: int, alpha: float) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, out_dim)
        self.alpha = alpha

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve."""
        mean = aggregate(block, x, "mean")
        return self.linear(self.alpha * x[: block.num_dst] + (1 - self.alpha) * mean)


@MODELS.register("damped_mean")
class DampedMean(GraphModel):
    """Mean of the neighbours, damped by the node's own vector."""

    class Config(ModelConfig):
        """Options; those of every model come with them."""

        alpha: float = Field(default=0.5, ge=0, le=1)
        """Share of the node's own vector."""

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution."""
        return DampedMeanConv(in_dim, out_dim, self.config.alpha)
