"""Sampled neighbourhoods as a model's blocks."""

from __future__ import annotations

import torch

from models.block import Block
from tasks.sampling.features import FeatureSource
from tasks.sampling.neighbors import Sample


def make_blocks(layers: list[Sample], features: FeatureSource) -> list[Block]:
    """Turn sampled layers into blocks with what their edges carry."""
    blocks = []
    for layer in layers:
        block = Block(
            torch.from_numpy(layer.indptr),
            torch.from_numpy(layer.indices),
            len(layer.degree),
            degree=torch.from_numpy(layer.degree),
            weight=None if layer.weight is None else torch.from_numpy(layer.weight),
        )
        blocks.append(features.attach(block, layer.positions))
    return blocks
