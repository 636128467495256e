"""The unfused path and torch.sparse: what message passing costs without kernels made for it.

On CUDA also PyG's propagate, and each side says which share of the memory's bandwidth it reached.
"""

from __future__ import annotations

import time
import warnings

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from benchmarks.gnn_worker import Arrays, Contender, Settings


class GatherScatter(Contender):
    """GCN's aggregation by gathering a message for each edge and adding them up; forward and backward."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.threads_used()
        arrays = Arrays(settings.graph)
        self.source, self.destination = (torch.from_numpy(ids).to(settings.device) for ids in arrays.coo())
        torch.manual_seed(0)
        shape = (arrays.num_nodes, settings.options["width"])
        self.x = torch.randn(shape, device=settings.device, requires_grad=True)
        self.grad = torch.randn(shape, device=settings.device)
        self.jobs = {"aggregate": self._run}

    def _run(self, units: int) -> None:
        for _ in range(units):
            self.x.grad = None
            messages = self.x.index_select(0, self.source)
            torch.zeros_like(self.grad).index_add(0, self.destination, messages).backward(self.grad)


class TorchSparse(Contender):
    """GCN's aggregation as a product with torch's CSR matrix; the transpose for the backward pass is kept.

    Options `dtype`, `width`; on CUDA this is cuSPARSE.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.threads_used()
        arrays = Arrays(settings.graph)
        device, dtype = settings.device, getattr(torch, settings.options.get("dtype", "float32"))
        indptr, indices = (torch.from_numpy(arrays[f"csc_{name}"]).to(device) for name in ("indptr", "indices"))
        ones = torch.ones(len(indices), device=device, dtype=dtype)
        size = (arrays.num_nodes, arrays.num_nodes)
        indptr = indptr.to(indices.dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            # The graph is symmetric: this is the transpose as well.
            self.matrix = torch.sparse_csr_tensor(indptr, indices, ones, size, check_invariants=False)
        torch.manual_seed(0)
        shape = (arrays.num_nodes, settings.options["width"])
        self.x, self.grad = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
        self.jobs = {"aggregate": self._run}

    def _run(self, units: int) -> None:
        for _ in range(units):
            self.matrix @ self.x
            self.matrix @ self.grad

    def bandwidth(self) -> dict[str, float]:
        return copy_bandwidth(self.settings.device)


class UnfusedAttention(Contender):
    """GAT's operator edge by edge in torch: scores, softmax and messages are tensors over edges."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.threads_used()
        arrays = Arrays(settings.graph)
        self.source, self.destination = (torch.from_numpy(ids).to(settings.device) for ids in arrays.coo())
        self.num_nodes = arrays.num_nodes
        torch.manual_seed(0)
        heads, device = settings.heads, settings.device
        shape = (arrays.num_nodes, heads, settings.options["width"] // heads)
        self.x = torch.randn(shape, device=device, requires_grad=True)
        self.score_source = torch.randn(arrays.num_nodes, heads, device=device, requires_grad=True)
        self.score_target = torch.randn(arrays.num_nodes, heads, device=device, requires_grad=True)
        self.grad = torch.randn(shape, device=device)
        self.jobs = {"attend": self._run}

    def _softmax(self, scores: Tensor) -> Tensor:
        """Softmax over each destination's edges: scores (E, heads)."""
        rows = self.destination.unsqueeze(1).expand_as(scores)
        highest = torch.zeros(self.num_nodes, scores.shape[1], device=scores.device)
        highest = highest.scatter_reduce(0, rows, scores.detach(), "amax", include_self=False)
        powers = (scores - highest[self.destination]).exp()
        total = torch.zeros_like(highest).index_add(0, self.destination, powers)
        return powers / total[self.destination]

    def _run(self, units: int) -> None:
        for _ in range(units):
            for tensor in (self.x, self.score_source, self.score_target):
                tensor.grad = None
            scores = self.score_source[self.source] + self.score_target[self.destination]
            weights = self._softmax(F.leaky_relu(scores, 0.2))
            messages = self.x.index_select(0, self.source) * weights.unsqueeze(2)
            torch.zeros_like(self.grad).index_add(0, self.destination, messages).backward(self.grad)


class PygAggregation(Contender):
    """PyG's propagate with add aggregation, as GCNConv runs it; for CUDA."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        from torch_geometric.nn import SimpleConv

        arrays = Arrays(settings.graph)
        source, destination = arrays.coo()
        self.edges = torch.stack([torch.from_numpy(source), torch.from_numpy(destination)]).to(settings.device)
        torch.manual_seed(0)
        shape = (arrays.num_nodes, settings.options["width"])
        self.x = torch.randn(shape, device=settings.device, requires_grad=True)
        self.grad = torch.randn(shape, device=settings.device)
        self.conv = SimpleConv(aggr="add")
        self.jobs = {"aggregate": self._run}

    def _run(self, units: int) -> None:
        for _ in range(units):
            self.x.grad = None
            self.conv(self.x, self.edges).backward(self.grad)


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
