"""Whether another attempt could mend what ended a rank, and in words what it was."""

from __future__ import annotations

import re
import traceback

import torch

from configs.errors import GraphmillError, StageError
from configs.registry import line_of_component
from tasks.processes.memory import out_of_memory
from tasks.storage.artifacts import is_full_disk

_BETWEEN_RANKS = ("gloo", "nccl", "connection", "socket", "store")
_PEER_GONE = re.compile(r"Connection (closed|reset) by peer|Broken pipe")


def peer_is_gone(error: Exception) -> bool:
    """Whether all that happened is that another rank has ended, and gloo's connection to it with it."""
    return "gloo" in str(error) and _PEER_GONE.search(str(error)) is not None


def final_error(error: Exception, rank: int) -> GraphmillError | None:
    """Return the error that ends the job; None where another attempt may go well.

    What code does with the same numbers it does again. Another attempt helps where a disk, a device or another rank
    failed: what reaches a rank of a peer's end is an error of the connection between them.
    """
    if isinstance(error, GraphmillError):
        return error
    short = out_of_memory(error)
    if short is not None:
        return StageError(
            f"rank {rank} ran out of memory: {short}. Take a smaller train.loader.batch_size, train.loader.fanout, "
            "model.hidden_dim or train.num_ranks, or another loader (neighbor, cluster); running again goes on from "
            "the last checkpoint"
        )
    if is_full_disk(error):
        return StageError(
            f"the disk that rank {rank} writes to is full: {error}. Free some space, then run again: it goes on from "
            "the last checkpoint"
        )
    if isinstance(error, OSError | torch.AcceleratorError | torch.distributed.DistError):
        return None
    if any(word in str(error).lower() for word in _BETWEEN_RANKS):
        return None
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = line_of_component(error) or f"{last.filename}, line {last.lineno}"
    return StageError(
        f"rank {rank} ended with {type(error).__name__}: {error} ({place}). It would do so "
        "again, so no other attempt was made; the traceback stands in the run's log"
    )
