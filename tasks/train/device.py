"""Which device a rank computes on."""

from __future__ import annotations

import torch

from configs.errors import RecipeError
from models import dgl_adapter


def choose_device(wanted: str, local_rank: int = 0) -> torch.device:
    """Return the device of a rank; `auto` takes a GPU where torch and DGL can use one. Not yet run on a GPU.

    Raises:
        RecipeError: `cuda` is wanted and cannot be had (the message says why), or there are more ranks than GPUs.
    """
    problem = dgl_adapter.cuda_problem() if wanted != "cpu" else ""
    if wanted == "cpu" or (wanted == "auto" and problem):
        return torch.device("cpu")
    if problem:
        raise RecipeError(f"train.device=cuda: {problem}; or take train.device=cpu")
    if local_rank >= torch.cuda.device_count():
        raise RecipeError(f"train.num_ranks is above the {torch.cuda.device_count()} GPUs of this machine; lower it")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device
