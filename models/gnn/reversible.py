"""Grouped reversible layers (Li et al., ICML 2021, https://arxiv.org/abs/2106.07476, section 3.2): RevGNN.

A layer's input is computed from its output, so the backward pass needs the last layer's output only and memory does not
grow with depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from configs.errors import RecipeError
from models.block import Block
from models.layers.layer import draw_key
from models.layers.recompute import frozen_statistics, seeded


class ReversibleLayer(nn.Module):
    """y_i = x_i + f_i(y_{i-1}) for groups i = 1..C of columns, y_0 = x_2 + ... + x_C: x (n, C w) -> (n, C w).

    f_i(block, (n, w)) -> (n, w); each group sees the messages of the one before, so a layer looks C hops far.
    """

    def __init__(self, groups: Iterable[nn.Module], dim: int) -> None:
        """`groups`: f_1 to f_C, at least two."""
        super().__init__()
        self.groups = nn.ModuleList(groups)
        self.out_dim = dim

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Run the layer and let autograd remember everything."""
        return self.run(block, x, draw_key() if self.training else 0)

    def run(self, block: Block, x: Tensor, key: int) -> Tensor:
        """Run the layer with the random numbers of `key`, the same in every group.

        Raises:
            RecipeError: the block's sources are not its destinations.
        """
        if block.num_src != block.num_dst:
            raise RecipeError(
                "model.reversible needs batches whose nodes stay from layer to layer: "
                "take train.loader=full, cluster or random_partition, or set model.reversible=false"
            )
        parts = x.chunk(len(self.groups), 1)
        y = sum(parts[2:], parts[1])
        outputs = []
        for group, part in zip(self.groups, parts, strict=True):
            with seeded(key, x.device):
                y = part + group(block, y)
            outputs.append(y)
        return torch.cat(outputs, 1)

    def reverse(
        self, block: Block, y: Tensor, grad: Tensor, key: int, add: Callable[[nn.Module, list[Tensor | None]], None]
    ) -> tuple[Tensor, Tensor]:
        """Return the layer's input and the loss's gradient by it, from its output y and the gradient by that.

        `add(group, gradients)` takes those by a group's parameters.
        """
        count = len(self.groups)
        outputs, grads = list(y.chunk(count, 1)), list(grad.chunk(count, 1))
        inputs = outputs.copy()
        for i in range(count - 1, -1, -1):
            start = outputs[i - 1] if i else sum(inputs[2:], inputs[1])
            moved, by_start, by_parameters = self._differentiate(self.groups[i], block, start, grads[i], key)
            inputs[i] = outputs[i] - moved
            add(self.groups[i], by_parameters)
            if i:
                grads[i - 1] = grads[i - 1] + by_start
            else:
                grads[1:] = [each + by_start for each in grads[1:]]
        return torch.cat(inputs, 1), torch.cat(grads, 1)

    def _differentiate(
        self, group: nn.Module, block: Block, start: Tensor, grad: Tensor, key: int
    ) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        """Return f(start) and the gradients by start and by f's parameters."""
        parameters = [each for each in group.parameters() if each.requires_grad]
        with torch.enable_grad(), frozen_statistics(group), seeded(key, start.device):
            start = start.detach().requires_grad_()
            result = group(block, start)
        grad = grad.to(result.dtype)
        gradients = torch.autograd.grad(result, [start, *parameters], grad, allow_unused=True)
        assert gradients[0] is not None
        return result.detach(), gradients[0], list(gradients[1:])


def run_reversibly(layers: list[ReversibleLayer], block: Block, x: Tensor) -> Tensor:
    """Run layers one after the other; of all that they compute only the result is kept for the backward pass.

    The rows are float32 throughout: what bfloat16 rounds off could not be undone.
    """
    parameters = {id(each): each for layer in layers for each in layer.parameters() if each.requires_grad}
    if x.dtype in (torch.bfloat16, torch.float16):
        x = x.float()
    result: Tensor = _Stack.apply(x, layers, block, *parameters.values())  # type: ignore[no-untyped-call]
    return result


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: list[ReversibleLayer], block: Block, *parameters: Tensor) -> Tensor:
        ctx.layers, ctx.block, ctx.keys = layers, block, [draw_key() for _ in layers]
        ctx.places = {id(each): i for i, each in enumerate(parameters)}
        kind = x.device.type
        ctx.cast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        for layer, key in zip(layers, ctx.keys, strict=True):
            x = layer.run(block, x, key)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        [y] = ctx.saved_tensors
        sums: list[Tensor | None] = [None] * len(ctx.places)

        def add(group: nn.Module, gradients: list[Tensor | None]) -> None:
            parameters = (each for each in group.parameters() if each.requires_grad)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    place = ctx.places[id(parameter)]
                    before = sums[place]
                    sums[place] = gradient if before is None else before + gradient

        kind, dtype, enabled = ctx.cast
        with torch.autocast(kind, dtype, enabled):
            for layer, key in zip(reversed(ctx.layers), reversed(ctx.keys), strict=True):
                y, grad = layer.reverse(ctx.block, y, grad, key, add)
        return (grad, None, None, *sums)
