"""How much memory a training takes: counted before it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from configs.base import ComponentConfig
from configs.errors import GraphmillError, RecipeError
from configs.registry import MODELS
from configs.schema import TrainConfig
from models.facts import GraphFacts
from tasks.processes.device import choose_device
from tasks.processes.memory import available_bytes
from tasks.sizes import PROCESS_BYTES, Counts
from tasks.train.loaders.configs import AutoConfig, LoaderConfig
from tasks.train.strategies.base import Ranks

_TABLE = "encoder.embedding.weight"
_STATES = {"adam": 2, "adamw": 2, "sgd": 1, "sparse_adam": 2, "row_adagrad": 0, "": 0}
"""Numbers that an optimizer keeps for each weight (Adagrad by row: one a row, which is nothing beside it)."""
# Arrays of a layer's output's size that are kept for gradients: sum over neighbours, output, norm, activation.
_ARRAYS_A_LAYER = 4


@dataclass(frozen=True)
class ModelSize:
    """Memory of a model in training, in bytes."""

    parameters: int
    """Weights, a table of sparse embeddings included."""
    device_bytes: int
    """Weights, gradients and optimizer state where the model computes."""
    host_bytes: int
    """Table of sparse embeddings and its optimizer's state, in CPU memory."""


def model_size(config: ComponentConfig, train: TrainConfig, facts: GraphFacts) -> ModelSize | None:
    """Count a model's weights without making them; None for a model of the user's own that torch cannot build so.

    Raises:
        RecipeError: as the model itself does.
    """
    try:
        # Tensors on the device "meta" have shapes and no memory. The draws of initial weights must not shift others.
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = MODELS.create(config, facts)
    except GraphmillError:
        raise
    except Exception:
        return None
    weights = {name: parameter.numel() for name, parameter in model.named_parameters()}
    rows = getattr(train.embeddings, "optimizer", "")  # that of a table in CPU memory
    table = weights.pop(_TABLE, 0) if rows else 0
    dense = sum(weights.values())
    return ModelSize(
        dense + table,
        4 * dense * (2 + _STATES[train.optimizer]),
        4 * table * (1 + _STATES[rows]),
    )


def refuse_excess(config: ComponentConfig, train: TrainConfig, facts: GraphFacts, ranks: Ranks) -> None:
    """Refuse a model that cannot be held where it shall train, before any of it is made.

    Raises:
        RecipeError: weights, gradients and optimizer state, or what a loader draws for a batch, are more than the
            memory that is free.
    """
    _loader(train).check_memory(ranks.local_size)
    size = model_size(config, train, facts)
    if size is None:
        return
    device, local_ranks = choose_device(train.device, ranks.local_rank), ranks.local_size
    host = size.host_bytes + (size.device_bytes * local_ranks if device.type == "cpu" else 0)
    places = [("this machine", host, available_bytes())]
    if device.type == "cuda":
        places.append((str(device), size.device_bytes, torch.cuda.mem_get_info(device)[0]))
    for place, needed, free in places:
        if needed > free:
            each = f", {local_ranks} ranks of it" if local_ranks > 1 and device.type == "cpu" else ""
            raise RecipeError(
                f"model.name={config.name} has {size.parameters:,} weights: with gradients and the optimizer's state "
                f"{needed / 1e9:,.1f} GB{each}, and {place} has {free / 1e9:,.1f} GB free; take a smaller "
                "model.hidden_dim or model.num_layers"
                + ("" if facts.feature_dim else ", or a smaller model.embedding_dim")
            )


def training_bytes(
    config: Any, train: TrainConfig, facts: GraphFacts, counts: Counts, num_parts: int
) -> tuple[int, int] | None:
    """Estimate a training's weights and its peak memory on this machine's CPU in bytes; None where that cannot be told.

    The supervisor's process counts too. Rows of a step are the loader's estimate.
    """
    size = model_size(config, train, facts)
    if size is None:
        return None
    width = max(getattr(config, "hidden_dim", 0), facts.out_dim)
    loader = _loader(train)
    if isinstance(loader, AutoConfig):
        loader = loader.of_task(facts.task, counts.num_edges)
    rows = loader.step_rows(counts.num_nodes, num_parts, getattr(config, "num_layers", 1))
    activations = 4 * width * _ARRAYS_A_LAYER * sum(rows[:-1]) + 4 * facts.feature_dim * rows[-1]
    each = PROCESS_BYTES + size.device_bytes + activations + loader.draws_bytes()
    return size.parameters, PROCESS_BYTES + each * train.num_ranks + size.host_bytes


def _loader(train: TrainConfig) -> LoaderConfig:
    assert isinstance(train.loader, LoaderConfig), "a loader's Config derives from LoaderConfig"
    return train.loader
