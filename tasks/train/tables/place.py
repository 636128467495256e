"""Where the steps of a training of tables are taken: on the CPU's threads, or on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from configs.errors import RecipeError
from configs.families.row_training import BlockTrainConfig
from models.kernels.backends import has_triton
from models.kernels.threads import num_threads
from models.vectors.base import SampledModel
from tasks.processes.device import choose_device

_SHARE = 0.8
"""Of a device's free memory, for tables: the rest is for what is drawn at a time."""


@dataclass(frozen=True)
class RankDevice:
    """Where a rank trains."""

    device: torch.device
    memory: int | None = None
    """Bytes that tables may take on the device; None: it is the CPU, whose threads take the steps."""

    @classmethod
    def on_gpu(cls, device: torch.device) -> RankDevice:
        """Return a GPU, as much of whose memory as is free now."""
        return cls(device, int(_SHARE * torch.cuda.mem_get_info(device)[0]))

    @property
    def workers(self) -> int:
        """Pairs of blocks that are trained side by side."""
        return num_threads() if self.memory is None else 1


def why_no_gpu(model: type[SampledModel]) -> str | None:
    """Return why a model's pairs cannot be learnt on GPUs; None: they can."""
    if model.learn_on_device.__func__ is SampledModel.learn_on_device.__func__:  # type: ignore[attr-defined]
        return "this model learns on CPUs only"
    return None if has_triton() else "tables are trained there by Triton, which is not installed"


def choose_place(train: BlockTrainConfig, local_rank: int, why_not: str | None = None) -> RankDevice:
    """Return where a rank trains: on a GPU only where `cuda` is asked for, as this path has not run on one yet.

    `why_not`: why it cannot be a GPU; None: it can.

    Raises RecipeError: as `choose_device` does; or `cuda` is wanted and cannot be.
    """
    if train.device == "auto" and not train.auto_takes_gpu:
        return RankDevice(torch.device("cpu"))
    device = choose_device(train.device, local_rank)
    if device.type == "cpu":
        return RankDevice(device)
    if why_not:
        raise RecipeError(f"train.device=cuda: {why_not}; set train.device=cpu")
    return RankDevice.on_gpu(device)
