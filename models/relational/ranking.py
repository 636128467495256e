"""Scores of candidates: two towers over one sampled batch, and what the past of both says besides.

s(i, j) = <A x_i, B x_j> / sqrt(d) + w_p . p_j + w_h . h_ij, x the vectors that the layers end with, p_j how often a
candidate was linked to, and h_ij what the entity itself had to do with it before. Candidates whose rows are learnt get
these rows added behind the layers too: B x_j + C e_j.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from configs.base import ComponentConfig
from configs.registry import LOSSES
from models.kernels.dense.linear import Linear
from models.layers.layer import hidden_layers
from models.losses.base import PairLoss
from models.relational.batch import RankingBatch
from models.relational.configs import RankingHeadConfig

PAST = 3
"""What is known of a pair's own past: see `past_features`."""
POPULARITY = 2
_MASKED = -1e9
"""The score of what does not count: its share of a softmax is 0."""


def past_features(counts: Tensor, age: Tensor) -> Tensor:
    """Return what a head reads of pairs' pasts: 1, log(1 + links), and how recent the last is; float32 (m, PAST).

    counts: how often they were linked, (m,); age: how long before the moment the last time was, float32 (m,), in days
    or the data's unit.
    """
    times, age = counts.to(torch.float32), age.clamp(min=0)
    return torch.stack([torch.ones_like(times), torch.log1p(times), 1 / (1 + torch.log1p(age))], 1)


class RankingHead(nn.Module):
    """Towers of seeds and of candidates, and their scores."""

    def __init__(self, dim: int, id_dims: tuple[int, int], config: RankingHeadConfig, dropout: float) -> None:
        """`id_dims`: columns of the rows that are learnt of seeds and of candidates, 0: none."""
        super().__init__()
        width = config.dim or dim
        self.source, self.candidate = Linear(dim, width), Linear(dim, width)
        self.source_ids, self.candidate_ids = (Linear(ids, width, bias=False) if ids else None for ids in id_dims)
        self.loss: PairLoss | None = None
        """What right ones are compared with others by; None: their share in a softmax of all candidates."""
        self.scale = 1 / math.sqrt(width)
        self.popularity = nn.Parameter(torch.zeros(POPULARITY)) if config.popularity else None
        self.past = nn.Parameter(torch.zeros(PAST)) if config.history else None
        self.mlp: nn.Sequential | None = None
        if config.score == "mlp":
            hidden = hidden_layers(width, width, 1, "relu", dropout)
            self.mlp = nn.Sequential(*hidden, Linear(width, 1))

    def take_loss(self, config: ComponentConfig) -> None:
        """Learn by a loss of `models.losses`."""
        is_of_all = getattr(config, "negative_weight", None) == "all"
        self.loss = None if is_of_all else LOSSES.create(config)

    def towers(self, x: tuple[Tensor, Tensor], ids: tuple[Tensor | None, Tensor | None]) -> tuple[Tensor, Tensor]:
        """Return the vectors of seeds and candidates from what the layers end with, and their learnt rows."""
        seeds, candidates = self.source(x[0]), self.candidate(x[1])
        if self.source_ids is not None:
            seeds = seeds + self.source_ids(ids[0])
        if self.candidate_ids is not None:
            candidates = candidates + self.candidate_ids(ids[1])
        return seeds, candidates

    def scores(self, source: Tensor, candidate: Tensor, popularity: Tensor | None) -> Tensor:
        """Score all candidates for all seeds: (B, width), (n, width), (n, POPULARITY) -> float32 (B, n)."""
        if self.mlp is None:
            scores = source @ candidate.T * self.scale
        else:
            scores = self.mlp(source.unsqueeze(1) * candidate.unsqueeze(0)).squeeze(2)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.popularity is not None:
            assert popularity is not None, "the loader counted no links"
            scores = scores + (popularity * self.popularity).sum(1)  # no product: in bfloat16 it would lose counts
        return scores

    def add_past(self, scores: Tensor, pairs: Tensor | None, features: Tensor | None) -> Tensor:
        """Return the scores (B, n) with what pairs' pasts say: pairs int64 (2, m), each once, features (m, PAST)."""
        if self.past is None or pairs is None or features is None:
            return scores
        added = (features * self.past).sum(1)
        return scores.index_put((pairs[0], pairs[1]), added.to(scores.dtype), accumulate=True)

    def of_batch(self, source: Tensor, candidate: Tensor, batch: RankingBatch) -> Tensor:
        """Return for each right pair of a batch its score, and that of all others together: float32 (m, 2).

        With another loss than softmax of all what is returned is that loss: ().

        The softmax of both is the right one's share among all candidates that are not right, and itself. Their sum of
        exp(s) is estimated by those of the batch, each over its chance to be there (`log_inclusion`): Horvitz and
        Thompson, 1952. The right one is there for sure, so its score is as it is.
        """
        assert batch.right is not None
        scores = self.add_past(self.scores(source, candidate, batch.popularity), batch.pairs, batch.pair_feat)
        right = scores[batch.right[0], batch.right[1]]
        others = scores
        if batch.log_inclusion is not None:
            # Of what is there for this seed alone the log is infinite, and its score for other seeds no score.
            others = (scores - batch.log_inclusion).clamp(min=_MASKED)
        if batch.hard is not None:
            others = others.index_put((batch.hard[0], batch.hard[1]), scores[batch.hard[0], batch.hard[1]])
        if batch.left_out is not None:
            masked = others.new_full((1,), _MASKED)
            others = others.index_put((batch.left_out[0], batch.left_out[1]), masked)
        if self.loss is not None:
            counted = torch.where(others > _MASKED / 2, scores, -torch.inf)
            return self.loss.compare(right, counted[batch.right[0]])
        return torch.stack([right, others.logsumexp(1)[batch.right[0]]], 1)
