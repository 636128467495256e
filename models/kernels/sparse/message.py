"""Aggregate messages ReLU(x_u + e_uv) that are never stored: GIN's sum, GENConv's softmax and power mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from models.kernels.backends import choose, widen
from models.kernels.simd.vector import WIDEST, storage, tiles
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.edge_softmax import reference_edge_softmax
from models.kernels.sparse.message_rows import LARGEST, mean_rows, mean_rows_backward, sum_rows, sum_rows_backward
from models.kernels.sparse.ranges import few_ranges, out_edges
from models.kernels.threads import run_rows

EdgeTerm = Tensor | tuple[Tensor, Tensor] | None
"""What edges add to their source: rows (E, D), or (table (K, D), codes int32 (E,)) where few differ, or nothing."""
_WIDEST_MEAN = 128
"""Columns of a tile in the means, which keep three rows at hand."""
_SMALLEST_EPS = 1e-7
_ROWS_AT_ONCE = 8192


def message_sum(adj: Adjacency, x: Tensor, edge: EdgeTerm = None, own: Tensor | None = None) -> Tensor:
    """y_v = own x_v + sum_{e = (u, v)} ReLU(x_u + e_uv), GIN with edge features (Hu et al., arXiv:1905.12265, eq. 1).

    Args:
        adj: the edges; with `own`, destinations are the first sources.
        x: float32 or bfloat16 (num_src, D); differentiable.
        edge: None, rows (E, D) in the order of the edges, or a table (K, D) with each edge's code, an int32 (E,)
            below K, which is not checked; rows and table are in x's dtype and differentiable.
        own: one number, the weight of a destination's own row; differentiable. None: 0.

    Returns:
        (num_dst, D) in x's dtype, accumulated in float32; 0 for destinations without in-edges. On a CPU the last
        bits of the gradients of a table and of `own` depend on the number of threads.

    Raises:
        ValueError: shapes or dtypes that do not fit together.
    """
    _check(adj, x, edge)
    if own is not None and len(x) < adj.num_dst:
        raise ValueError(f"x must have the {adj.num_dst} destinations' rows first, not {len(x)} rows")
    backend = choose(x)
    if backend == "torch":
        return reference_message_sum(adj, widen(x), _widened(edge), own).to(x.dtype)
    if backend == "triton":
        summed = _on_gpu(adj, x, edge, x.new_zeros(1), 0.0, "sum")
        return summed if own is None else own.to(x.dtype) * x[: adj.num_dst] + summed
    return _Aggregate.apply(x, *_parts(edge), adj, None, 0.0, False, own)  # type: ignore[no-untyped-call]


def softmax_aggregate(adj: Adjacency, x: Tensor, beta: Tensor, edge: EdgeTerm = None, eps: float = 1e-7) -> Tensor:
    """y_v = sum_e softmax_{e into v}(beta m_e) m_e by channel, m_e = ReLU(x_u + e_uv) + eps.

    GENConv's first aggregation (Li et al., arXiv:2006.07739, eq. 3); beta towards 0 gives the mean, large beta the max.

    Args:
        adj: the edges.
        x: float32 or bfloat16 (num_src, D); differentiable.
        beta: one number, the inverse temperature; differentiable.
        edge: as in `message_sum`.
        eps: added to messages.

    Returns:
        (num_dst, D) in x's dtype, accumulated in float32; 0 for destinations without in-edges. Kept for the backward
        are the inputs, the result and the logarithms of the sums, float32 (num_dst, D). On a CPU the last bits of
        the gradients of beta and of a table depend on the number of threads.

    Raises:
        ValueError: shapes or dtypes that do not fit together.
    """
    _check(adj, x, edge)
    backend = choose(x)
    if backend == "torch":
        return reference_softmax_aggregate(adj, widen(x), beta, _widened(edge), eps).to(x.dtype)
    if backend == "triton":
        return _on_gpu(adj, x, edge, beta, eps, "softmax")
    return _Aggregate.apply(x, *_parts(edge), adj, beta, eps, False)  # type: ignore[no-untyped-call]


def power_aggregate(adj: Adjacency, x: Tensor, p: Tensor, edge: EdgeTerm = None, eps: float = 1e-7) -> Tensor:
    """y_v = (mean_{e into v} m_e^p)^(1/p) by channel, m_e = min(ReLU(x_u + e_uv) + eps, 10).

    GENConv's second aggregation (Li et al., arXiv:2006.07739, eq. 4); p = 1 gives the mean, large p the max. As in the
    authors' code messages are clamped to [1e-7, 10]. That code clamps the mean of the powers to the same range too,
    against overflow; here it is taken by logarithms, which do not overflow, and is not clamped.

    Args:
        adj: the edges.
        x: float32 or bfloat16 (num_src, D); differentiable.
        p: one number, not 0; differentiable.
        edge: as in `message_sum`.
        eps: added to messages, at least 1e-7.

    Returns:
        (num_dst, D) in x's dtype, accumulated in float32; 0 for destinations without in-edges. Kept for the backward
        are the inputs, the result and the logarithms of the sums, float32 (num_dst, D). On a CPU the last bits of
        the gradients of p and of a table depend on the number of threads.

    Raises:
        ValueError: shapes or dtypes that do not fit together, eps below 1e-7, p = 0 (on a GPU that gives NaN: asking
            would wait for it).
    """
    _check(adj, x, edge)
    if eps < _SMALLEST_EPS:
        raise ValueError(f"powers need messages above 0: eps must be at least {_SMALLEST_EPS}, not {eps}")
    backend = choose(x)
    if backend == "torch":
        return reference_power_aggregate(adj, widen(x), p, _widened(edge), eps).to(x.dtype)
    if backend == "triton":
        return _on_gpu(adj, x, edge, p, eps, "power")
    if p.detach().item() == 0:
        raise ValueError("p must not be 0: the power mean has 1 / p in it")
    return _Aggregate.apply(x, *_parts(edge), adj, p, eps, True)  # type: ignore[no-untyped-call]


def reference_message_sum(adj: Adjacency, x: Tensor, edge: EdgeTerm = None, own: Tensor | None = None) -> Tensor:
    """Do `message_sum` by gather and scatter, E x D messages and all."""
    start = x.new_zeros(adj.num_dst, x.shape[1]) if own is None else own.to(x.dtype) * x[: adj.num_dst]
    return start.index_add(0, adj.targets(), F.relu(_values(adj, x, edge)))


def reference_softmax_aggregate(
    adj: Adjacency, x: Tensor, beta: Tensor, edge: EdgeTerm = None, eps: float = 1e-7
) -> Tensor:
    """Do `softmax_aggregate` by gather and scatter, E x D messages and all."""
    messages = F.relu(_values(adj, x, edge)) + eps
    weighted = reference_edge_softmax(adj, beta * messages) * messages
    return x.new_zeros(adj.num_dst, x.shape[1]).index_add(0, adj.targets(), weighted.to(x.dtype))


def reference_power_aggregate(adj: Adjacency, x: Tensor, p: Tensor, edge: EdgeTerm = None, eps: float = 1e-7) -> Tensor:
    """Do `power_aggregate` by gather and scatter, E x D messages and all."""
    rows = adj.targets()
    messages = (F.relu(_values(adj, x, edge)) + eps).clamp(max=float(LARGEST))
    degrees = adj.degrees().unsqueeze(1)
    powers = (messages**p).to(x.dtype)
    means = x.new_zeros(adj.num_dst, x.shape[1]).index_add(0, rows, powers) / degrees.clamp(min=1)
    filled = means.masked_fill(degrees == 0, 1)  # 0^(1/p) has no finite gradient
    return (filled ** (1 / p)).to(x.dtype).masked_fill(degrees == 0, 0)


def _values(adj: Adjacency, x: Tensor, edge: EdgeTerm) -> Tensor:
    """Return x_u + e_uv for all edges."""
    values = x[adj.indices.long()]
    if edge is None:
        return values
    return values + (edge if isinstance(edge, Tensor) else edge[0][edge[1].long()])


def _widened(edge: EdgeTerm) -> EdgeTerm:
    """Do `widen` for what edges add."""
    if edge is None:
        return None
    return widen(edge) if isinstance(edge, Tensor) else (widen(edge[0]), edge[1])


def _check(adj: Adjacency, x: Tensor, edge: EdgeTerm) -> None:
    if x.dim() != 2 or len(x) != adj.num_src:
        raise ValueError(f"x must be ({adj.num_src}, D), not {tuple(x.shape)}")
    term, codes = _parts(edge)
    if codes is not None and (codes.shape != (adj.num_edges,) or codes.dtype != torch.int32):
        raise ValueError(f"codes must be int32 ({adj.num_edges},), not {codes.dtype} {tuple(codes.shape)}")
    if term is None:
        return
    rows = adj.num_edges if codes is None else len(term)
    if term.shape != (rows, x.shape[1]) or term.dtype != x.dtype:
        wanted, given = f"{x.dtype} ({rows}, {x.shape[1]})", f"{term.dtype} {tuple(term.shape)}"
        raise ValueError(f"the edges' rows must be {wanted}, not {given}")


def _parts(edge: EdgeTerm) -> tuple[Tensor | None, Tensor | None]:
    return (edge, None) if edge is None or isinstance(edge, Tensor) else edge


def _on_gpu(adj: Adjacency, x: Tensor, edge: EdgeTerm, scalar: Tensor, eps: float, kind: str) -> Tensor:
    from models.kernels.sparse.message_triton import aggregate_triton

    return aggregate_triton(adj, x, *_parts(edge), scalar, eps, kind)


class _EdgeGradient:
    """Where the gradient of the edges' rows is gathered: at their own place, or in a copy of the table a range."""

    def __init__(self, term: Tensor | None, codes: Tensor | None, ranges: int) -> None:
        self.term, self.codes = term, codes
        if term is None:
            self.sums = torch.empty(0)
        elif codes is None:
            self.sums = torch.empty_like(term)
        else:
            self.sums = torch.zeros(ranges, *term.shape)

    def value(self) -> Tensor | None:
        """Return it once the kernel is through."""
        if self.term is None or self.codes is None:
            return None if self.term is None else self.sums
        return self.sums.sum(0).to(self.term.dtype)


def _optional(tensor: Tensor | None) -> Any:
    return None if tensor is None else storage(tensor)


class _Aggregate(torch.autograd.Function):
    """A sum where there is no `scalar`, else a mean: weighted by softmax (`scalar` is beta) or of powers (p)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, term: Tensor | None, codes: Tensor | None, adj: Adjacency, scalar: Tensor | None = None,
        eps: float = 0.0, is_power: bool = False, own: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        x, term = x.contiguous(), None if term is None else term.contiguous()
        y, log_sums = torch.empty(adj.num_dst, x.shape[1], dtype=x.dtype), None
        kernel: Any = sum_rows
        ctx.numbers, results = (None if own is None else np.float32(own.item()),), [y]
        if scalar is not None:
            number, log_sums = np.float32(scalar.item()), torch.empty(y.shape)
            kernel, results = mean_rows, [y, log_sums]
            ctx.numbers = (np.float32(eps), None, number) if is_power else (np.float32(eps), number, None)
        rows = (adj.indptr.numpy(), adj.indices.numpy(), storage(x), _optional(term), _optional(codes))
        for tile in _tiles(x, scalar):
            run_rows(kernel, adj.chunks(), *tile, *rows, *ctx.numbers, *map(storage, results))
        ctx.save_for_backward(x, term, codes, scalar, own, *((None, None) if scalar is None else (y, log_sums)))
        ctx.adj, ctx.is_power = adj, is_power
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, term, codes, scalar, own, y, log_sums = ctx.saved_tensors
        grad, (out, positions) = grad.contiguous(), out_edges(ctx.adj, term is not None)
        bounds, edges = few_ranges(out), (out.indptr.numpy(), out.indices.numpy(), positions.numpy())
        rows = (*edges, storage(x), _optional(term), _optional(codes), *ctx.numbers, storage(grad))
        grad_x, gathered = torch.empty_like(x), _EdgeGradient(term, codes, len(bounds) - 1)
        shares = torch.zeros(len(bounds) - 1, x.shape[1])
        gradients = (storage(grad_x), storage(gathered.sums), storage(shares))
        for tile in _tiles(x, scalar):
            if scalar is None:
                run_rows(sum_rows_backward, bounds, *tile, *rows, bounds, *gradients)
            else:
                means = (storage(y), storage(log_sums), bounds)
                run_rows(mean_rows_backward, bounds, *tile, *rows, *means, *gradients)
        grad_scalar = grad_own = None
        if own is not None and ctx.needs_input_grad[7]:
            grad_own = shares.sum(dtype=torch.float64).to(own.dtype).view(own.shape)
        if scalar is not None and ctx.needs_input_grad[4]:
            share = shares.sum(dtype=torch.float64)
            if ctx.is_power:
                p = float(ctx.numbers[2])
                share = (share - _log_mean_share(ctx.adj, grad, y, log_sums, p)) / p
            grad_scalar = share.to(scalar.dtype).view(scalar.shape)
        return grad_x, gathered.value(), None, None, grad_scalar, None, None, grad_own


def _tiles(x: Tensor, scalar: Tensor | None) -> list[tuple[Any, ...]]:
    cut = tiles(x.shape[1], WIDEST if scalar is None else _WIDEST_MEAN)
    return [(lanes, count, column, x.shape[1]) for column, lanes, count in cut]


def _log_mean_share(adj: Adjacency, grad: Tensor, y: Tensor, log_sums: Tensor, p: float) -> Tensor:
    """Return the sum of dy y log y, some rows at a time: dp = (sum w dy y log m - sum dy y log y) / p."""
    total = torch.zeros((), dtype=torch.float64)
    degrees = adj.degrees().unsqueeze(1)
    for low in range(0, adj.num_dst, _ROWS_AT_ONCE):
        rows = slice(low, low + _ROWS_AT_ONCE)
        logs = (log_sums[rows] - degrees[rows].clamp(min=1).log()) / p
        logs = logs.masked_fill(degrees[rows] == 0, 0)
        total += (grad[rows].float() * y[rows].float() * logs).sum(dtype=torch.float64)
    return total
