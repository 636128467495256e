"""Learnable embeddings of nodes in CPU memory, of which a step touches the rows of its batch only.

The table is no parameter of the model: a batch's rows are copied to the device, their gradients come back as rows, and
an optimizer for rows applies them. So the table may be larger than the device's memory, and a step costs what its rows
cost. Ranks of one machine share one table (and one state of its optimizer); their row gradients are averaged over gloo,
as DDP averages the rest. In a state dict the table stands where a dense embedding's weight would. Whoever loads the
best weights gets a `HostEmbedding`, so that what was too large for the device in training is not put there later.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

from configs.registry import MODELS
from models.base import GraphModel
from models.facts import GraphFacts
from models.kernels.threads import CHUNKS_A_THREAD, num_threads, run_rows
from tasks.counter_random import uniform
from tasks.train.embeddings.configs import SparseConfig
from tasks.train.ranks.collectives import from_all, gather_rows, wait_for_all
from tasks.train.strategies.base import Ranks

TABLE = "encoder.embedding.weight"
"""Name in the model's state dict."""
SPREAD_ROWS = 1 << 18


def sparse_embedding(model: nn.Module) -> SparseEmbedding | None:
    """Return the model's sparse embedding, if it has one."""
    return next((module for module in model.modules() if isinstance(module, SparseEmbedding)), None)


class HostEmbedding(nn.Module):
    """A table of rows that stays in CPU memory, wherever the model is: int64 ids (n,) -> float32 (n, dim) there."""

    def __init__(self, weight: Tensor) -> None:
        """`weight`: float32 (N, dim)."""
        super().__init__()
        self.num_embeddings, self.embedding_dim = weight.shape
        # Neither a parameter nor a buffer: it must not follow the model to its device, nor into DDP.
        self.weight = weight

    def forward(self, node_ids: Tensor) -> Tensor:
        """Look rows up."""
        return self.look_up(node_ids.cpu()).to(node_ids.device)

    def look_up(self, node_ids: Tensor) -> Tensor:
        """Return rows, float32 (n, dim), of nodes on the CPU."""
        return self.weight.index_select(0, node_ids)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.weight


class SparseEmbedding(HostEmbedding):
    """A table of rows in CPU memory with its optimizer: int64 ids (n,) -> float32 (n, dim) on the ids' device.

    Weight decay does not touch it.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, config: SparseConfig, ranks: Ranks, seed: int) -> None:
        """Make the table (uniform, as Glorot and Bengio); all ranks call this together."""
        self.ranks, self.seed = ranks, seed
        self.bound = np.float32(math.sqrt(6 / (num_embeddings + embedding_dim)))
        super().__init__(self.begin_rows(num_embeddings, embedding_dim))
        self.num_embeddings, weight = num_embeddings, self.weight
        self.copies = ranks.machines
        """On how many machines each row is held."""
        self.learning_rate = config.learning_rate
        kind = RowAdagrad if config.optimizer == "row_adagrad" else SparseAdam
        self.optimizer = kind(weight, self.make_zeros)
        self._slots = np.full(len(weight), -1, np.int32)
        self._taken: list[tuple[Tensor, Tensor]] = []
        wait_for_all()

    # ---- what a table in shards does in its own way

    def begin_rows(self, num_rows: int, dim: int) -> Tensor:
        """Return the rows that this rank holds, as they begin."""
        weight = self.make_zeros((num_rows, dim))
        if self.ranks.local_rank == 0:
            draw_rows(weight.numpy(), 0, self.bound, self.seed)
        return weight

    def make_zeros(self, shape: tuple[int, ...]) -> Tensor:
        """Return memory that the machine's ranks share."""
        return shared_zeros(shape, self.ranks)

    def share_gradients(self, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean gradients of all ranks' rows that this one is to update."""
        ids, rows = gather_rows(ids, rows)
        if self.ranks.world_size > 1:
            rows /= self.ranks.world_size
        count = coalesce(ids.numpy(), rows.numpy(), self._slots, self.ranks.local_rank, self.ranks.local_size)
        return ids[:count], rows[:count]

    # ----

    def forward(self, node_ids: Tensor) -> Tensor:
        """Look rows up; where gradients are computed, remember which."""
        rows = super().forward(node_ids)
        if torch.is_grad_enabled():
            rows.requires_grad_()
            self._taken.append((node_ids.cpu(), rows))
        return rows

    def take_gradients(self) -> tuple[Tensor, Tensor]:
        """Return the gradient since the last call, averaged over ranks: ids int64 (n,), distinct, and rows (n, dim).

        Only those rows that this rank is to update: ranks of one machine divide them by id.
        """
        taken, self._taken = self._taken, []
        grads = [rows.grad for _, rows in taken]
        assert all(grad is not None for grad in grads), "gradients are taken after a backward pass"
        ids = torch.cat([ids for ids, _ in taken])
        rows = torch.cat([grad.cpu() for grad in grads if grad is not None])
        return self.share_gradients(ids, rows)

    def step(self, ids: Tensor, grads: Tensor, rate: float, number: int) -> None:
        """Update rows (float32 (n, dim)) by step `number` of the run, from 1; all ranks together."""
        self.optimizer.step(ids, grads, rate, number)
        wait_for_all()  # before any rank reads what another one updates

    # ---- checkpoints

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold: the optimizer's state. The table is in the model's state dict."""
        return self.optimizer.tensors()

    def restore(self, tables: dict[str, Tensor] | None) -> None:
        """Take over what rank 0 gives (see `take_tables`; other ranks give None); all ranks together."""
        for name, own in {TABLE: self.weight, **self.tensors()}.items():
            self._take(own, None if tables is None else tables[name])
        wait_for_all()

    def begin_with(self, table: Tensor | None) -> None:
        """Take over rank 0's rows (other ranks give None); all ranks together."""
        self._take(self.weight, table)
        wait_for_all()

    def _take(self, own: Tensor, saved: Tensor | None) -> None:
        """Copy rank 0's `saved` into every machine's `own`, a piece at a time."""
        if saved is not None:
            own.copy_(saved)
        if self.ranks.machines == 1:
            return  # one machine: it is everybody's now
        for piece in torch.split(own, SPREAD_ROWS):
            sent = piece.clone() if self.ranks.is_main else torch.empty_like(piece)
            dist.broadcast(sent, 0)
            if self.ranks.local_rank == 0 and not self.ranks.is_main:
                piece.copy_(sent)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        """Only `restore` brings the table back: every rank loads the rest, one this."""
        assert f"{prefix}weight" not in state_dict


def set_around_table(config: Any, facts: GraphFacts, table: Tensor) -> GraphModel:
    """Return a new model with its table, float32 (N, dim), which stays where it is."""
    model = without_table(config, facts)
    model.encoder.embedding = HostEmbedding(table)  # type: ignore[assignment]
    return model


def without_table(config: Any, facts: GraphFacts) -> GraphModel:
    """Return a new model whose table has one row: the table exists once, in the memory that it is to stay in."""
    model: GraphModel = MODELS.create(config, replace(facts, num_nodes=1))
    model.facts = facts
    return model


def take_tables(state: dict[str, Any]) -> dict[str, Tensor] | None:
    """Take what belongs to sparse embeddings out of a checkpoint, so that the rest can be sent to every rank."""
    if "embedding" not in state:
        return None
    return {TABLE: state["model"].pop(TABLE), **state.pop("embedding")}


def shared_zeros(shape: tuple[int, ...], ranks: Ranks) -> Tensor:
    """Return float32 zeros that all ranks of a machine share; all ranks call this together.

    They lie in memory that has no name and goes with its last user, however that ends; /dev/shm, which containers keep
    small, has no part in it.
    """
    num_bytes = 4 * math.prod(shape)
    if ranks.machines == ranks.world_size or not num_bytes:
        return torch.zeros(shape)
    handle = -1
    if ranks.local_rank == 0:
        handle = os.memfd_create("graphmill-embeddings")
        os.ftruncate(handle, num_bytes)
    leader = ranks.rank - ranks.local_rank
    path = from_all(f"/proc/{os.getpid()}/fd/{handle}")[leader]
    opened = os.open(path, os.O_RDWR)
    memory = mmap.mmap(opened, num_bytes)
    os.close(opened)
    wait_for_all()
    if ranks.local_rank == 0:
        os.close(handle)
    return torch.frombuffer(memory, dtype=torch.float32).view(shape)


@njit(cache=True, nogil=True)
def draw_rows(rows, first, bound, seed):  # type: ignore[no-untyped-def]
    """Fill rows float32 (n, D), of nodes from `first` on, with uniform numbers from -bound to bound."""
    for i in range(len(rows)):
        for d in range(rows.shape[1]):
            rows[i, d] = np.float32(2 * uniform(seed, first + i, d) - 1) * bound


@njit(cache=True, nogil=True)
def coalesce(ids, rows, slots, number, count):  # type: ignore[no-untyped-def]
    """Sum rows of equal ids in place, in their order; keep those with id % count == number. Returns how many stay.

    ids int64 (n,), rows (n, D); slots int32 (N,), all -1 before and after.
    """
    kept = 0
    for i in range(len(ids)):
        v = ids[i]
        if v % count != number:
            continue
        at = slots[v]
        if at < 0:
            slots[v] = kept
            if kept != i:
                ids[kept] = v
                rows[kept] = rows[i]
            kept += 1
        else:
            for d in range(rows.shape[1]):
                rows[at, d] += rows[i, d]
    for i in range(kept):
        slots[ids[i]] = -1
    return kept


_MIN_ROWS_A_RANGE = 256


class RowAdagrad:
    """Adagrad with one accumulator a row, as in PyTorch-BigGraph (https://arxiv.org/abs/1903.12287).

    s_i += mean_d(g_id^2), w_i -= rate * g_i / (sqrt(s_i) + eps): 4 bytes of state a row.
    """

    eps = 1e-10

    def __init__(self, table: Tensor, make: Callable[[tuple[int, ...]], Tensor]) -> None:
        """`make` makes float32 zeros of a shape."""
        self.table = table
        self.sums = make((len(table),))

    def tensors(self) -> dict[str, Tensor]:
        """Return the state."""
        return {"sums": self.sums}

    def step(self, ids: Tensor, grads: Tensor, rate: float, number: int) -> None:
        """Update the rows `ids`, int64 (n,), distinct, by their gradients, float32 (n, D)."""
        arrays = (ids, grads, self.table, self.sums)
        run_rows(row_adagrad, _ranges(len(ids)), *(array.numpy() for array in arrays), np.float32(rate), self.eps)


class SparseAdam:
    """Adam whose moments change on the rows with gradients only: torch.optim.SparseAdam on coalesced gradients."""

    betas = (0.9, 0.999)
    eps = 1e-8

    def __init__(self, table: Tensor, make: Callable[[tuple[int, ...]], Tensor]) -> None:
        """`make` makes float32 zeros of a shape."""
        self.table = table
        self.means, self.squares = make(tuple(table.shape)), make(tuple(table.shape))

    def tensors(self) -> dict[str, Tensor]:
        """Return the state."""
        return {"means": self.means, "squares": self.squares}

    def step(self, ids: Tensor, grads: Tensor, rate: float, number: int) -> None:
        """Update the rows `ids`, int64 (n,), distinct, by their gradients, float32 (n, D), in step `number`, from 1."""
        first, second = self.betas
        scaled = rate * math.sqrt(1 - second**number) / (1 - first**number)
        arrays = (ids, grads, self.table, self.means, self.squares)
        constants = (np.float32(scaled), np.float32(1 - first), np.float32(1 - second), np.float32(self.eps))
        run_rows(sparse_adam, _ranges(len(ids)), *(array.numpy() for array in arrays), *constants)


def _ranges(count: int) -> NDArray[np.int64]:
    pieces = max(1, min(CHUNKS_A_THREAD * num_threads(), count // _MIN_ROWS_A_RANGE))
    return np.arange(pieces + 1) * count // pieces


# error_model: with Python's, every division is tested for zero, and no loop is vectorised (three times slower)
@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def row_adagrad(start, stop, ids, grads, table, sums, rate, eps):  # type: ignore[no-untyped-def]
    """Apply RowAdagrad to gradients start..stop - 1."""
    for i in range(start, stop):
        v = ids[i]
        grad, row = grads[i], table[v]
        square = np.float32(0)
        for d in range(len(grad)):
            square += grad[d] * grad[d]
        sums[v] += square / np.float32(len(grad))
        scale = rate / (np.sqrt(sums[v]) + np.float32(eps))
        for d in range(len(grad)):
            row[d] -= scale * grad[d]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def sparse_adam(start, stop, ids, grads, table, means, squares, rate, first, second, eps):  # type: ignore[no-untyped-def]
    """Apply SparseAdam to gradients start..stop - 1; `first` and `second` are 1 - beta."""
    for i in range(start, stop):
        v = ids[i]
        grad, row, mean, square = grads[i], table[v], means[v], squares[v]
        for d in range(len(grad)):
            g = grad[d]
            m = mean[d] + (g - mean[d]) * first
            s = square[d] + (g * g - square[d]) * second
            mean[d] = m
            square[d] = s
            row[d] -= rate * m / (np.sqrt(s) + eps)
