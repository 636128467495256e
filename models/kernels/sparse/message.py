"""Aggregate messages ReLU(x_u + e_uv) that are never stored: GIN's sum, GENConv's softmax.

Loops make them again wherever they are needed. `term` holds the edges' rows, or one row for each of their `codes`, or
is None. Means weigh the messages of a destination by softmax, e^(beta m - log sum e^(beta m)).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from models.kernels.backends import widen
from models.kernels.simd.exponentials import exp, log
from models.kernels.simd.vector import (
    WIDEST,
    ask_ahead,
    has_kernels,
    load,
    maximum,
    splat,
    storage,
    store,
    tiles,
    where_positive,
    zeros,
)
from models.kernels.sparse.adjacency import Adjacency, few_ranges, out_edges, range_number
from models.kernels.sparse.edge_softmax import reference_edge_softmax
from models.kernels.threads import run_rows

_CHUNK = 32
"""Edges whose maximum is taken before their exponentials: their rows stay in the first- or second-level cache."""
_ONE = np.float32(1)


@njit(cache=True, nogil=True)
def sum_rows(low, high, lanes, count, column, stride, indptr, indices, x, term, codes, y):  # type: ignore[no-untyped-def]
    """y_v = sum ReLU(x_u + e_uv)."""
    last = indptr[high]
    for row in range(low, high):
        acc = zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, x, indices, e, last, stride, column)
            value = load(lanes, x, np.int64(indices[e]) * stride + column, count)
            if term is not None:
                at = np.int64(e if codes is None else codes[e])
                value = value + load(lanes, term, at * stride + column, count)
            acc = acc + where_positive(value, value)
        store(lanes, y, row * stride + column, acc, count)


@njit(cache=True, nogil=True)
def sum_rows_backward(  # type: ignore[no-untyped-def]
    low, high, lanes, count, column, stride, indptr, indices, edges, x, term, codes, grad, bounds, grad_x, grad_term,
):  # fmt: skip
    """Go over the sources: dx_u = sum_v [x_u + e_uv > 0] dy_v, and the edges' own."""
    last = indptr[high]
    part = range_number(bounds, low) if low < high else 0
    base = part * (len(grad_term) // (len(bounds) - 1))
    for row in range(low, high):
        source = load(lanes, x, row * stride + column, count)
        acc = zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, grad, indices, e, last, stride, column)
            if codes is None and term is not None:
                ask_ahead(lanes, term, edges, e, last, stride, column)
            change = load(lanes, grad, np.int64(indices[e]) * stride + column, count)
            if term is not None:
                at = np.int64(edges[e] if codes is None else codes[edges[e]]) * stride + column
                change = where_positive(source + load(lanes, term, at, count), change)
                if codes is None:
                    store(lanes, grad_term, at, change, count)
                else:
                    store(lanes, grad_term, base + at, load(lanes, grad_term, base + at, count) + change, count)
            acc = acc + change
        if term is None:
            acc = where_positive(source, acc)
        store(lanes, grad_x, row * stride + column, acc, count)


@njit(cache=True, nogil=True)
def mean_rows(  # type: ignore[no-untyped-def]
    low, high, lanes, count, column, stride, indptr, indices, x, term, codes, eps, beta, y, log_sums
):
    """Softmax a chunk of edges at a time: where the largest exponent grows, what was summed shrinks."""
    last, sign = indptr[high], np.float32(np.sign(beta))
    for row in range(low, high):
        begin, end = indptr[row], indptr[row + 1]
        acc, weights, largest = zeros(lanes), zeros(lanes), splat(lanes, np.float32(-np.inf))
        for start in range(begin, end, _CHUNK):
            stop = min(start + _CHUNK, end)
            extreme = splat(lanes, np.float32(-np.inf))  # of sign * message: exponents grow with it
            for e in range(start, stop):
                ask_ahead(lanes, x, indices, e, last, stride, column)
                value = load(lanes, x, np.int64(indices[e]) * stride + column, count)
                if term is not None:
                    at = np.int64(e if codes is None else codes[e])
                    value = value + load(lanes, term, at * stride + column, count)
                extreme = maximum(extreme, (where_positive(value, value) + eps) * sign)
            top = maximum(extreme * sign * beta, largest)
            shrunk = exp(largest - top)
            acc, weights, largest = acc * shrunk, weights * shrunk, top
            for e in range(start, stop):
                value = load(lanes, x, np.int64(indices[e]) * stride + column, count)
                if term is not None:
                    at = np.int64(e if codes is None else codes[e])
                    value = value + load(lanes, term, at * stride + column, count)
                value = where_positive(value, value) + eps
                weight = exp(value * beta - largest)
                weights = weights + weight
                acc = acc + weight * value
        store(lanes, y, row * stride + column, acc / weights if begin < end else acc, count)
        store(lanes, log_sums, row * stride + column, largest + log(weights), count)


@njit(cache=True, nogil=True)
def mean_rows_backward(  # type: ignore[no-untyped-def]
    low, high, lanes, count, column, stride, indptr, indices, edges, x, term, codes, eps, beta,
    grad, y, log_sums, bounds, grad_x, grad_term, shares,
):  # fmt: skip
    """Go over the sources; with w = e^(beta m - log sum), a message's gradient is w dy (1 + beta (m - y)).

    `shares` receives each range's sum of w dy (m - y)^2, the gradient of beta. (m (m - y) sums up to the same as the
    square, but not where y was rounded.)
    """
    last = indptr[high]
    part = range_number(bounds, low) if low < high else 0
    base = part * (len(grad_term) // (len(bounds) - 1))
    whole = zeros(lanes)
    for row in range(low, high):
        source = load(lanes, x, row * stride + column, count)
        acc, share = zeros(lanes), zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, grad, indices, e, last, stride, column)
            ask_ahead(lanes, y, indices, e, last, stride, column)
            ask_ahead(lanes, log_sums, indices, e, last, stride, column)
            if codes is None and term is not None:
                ask_ahead(lanes, term, edges, e, last, stride, column)
            target = np.int64(indices[e]) * stride + column
            position = np.int64(0)
            value = source
            if term is not None:
                position = np.int64(edges[e] if codes is None else codes[edges[e]]) * stride + column
                value = source + load(lanes, term, position, count)
            message = where_positive(value, value) + eps
            mean = load(lanes, y, target, count)
            change = load(lanes, grad, target, count)
            change = change * exp(message * beta - load(lanes, log_sums, target, count))
            beyond = message - mean
            share = share + change * beyond * beyond
            change = change * (beyond * beta + _ONE)
            change = where_positive(value, change)
            acc = acc + change
            if term is not None:
                if codes is None:
                    store(lanes, grad_term, position, change, count)
                else:
                    kept = load(lanes, grad_term, base + position, count)
                    store(lanes, grad_term, base + position, kept + change, count)
        whole = whole + share
        store(lanes, grad_x, row * stride + column, acc, count)
    if low < high:
        store(lanes, shares, part * stride + column, whole, count)


EdgeTerm = Tensor | tuple[Tensor, Tensor] | None
"""What edges add to their source: rows (E, D), or (table (K, D), codes int32 (E,)) where few differ, or nothing."""
_WIDEST_MEAN = 128
"""Columns of a tile in the means, which keep three rows at hand."""


def message_sum(adj: Adjacency, x: Tensor, edge: EdgeTerm = None) -> Tensor:
    """y_v = sum_{e = (u, v)} ReLU(x_u + e_uv), as GIN with edge features (Hu et al., arXiv:1905.12265, eq. 1).

    Args:
        adj: the edges.
        x: float32 or bfloat16 (num_src, D); differentiable.
        edge: None, rows (E, D) in the order of the edges, or a table (K, D) with each edge's code, an int32 (E,)
            below K, which is not checked; rows and table are in x's dtype and differentiable.

    Returns:
        (num_dst, D) in x's dtype, accumulated in float32; 0 for destinations without in-edges. On a CPU the last
        bits of the gradient of a table depend on the number of threads.

    Raises:
        ValueError: shapes or dtypes that do not fit together.
    """
    _check(adj, x, edge)
    if not has_kernels(x):
        return reference_message_sum(adj, widen(x), _widened(edge)).to(x.dtype)
    return _Aggregate.apply(x, *_parts(edge), adj, None, 0.0)  # type: ignore[no-untyped-call]


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
    if not has_kernels(x):
        return reference_softmax_aggregate(adj, widen(x), beta, _widened(edge), eps).to(x.dtype)
    return _Aggregate.apply(x, *_parts(edge), adj, beta, eps)  # type: ignore[no-untyped-call]


def reference_message_sum(adj: Adjacency, x: Tensor, edge: EdgeTerm = None) -> Tensor:
    """Do `message_sum` by gather and scatter, E x D messages and all."""
    return x.new_zeros(adj.num_dst, x.shape[1]).index_add(0, adj.targets(), F.relu(_values(adj, x, edge)))


def reference_softmax_aggregate(
    adj: Adjacency, x: Tensor, beta: Tensor, edge: EdgeTerm = None, eps: float = 1e-7
) -> Tensor:
    """Do `softmax_aggregate` by gather and scatter, E x D messages and all."""
    messages = F.relu(_values(adj, x, edge)) + eps
    weighted = reference_edge_softmax(adj, beta * messages) * messages
    return x.new_zeros(adj.num_dst, x.shape[1]).index_add(0, adj.targets(), weighted.to(x.dtype))


def _values(adj: Adjacency, x: Tensor, edge: EdgeTerm) -> Tensor:
    """Return x_u + e_uv for all edges."""
    values = x[adj.indices.long()]
    if edge is None:
        return values
    return values + (edge if isinstance(edge, Tensor) else edge[0][edge[1].long()])


def _widened(edge: EdgeTerm) -> EdgeTerm:
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
        expected, given = f"{x.dtype} ({rows}, {x.shape[1]})", f"{term.dtype} {tuple(term.shape)}"
        raise ValueError(f"the edges' rows must be {expected}, not {given}")


def _parts(edge: EdgeTerm) -> tuple[Tensor | None, Tensor | None]:
    return (edge, None) if edge is None or isinstance(edge, Tensor) else edge


def _optional(tensor: Tensor | None) -> Any:
    return None if tensor is None else storage(tensor)


class _Aggregate(torch.autograd.Function):
    """A sum where there is no `beta`, else a mean weighted by softmax."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, term: Tensor | None, codes: Tensor | None, adj: Adjacency, beta: Tensor | None, eps: float
    ) -> Tensor:
        x, term = x.contiguous(), None if term is None else term.contiguous()
        y, log_sums = torch.empty(adj.num_dst, x.shape[1], dtype=x.dtype), None
        kernel: Any = sum_rows
        ctx.numbers, results = (), [y]
        if beta is not None:
            log_sums = torch.empty(y.shape)
            kernel, results = mean_rows, [y, log_sums]
            ctx.numbers = (np.float32(eps), np.float32(beta.item()))
        rows = (adj.indptr.numpy(), adj.indices.numpy(), storage(x), _optional(term), _optional(codes))
        for tile in _tiles(x, beta):
            run_rows(kernel, adj.chunks(), *tile, *rows, *ctx.numbers, *map(storage, results))
        ctx.save_for_backward(x, term, codes, beta, *((None, None) if beta is None else (y, log_sums)))
        ctx.adj = adj
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, term, codes, beta, y, log_sums = ctx.saved_tensors
        grad, (out, positions) = grad.contiguous(), out_edges(ctx.adj, term is not None)
        bounds, edges = few_ranges(out), (out.indptr.numpy(), out.indices.numpy(), positions.numpy())
        rows = (*edges, storage(x), _optional(term), _optional(codes), *ctx.numbers, storage(grad))
        grad_x, sums = torch.empty_like(x), torch.empty(0)
        if term is not None:  # gathered at the edges' own places, or in a copy of the table a range
            sums = torch.empty_like(term) if codes is None else torch.zeros(len(bounds) - 1, *term.shape)
        gradients = (bounds, storage(grad_x), storage(sums))
        shares = torch.zeros(len(bounds) - 1, x.shape[1])
        for tile in _tiles(x, beta):
            if beta is None:
                run_rows(sum_rows_backward, bounds, *tile, *rows, *gradients)
            else:
                run_rows(
                    mean_rows_backward, bounds, *tile, *rows, storage(y), storage(log_sums), *gradients, storage(shares)
                )
        grad_beta = None
        if beta is not None and ctx.needs_input_grad[4]:
            grad_beta = shares.sum(dtype=torch.float64).to(beta.dtype).view(beta.shape)
        grad_term = None
        if term is not None:
            grad_term = sums if codes is None else sums.sum(0).to(term.dtype)
        return grad_x, grad_term, None, None, grad_beta, None


def _tiles(x: Tensor, beta: Tensor | None) -> list[tuple[Any, ...]]:
    cut = tiles(x.shape[1], WIDEST if beta is None else _WIDEST_MEAN)
    return [(lanes, count, column, x.shape[1]) for column, lanes, count in cut]
