"""The unfused path and torch.sparse: what message passing costs without kernels made for it.

On CUDA also PyG's propagate, and each side says which share of the memory's bandwidth it reached.
"""

from __future__ import annotations

import time
import warnings

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from benchmarks.gnn_worker import Arrays, Operator


class GatherScatter(Operator):
    """GCN's aggregation by gathering a message for each edge and adding them up."""

    def prepare(self, arrays: Arrays) -> None:
        self.ends = [torch.from_numpy(ids).to(self.settings.device) for ids in arrays.coo()]

    def forward(self) -> Tensor:
        return torch.zeros_like(self.grad).index_add(0, self.ends[1], self.x.index_select(0, self.ends[0]))


class TorchSparse(Operator):
    """GCN's aggregation as a product with torch's CSR matrix, which is its transpose too; on CUDA this is cuSPARSE."""

    def prepare(self, arrays: Arrays) -> None:
        device, dtype = self.settings.device, getattr(torch, self.settings.options.get("dtype", "float32"))
        indptr, indices = (torch.from_numpy(arrays[f"csc_{name}"]).to(device) for name in ("indptr", "indices"))
        ones = torch.ones(len(indices), device=device, dtype=dtype)
        size = (arrays.num_nodes, arrays.num_nodes)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            self.matrix = torch.sparse_csr_tensor(indptr.to(indices.dtype), indices, ones, size, check_invariants=False)

    def _run(self, units: int) -> None:
        for _ in range(units):
            with torch.no_grad():
                self.matrix @ self.x
                self.matrix @ self.grad

    def bandwidth(self) -> dict[str, float]:
        return copy_bandwidth(self.settings.device)


class UnfusedAttention(Operator):
    """GAT's operator edge by edge in torch: scores, softmax and messages are tensors over edges."""

    job = "attend"

    def prepare(self, arrays: Arrays) -> None:
        self.ends = [torch.from_numpy(ids).to(self.settings.device) for ids in arrays.coo()]

    def _softmax(self, scores: Tensor) -> Tensor:
        """Softmax over each destination's edges: scores (E, heads)."""
        destination = self.ends[1]
        rows = destination.unsqueeze(1).expand_as(scores)
        highest = torch.zeros(len(self.x), scores.shape[1], device=scores.device)
        highest = highest.scatter_reduce(0, rows, scores.detach(), "amax", include_self=False)
        powers = (scores - highest[destination]).exp()
        total = torch.zeros_like(highest).index_add(0, destination, powers)
        return powers / total[destination]

    def forward(self) -> Tensor:
        source, destination = self.ends
        weights = self._softmax(F.leaky_relu(self.source[source] + self.target[destination], 0.2))
        messages = self.x.index_select(0, source) * weights.unsqueeze(2)
        return torch.zeros_like(self.grad).index_add(0, destination, messages)


class PygAggregation(Operator):
    """PyG's propagate with add aggregation, as GCNConv runs it; for CUDA."""

    def prepare(self, arrays: Arrays) -> None:
        from torch_geometric.nn import SimpleConv

        self.edges = torch.stack([torch.from_numpy(ids) for ids in arrays.coo()]).to(self.settings.device)
        self.conv = SimpleConv(aggr="add")

    def forward(self) -> Tensor:
        return self.conv(self.x, self.edges)


def copy_bandwidth(device: str, num_bytes: int = 1 << 30, rounds: int = 20) -> dict[str, float]:
    """Bytes a second that a copy within the memory moves, reads and writes both counted."""
    source = torch.empty(num_bytes // 4, device=device)
    target = torch.empty_like(source)
    for attempt in range(2):
        began = time.perf_counter()
        for _ in range(rounds):
            target.copy_(source)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        if attempt:
            return {"bytes_per_second": 2 * num_bytes * rounds / seconds}
    raise AssertionError
