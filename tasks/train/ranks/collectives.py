"""What ranks tell each other beside DDP's gradients. A rank that is alone gets back what it gave."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from tasks.processes.children import MEETING_FILE
from tasks.processes.doors import closing_doors
from tasks.train.strategies.base import Ranks

T = TypeVar("T")
# Ranks wait for rank 0's validation in a collective; on a large graph that takes a while.
_TIMEOUT = datetime.timedelta(hours=6)
_LONG_SECONDS, _TOO_LONG_SECONDS = 60.0, 600.0
"""For ranks to be connected: they start at the same moment."""
_ONE_MACHINE = (
    "they have not come as far, as on a machine that is short of processors, memory or disk, or the loopback interface "
    "`lo` is down (ip addr show lo)"
)
_MACHINES = (
    "machines have to reach each other on all ports; GLOO_SOCKET_IFNAME (of GPUs NCCL_SOCKET_IFNAME) names a machine's "
    "network interface where it takes a wrong one, and without it a machine's own name has to resolve there"
)
"""Why ranks may wait."""
_left: list[dist.ProcessGroup] = []
"""Groups that were left, kept as long as the process: the destructor of gloo's joins a thread of its own, which may be
waiting for the interpreter's lock (to release the tensors of the last collective) while this thread holds that lock, as
when the last owner is a DDP module that Python drops. The rank would hang at its end."""


@contextlib.contextmanager
def joined(ranks: Ranks, device: torch.device, *, share_gpu: bool = False) -> Iterator[None]:
    """Join the job's ranks: gloo for tensors in CPU memory, and NCCL beside it for those on GPUs.

    NCCL refuses two ranks on one GPU: with `share_gpu` gloo carries those tensors too, through CPU memory.
    """
    if ranks.world_size == 1:
        yield
        return
    by_nccl = device.type == "cuda" and not share_gpu
    with _impatient(ranks), closing_doors(deaf=not by_nccl):
        place = _meeting_place(ranks)
        if by_nccl:
            dist.init_process_group("cpu:gloo,cuda:nccl", timeout=_TIMEOUT, device_id=device, **place)
        else:
            dist.init_process_group("gloo", timeout=_TIMEOUT, **place)
    assert dist.group.WORLD is not None
    _left.append(dist.group.WORLD)
    # After an error the group is left to the process's end: NCCL takes leave together, and a thread of gloo's may wait
    # for a rank that is gone.
    yield
    wait_for_all()  # the first rank may have a checkpoint to write when the others have nothing left to do
    dist.destroy_process_group()


def _meeting_place(ranks: Ranks) -> dict[str, Any]:
    """Return what says to torch where ranks find each other: nothing for those of several machines."""
    path = os.environ.get(MEETING_FILE)
    if path is None:
        return {}
    made: Any = dist.FileStore  # type: ignore[attr-defined]
    store = made(path, ranks.world_size)
    store.set_timeout(datetime.timedelta(seconds=_TOO_LONG_SECONDS))
    return {"store": store, "rank": ranks.rank, "world_size": ranks.world_size}


@contextlib.contextmanager
def _impatient(ranks: Ranks) -> Iterator[None]:
    """Say where connecting with the other ranks takes long, and end this one after a while.

    A connection that is refused fails at once; for one that is never answered gloo's time-out is that of collectives.
    """
    over = threading.Event()

    def watch() -> None:
        if over.wait(_LONG_SECONDS):
            return
        why = _MACHINES if ranks.machines > 1 else _ONE_MACHINE
        print(
            f"warning: rank {ranks.rank} still waits for the others after {_LONG_SECONDS:.0f} seconds: {why}",
            flush=True,
        )
        if not over.wait(_TOO_LONG_SECONDS - _LONG_SECONDS):
            print(f"rank {ranks.rank} gives up", flush=True)
            os._exit(1)  # the main thread waits in gloo

    threading.Thread(target=watch, name="connecting", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def from_main(value: T) -> T:
    """Return rank 0's value, of those that `messages.py` sends, on every rank."""
    return _from(0, value) if dist.is_initialized() else value


def from_all(value: T) -> list[T]:
    """Return every rank's value, in their order."""
    return [_from(rank, value) for rank in range(dist.get_world_size())] if dist.is_initialized() else [value]


def _from(source: int, value: T) -> T:
    """Return the value of one rank on every rank."""
    sends = dist.get_rank() == source
    text, arrays = to_message(value) if sends else (b"", [])
    size = torch.tensor([len(text)])
    dist.broadcast(size, source)
    sent = (
        torch.from_numpy(np.frombuffer(text, np.uint8).copy()) if sends else torch.empty(int(size), dtype=torch.uint8)
    )
    dist.broadcast(sent, source)

    def receive(num_bytes: int) -> Tensor:
        array = torch.empty(num_bytes, dtype=torch.uint8)
        if num_bytes:
            dist.broadcast(array, source)
        return array

    if not sends:
        received: T = from_message(sent.numpy().tobytes(), receive)
        return received
    for array in filter(len, arrays):
        dist.broadcast(array, source)
    return value


def largest(value: int) -> int:
    """Return the largest of all ranks' values."""
    if not dist.is_initialized():
        return value
    number = torch.tensor([value])
    dist.all_reduce(number, dist.ReduceOp.MAX)
    return int(number)


def wait_for_all() -> None:
    """Return once every rank is here."""
    if dist.is_initialized():
        dist.all_reduce(torch.zeros(1))  # a barrier would go over NCCL where there is one


def sum_over_ranks(values: Sequence[float]) -> list[float]:
    """Add up each number over the ranks."""
    if not dist.is_initialized():
        return list(values)
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    return [float(value) for value in total.tolist()]


@torch.no_grad()
def average_(tensors: Sequence[Tensor]) -> None:
    """Replace float32 tensors by their mean over ranks, all in one message."""
    if not tensors or not dist.is_initialized():
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for tensor, mean in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def move(arrays: Sequence[NDArray[Any]], source: int, target: int) -> None:
    """Send arrays from one rank to another, which fills its own; only these two call it, and in the same order."""
    for array in arrays:
        sent = torch.from_numpy(array.reshape(-1).view(np.uint8))
        if dist.get_rank() == source:
            dist.send(sent, target)
        else:
            dist.recv(sent, source)


def exchange(items: NDArray[Any], counts: Sequence[int], received: Sequence[int], out: NDArray[Any]) -> None:
    """Send each rank its part of `items` and write what comes from each into `out`, both in the order of the ranks.

    Args:
        items: any dtype of fixed size (n,), `counts[r]` items for rank r one after the other.
        counts: items to send to each rank.
        received: items that come from each rank.
        out: as `items`, (sum of received,).
    """
    size = items.dtype.itemsize
    dist.all_to_all_single(
        torch.from_numpy(out.view(np.uint8)),
        torch.from_numpy(items.view(np.uint8)),
        [size * count for count in received],
        [size * count for count in counts],
    )


def gather_rows(ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Put the ranks' rows one after the other, in the order of the ranks, on every rank.

    Args:
        ids: int64 (n,) on the CPU; n differs from rank to rank and may be 0.
        rows: float32 (n, D) on the CPU.

    Returns:
        int64 (m,) and float32 (m, D), m the sum of all n.
    """
    if not dist.is_initialized():
        return ids, rows
    counts = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([len(ids)]))
    sizes = [int(count) for count in counts]
    return _gather_padded(ids, sizes), _gather_padded(rows, sizes)


def _gather_padded(values: Tensor, sizes: list[int]) -> Tensor:
    """Gather tensors whose first dimensions differ: gloo wants them alike."""
    longest = max(sizes)
    padded = values.new_zeros((longest, *values.shape[1:]))
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def to_message(value: Any) -> tuple[bytes, list[Tensor]]:
    """Return a value as JSON, and the bytes of its arrays in order: uint8 (n,) on the CPU.

    A value is plain, bytes, a tensor or a NumPy array, or a list, tuple or dict of such. Raises TypeError for others.
    """
    arrays: list[Tensor] = []
    return json.dumps(_plain(value, arrays)).encode(), arrays


def from_message(text: bytes, receive: Callable[[int], Tensor]) -> Any:
    """Return the value of `to_message`; tensors are on the CPU.

    Args:
        text: the JSON.
        receive: called for each array with its number of bytes; returns them, uint8 (n,).
    """
    return _value(json.loads(text), receive)


def _plain(value: Any, arrays: list[Tensor]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_plain(key, arrays), _plain(item, arrays)] for key, item in value.items()]}
    if isinstance(value, bytes):
        arrays.append(torch.from_numpy(np.frombuffer(value, np.uint8).copy()))
        return {"bytes": len(value)}
    if isinstance(value, np.ndarray):
        return {"array": _plain(torch.from_numpy(np.array(value, order="C")), arrays)}
    if isinstance(value, Tensor):
        arrays.append(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8))
        return {"dtype": str(value.dtype).removeprefix("torch."), "shape": value.shape}
    raise TypeError(f"ranks cannot tell each other a {type(value).__name__}")


def _value(plain: Any, receive: Callable[[int], Tensor]) -> Any:
    if isinstance(plain, list):
        return [_value(item, receive) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if "tuple" in plain:
        return tuple(_value(item, receive) for item in plain["tuple"])
    if "dict" in plain:
        return {_value(key, receive): _value(item, receive) for key, item in plain["dict"]}
    if "bytes" in plain:
        return receive(plain["bytes"]).numpy().tobytes()
    if "array" in plain:
        return _value(plain["array"], receive).numpy()
    dtype = getattr(torch, plain["dtype"])
    return receive(dtype.itemsize * math.prod(plain["shape"])).view(dtype).reshape(plain["shape"])
