"""Skip-gram with negative sampling over a graph: DeepWalk, LINE and node2vec, by where its samples come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from configs.registry import MODELS
from models.kernels.skipgram.train_pairs import pair_loss, train_pairs
from models.vectors.base import DeviceMeeting, Meeting, SampledModel, Samples
from models.vectors.configs import SkipGramConfig

_TINY = 1e-30


@MODELS.register("skipgram")
class SkipGram(SampledModel):
    """Skip-gram: nodes that walks or edges bring together get vectors alike (arXiv:1310.4546, arXiv:1403.6652)."""

    Config = SkipGramConfig

    @classmethod
    def learn(cls, config: Any, tables: Meeting, samples: Samples, rate: float, noise: int) -> None:
        """Take skip-gram's steps."""
        options = {"group": config.shared_negatives, "negative_weight": config.negative_weight, "noise": noise}
        for vertex, context in tables.values():
            train_pairs(vertex, context, *samples.rows, rate=rate, **options)

    @classmethod
    def learn_on_device(cls, config: Any, tables: DeviceMeeting, samples: Samples, rates: Tensor, noise: int) -> None:
        """Take skip-gram's steps on a GPU."""
        from models.kernels.skipgram.train_pairs_triton import train_pairs as train_pairs_triton

        options = {"group": config.shared_negatives, "negative_weight": config.negative_weight, "noise": noise}
        for vertex, context in tables.values():
            train_pairs_triton(vertex, context, *samples.rows, rate=rates, counts=samples.counts, **options)

    @classmethod
    def loss(cls, config: Any, tables: Meeting | DeviceMeeting, samples: Samples) -> float:
        """Return skip-gram's loss, the mean over the orders."""
        drawn = np.repeat(samples.negatives, config.shared_negatives, 0)[: len(samples.centres)]
        pairs = samples.centres, samples.contexts
        weight = config.negative_weight
        losses = [pair_loss(vertex, context, *pairs, drawn, weight) for vertex, context in tables.values()]
        return sum(losses) / len(losses)

    @classmethod
    def vectors(
        cls, config: Any, rows: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]]
    ) -> NDArray[np.float32]:
        """Return a node's row, or the sum of its rows; of both orders side by side, each with half of the length."""
        parts = [
            vertex + context if config.rows == "sum" and name == "second" else vertex
            for name, (vertex, context) in rows.items()
        ]
        if len(parts) == 1:
            return parts[0]
        lengths = [np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
        scale = np.linalg.norm(np.concatenate(lengths, 1), axis=1, keepdims=True) / len(parts) ** 0.5
        even = [part / np.maximum(length, _TINY) * scale for part, length in zip(parts, lengths, strict=True)]
        return np.asarray(np.concatenate(even, 1), np.float32)
