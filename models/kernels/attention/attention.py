"""Attention over in-edges in one pass, GAT's and GATv2's; nothing of size E x H x D is ever stored."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from models.kernels.attention.edge_dropout import EdgeDropout
from models.kernels.backends import choose, widen
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.edge_softmax import reference_edge_softmax

WIDEST_HEAD = 512
"""Columns of a head whose score kernels make: it needs all of them, and wider vectors take the compiler minutes."""


def gat_attention(
    adj: Adjacency,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    key: int = 0,
) -> Tensor:
    """Aggregate with GAT's attention (Velickovic et al., arXiv:1710.10903, eq. 3-4).

    y_vh = sum_{e = (u, v)} a_eh x_uh, a_eh = softmax_{e into v}(LeakyReLU(score_src_uh + score_dst_vh)).

    Args:
        adj: the edges; several between the same two nodes count severally.
        x: float32 or bfloat16 (num_src, H, D); differentiable.
        score_src: (num_src, H), a^T of the sources' rows; differentiable.
        score_dst: (num_dst, H), the same of the destinations; differentiable.
        negative_slope: LeakyReLU's.
        dropout: share of the a_eh set to zero after the softmax, from 0 to below 1; the others are divided by
            1 - dropout. Pass 0 in evaluation.
        key: which weights are dropped depends on (key, position of the edge, head) only.

    Returns:
        (num_dst, H, D) in x's dtype, accumulated in float32; 0 for destinations without in-edges. Kept for the
        backward are the inputs, the result and two numbers a destination and head; the attention is recomputed. On
        a CPU the last bits of score_dst's gradient depend on the number of threads.

    Raises:
        ValueError: shapes that do not fit together.
    """
    heads = x.shape[1:2]
    if x.dim() != 3 or x.shape[0] != adj.num_src or score_src.shape != x.shape[:2]:
        raise ValueError(
            f"x and score_src must be ({adj.num_src}, H, D) and ({adj.num_src}, H), not "
            f"{tuple(x.shape)} and {tuple(score_src.shape)}"
        )
    if score_dst.shape != (adj.num_dst, *heads):
        raise ValueError(f"score_dst must be ({adj.num_dst}, {heads[0]}), not {tuple(score_dst.shape)}")
    rule, backend = EdgeDropout.of(dropout, key), choose(x)
    if backend == "torch" or not x.shape[1:].numel():
        rows, sources, targets = widen(x), widen(score_src), widen(score_dst)
        return reference_gat_attention(adj, rows, sources, targets, negative_slope, dropout, key).to(x.dtype)
    scores = score_src.float(), score_dst.float()
    if backend == "triton":
        from models.kernels.attention.attention_triton import gat_attention_triton

        return gat_attention_triton(adj, x, *scores, negative_slope, rule)
    from models.kernels.attention.gat_rows import GatAttention

    return GatAttention.apply(x, *scores, adj, negative_slope, rule)  # type: ignore[no-untyped-call]


def gatv2_attention(
    adj: Adjacency,
    x_src: Tensor,
    x_dst: Tensor,
    attn: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    key: int = 0,
) -> Tensor:
    """Aggregate with GATv2's attention (Brody et al., arXiv:2105.14491, eq. 7).

    y_vh = sum_{e = (u, v)} a_eh x_src_uh, a_eh = softmax_{e into v}(<attn_h, LeakyReLU(x_src_uh + x_dst_vh)>).

    Args:
        adj: the edges; several between the same two nodes count severally.
        x_src: float32 or bfloat16 (num_src, H, D); differentiable.
        x_dst: (num_dst, H, D) in the same dtype; differentiable.
        attn: (H, D); differentiable.
        negative_slope: as of `gat_attention`, like the next two.
        dropout: see there.
        key: see there.

    Returns:
        (num_dst, H, D) in x_src's dtype, as `gat_attention`. Heads of more than 512 columns take plain torch, with the
        memory of all messages. On a CPU the last bits of attn's gradient depend on the number of threads.

    Raises:
        ValueError: shapes or dtypes that do not fit together.
    """
    _check_ends(adj, x_src, x_dst, attn)
    rule, backend = EdgeDropout.of(dropout, key), choose(x_src)
    if backend == "torch" or not _has_fused_heads(attn):
        sources, targets, shares = widen(x_src), widen(x_dst), widen(attn)
        return reference_gatv2_attention(adj, sources, targets, shares, negative_slope, dropout, key).to(x_src.dtype)
    if backend == "triton":
        from models.kernels.attention.attention_triton import gatv2_attention_triton

        return gatv2_attention_triton(adj, x_src, x_dst, attn.float(), negative_slope, rule)
    from models.kernels.attention.gatv2_rows import GatV2Attention

    return GatV2Attention.apply(x_src, x_dst, attn.float(), adj, negative_slope, rule)  # type: ignore[no-untyped-call]


def gatv2_scores(adj: Adjacency, x_src: Tensor, x_dst: Tensor, attn: Tensor, negative_slope: float = 0.2) -> Tensor:
    """s_eh = <attn_h, LeakyReLU(x_src_uh + x_dst_vh)> for each edge e = (u, v): the scores of `gatv2_attention`.

    For attention that knows more of an edge than its two ends. Arguments and errors are those of `gatv2_attention`.

    Returns:
        float32 (E, H), in the order of the edges. On a CPU the last bits of attn's gradient depend on the number of
        threads; on a GPU, and for heads of more than 512 columns, E x H x D numbers are kept meanwhile.
    """
    _check_ends(adj, x_src, x_dst, attn)
    if choose(x_src) != "numba" or not _has_fused_heads(attn):
        return reference_gatv2_scores(adj, widen(x_src), widen(x_dst), widen(attn), negative_slope)
    from models.kernels.attention.gatv2_rows import GatV2Scores

    return GatV2Scores.apply(x_src, x_dst, attn.float(), adj, negative_slope)  # type: ignore[no-untyped-call]


def _check_ends(adj: Adjacency, x_src: Tensor, x_dst: Tensor, attn: Tensor) -> None:
    shape = tuple(x_src.shape[1:])
    if x_src.shape != (adj.num_src, *shape) or x_dst.shape != (adj.num_dst, *shape) or attn.shape != shape:
        raise ValueError(
            f"x_src, x_dst and attn must be ({adj.num_src}, H, D), ({adj.num_dst}, H, D) and (H, D), not "
            f"{tuple(x_src.shape)}, {tuple(x_dst.shape)} and {tuple(attn.shape)}"
        )
    if x_src.dtype != x_dst.dtype:
        raise ValueError(f"x_src and x_dst must be of one dtype, not {x_src.dtype} and {x_dst.dtype}")


def _has_fused_heads(attn: Tensor) -> bool:
    return attn.shape[1] <= WIDEST_HEAD and attn.numel() > 0


def reference_gat_attention(
    adj: Adjacency, x: Tensor, src: Tensor, dst: Tensor, negative_slope: float = 0.2, dropout: float = 0.0, key: int = 0
) -> Tensor:
    """Do `gat_attention` by gather and scatter, E x H x D messages and all."""
    scores = F.leaky_relu(src[adj.indices.long()] + dst[adj.targets()], negative_slope)
    return _reference_sum(adj, x, scores, dropout, key)


def reference_gatv2_attention(
    adj: Adjacency,
    x: Tensor,
    dst: Tensor,
    attn: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    key: int = 0,
) -> Tensor:
    """Do `gatv2_attention` by gather and scatter, E x H x D messages and all."""
    return _reference_sum(adj, x, reference_gatv2_scores(adj, x, dst, attn, negative_slope), dropout, key)


def reference_gatv2_scores(
    adj: Adjacency, x_src: Tensor, x_dst: Tensor, attn: Tensor, negative_slope: float = 0.2
) -> Tensor:
    """Do `gatv2_scores` by gathering both ends' rows."""
    joined = x_src[adj.indices.long()] + x_dst[adj.targets()]
    return (attn * F.leaky_relu(joined, negative_slope)).sum(2)


def _reference_sum(adj: Adjacency, x: Tensor, scores: Tensor, dropout: float, key: int) -> Tensor:
    """Sum sources' rows by the softmax of scores (E, H)."""
    weights = reference_edge_softmax(adj, scores)
    if dropout > 0:
        weights = weights * EdgeDropout.of(dropout, key).mask(weights)
    messages = (weights.unsqueeze(2) * x[adj.indices.long()]).to(x.dtype)
    return torch.index_add(x.new_zeros(adj.num_dst, *x.shape[1:]), 0, adj.targets(), messages)
