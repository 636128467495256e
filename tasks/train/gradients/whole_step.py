"""A whole step on a GPU, from the seeds' ids to the moved weights, launched as one CUDA graph. Not yet run on a GPU.

A step of a small model is hundreds of short kernels, and launching them one by one takes the CPU longer than the GPU
computes. Here sampling, gathering, forward, backward and the optimizer run over arrays with room for the largest batch
(`Block.num_there` says how much is there), so that every step is the same launches, which are recorded once and
replayed. The first steps are launched one by one: libraries choose their kernels and allocate in them, and the
optimizer makes its state. Step by step or replayed, the same kernels compute the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from models.base import GraphModel
from tasks.sampling.rows.labels import targets
from tasks.train.gradients.steps import Optimization
from tasks.train.loaders.base import Array, Loader
from tasks.train.loaders.neighbor import NeighborLoader
from tasks.train.loaders.on_device import DeviceNeighborhoods

_STEPS_BEFORE = 3
"""Steps that are launched one by one: as many as torch's own examples take."""


class WholeStep:
    """Takes steps over batches that are made on the model's device."""

    def __init__(self, model: GraphModel, loader: Loader, optimization: Optimization, cuda: Any = torch.cuda) -> None:
        """Make room for a batch; the optimizer has its state, if it is to go on from one. `cuda`: see `Upload`.

        Raises RecipeError: the model cannot compute over rows that are not there.
        """
        reason = model.why_not_padded()
        if reason is not None:
            raise RecipeError(f"train.cuda_graph=true: {reason}; change that, or set train.cuda_graph=false")
        assert isinstance(loader, NeighborLoader)
        assert isinstance(loader.neighborhoods, DeviceNeighborhoods)
        self.loader, self.near, self.optimization = loader, loader.neighborhoods, optimization
        self.cuda, self.device = cuda, optimization.device
        self.batch = self.near.new_batch()
        self.order = self.near.on_device.order(np.empty(0, np.int64), 0).to(self.device)
        self.target = self._padded(np.empty(0, np.int64)).to(self.device)
        self.edges = torch.zeros(1, dtype=torch.int64, device=self.device)
        """Edges of all steps so far."""
        self.side = cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.graph: Any = None
        self.loss: Tensor | None = None
        """That of the last step that was replayed: each writes over it."""
        self._taken = 0
        optimization.keep_rate_on_device()

    def _padded(self, seeds: Array) -> Tensor:
        """Return the seeds' labels, and none in the room behind them."""
        labels = targets(self.loader.manifest, np.asarray(self.loader.labels[seeds]))
        room = self.near.on_device.room.nodes[0]
        missing = torch.nan if labels.is_floating_point() else -1
        padded = labels.new_full((room, *labels.shape[1:]), missing)
        padded[: len(labels)] = labels
        return padded.pin_memory() if self.device.type == "cuda" else padded

    def take(self, positions: Array, key: int, dropout_key: int) -> Tensor:
        """Take a step over the seeds at `positions`, int64 (n,); return the mean loss, without waiting for the GPU."""
        seeds = np.sort(np.asarray(self.loader.seeds[positions], np.int64))
        self.order.copy_(self.near.on_device.order(seeds, key), non_blocking=True)
        self.target.copy_(self._padded(seeds), non_blocking=True)
        torch.manual_seed(dropout_key)  # a replay reads the generator's seed anew
        self._taken += 1
        if self.side is None:
            return self._compute()
        if self._taken <= _STEPS_BEFORE:
            # On another stream than the default, as gradients and their later use are to be recorded on one.
            self.side.wait_stream(self.cuda.current_stream(self.device))
            with self.cuda.stream(self.side):
                loss = self._compute()
            self.cuda.current_stream(self.device).wait_stream(self.side)
            return loss
        if self.graph is None:
            self._record()
        self.graph.replay()
        assert self.loss is not None
        return self.loss.clone()

    def _record(self) -> None:
        """Record the launches of a step, which does not run them."""
        self.graph = self.cuda.CUDAGraph()
        # Another thread may allocate meanwhile (a report, say): only this thread's calls belong to the graph.
        with self.cuda.graph(self.graph, stream=self.side, capture_error_mode="thread_local"):
            self.loss = self._compute()

    def _compute(self) -> Tensor:
        """Launch a step's kernels."""
        optimization = self.optimization
        with self.near.on_device.lock:
            self.near.fill(self.order, self.batch)
        loss = optimization.loss(self.near.padded(self.batch, self.target))
        loss.backward()  # type: ignore[no-untyped-call]
        if optimization.train.clip_norm is not None:
            optimization.clip(optimization.train.clip_norm, None)
        optimization.optimizer.step()
        optimization.optimizer.zero_grad(set_to_none=True)
        for layer in self.batch.sample.layers:
            self.edges += layer.indptr[-1]
        return loss.detach()
