"""Layers that are computed again in the backward pass, so that their intermediate results need not be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Let batch norms see a batch a second time: they normalise as before and learn nothing more from it."""
    norms = [each for each in module.modules() if isinstance(each, nn.BatchNorm1d) and each.track_running_stats]
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm, _, count in before:
        assert count is not None
        norm.momentum, norm.num_batches_tracked = 0.0, count.clone()
    try:
        yield
    finally:
        for norm, momentum, count in before:
            norm.momentum, norm.num_batches_tracked = momentum, count


def recomputed(module: nn.Module, run: Callable[..., Tensor], *arguments: object) -> Tensor:
    """Return run(*arguments), of which only the arguments are kept until the backward pass.

    `module` is what `run` computes with: its batch norms count the batch once. Random numbers are the same again.
    """
    result: Tensor = checkpoint(
        run, *arguments, use_reentrant=False, context_fn=lambda: (nullcontext(), frozen_statistics(module))
    )
    return result


@contextmanager
def seeded(key: int, device: torch.device) -> Iterator[None]:
    """Draw from `key` within, and go on afterwards as if nothing had been drawn."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(key)
        yield
