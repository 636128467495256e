"""Which device and how many threads a process computes with."""

from __future__ import annotations

import sys

import torch

from configs.errors import RecipeError
from models.dgl import adapter as dgl_adapter


def choose_device(wanted: str, local_rank: int = 0, *, share: bool = False) -> torch.device:
    """Return the device of a rank by its number on this machine; `auto` takes a GPU where torch sees one.

    `share`: ranks beyond the GPUs take turns through them. Raises RecipeError: `cuda` is asked for and cannot be had,
    or there are more ranks than GPUs.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RecipeError("train.device=cuda: torch sees no GPU; take train.device=cpu")
    count = torch.cuda.device_count()
    if local_rank >= count and not share:
        raise RecipeError(f"train.num_ranks is above the {count} GPU(s) of this machine; lower it")
    device = torch.device("cuda", local_rank % count)
    torch.cuda.set_device(device)
    return device


def wait_for(device: torch.device) -> None:
    """Return once all that was launched on a device is done, on whatever stream; a CPU has nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def use_threads(count: int) -> None:
    """Let torch, our kernels (which follow it) and DGL, where a model has loaded it, compute on so many threads."""
    torch.set_num_threads(count)
    torch.get_num_threads()  # a thread that never asked would later take over what another set meanwhile
    if "dgl" in sys.modules:
        dgl_adapter.use_threads(count)
