"""What each rank runs in test_strategies.py: `python averaged_ranks.py`, with a rank's variables set.

Steps with averaged gradients, without and with a new beginning between them, have to lead to the same weights.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from tasks.train.ranks.collectives import joined
from tasks.train.strategies.averaging import averaging
from tasks.train.strategies.base import Ranks
from tests.train.two_processes import end


class Crossed(nn.Module):
    """Whose parameters get their gradients in another order than they stand in."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(7, 7) for _ in range(9))

    def forward(self, x: Tensor) -> Tensor:
        for number in (4, 0, 7, 2, 8, 1, 6, 3, 5):
            x = torch.tanh(self.layers[number](x))
        return x.square().sum()


def weights(rank: int, begins: tuple[int, ...]) -> list[Tensor]:
    """Weights after nine steps, with the ranks' gradients averaged anew before some of them."""
    torch.manual_seed(1)
    model = Crossed()
    wrapped: nn.Module
    for step in range(9):
        if step in begins:
            wrapped = averaging(model)
            assert not any(p.grad is not None and p.grad.any() for p in model.parameters())
        torch.manual_seed(10 * step + rank)
        wrapped(torch.randn(11, 7)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
    return [parameter.detach().clone() for parameter in model.parameters()]


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    with joined(Ranks(rank, 3, rank, 3), torch.device("cpu")):
        at_once = weights(rank, (0,))
        for begins in ((0, 1), (0, 5), (0, 2, 8)):
            assert all(map(torch.equal, at_once, weights(rank, begins))), begins


if __name__ == "__main__":
    main()
    end()
