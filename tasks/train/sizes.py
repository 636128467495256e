"""How much memory a training takes: counted before it is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from configs.base import ComponentConfig
from configs.errors import GraphmillError, RecipeError
from configs.registry import MODELS
from configs.schema import TrainConfig
from models.base import GraphFacts
from tasks.memory import available_bytes
from tasks.sizes import PROCESS_BYTES, Counts, need_memory
from tasks.train.device import choose_device
from tasks.train.strategies.base import Ranks

_TABLE = "encoder.embedding.weight"
_STATES = {"adam": 2, "adamw": 2, "sgd": 1, "sparse_adam": 2, "row_adagrad": 0}
"""Numbers that an optimizer keeps for each weight (Adagrad by row: one a row, which is nothing beside it)."""
# Arrays of a layer's output's size that are kept for gradients: sum over neighbours, output, norm, activation.
_ARRAYS_A_LAYER = 4
_ENDS_A_PAIR = 4  # of a positive pair and its negative
_NODES_A_GRAPH = 30  # molecules; the data's own number would be better known than this is needed


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
    table = weights.pop(_TABLE, 0) if train.embeddings == "sparse" else 0
    dense = sum(weights.values())
    return ModelSize(
        dense + table,
        4 * dense * (2 + _STATES[train.optimizer]),
        4 * table * (1 + _STATES[train.embedding_optimizer]),
    )


def refuse_excess(config: ComponentConfig, train: TrainConfig, facts: GraphFacts, ranks: Ranks) -> None:
    """Refuse a model that cannot be held where it shall train, before any of it is made.

    Raises:
        RecipeError: weights, gradients and optimizer state, or what a loader draws for a batch, are more than the
            memory that is free.
    """
    if train.loader == "saint":
        walks = train.saint == "walk"
        need_memory(
            draws_bytes(train) * ranks.local_size,
            f"a batch of train.batch_size={train.batch_size} draws"
            + (f" with train.walk_length={train.walk_length}" if walks else ""),
            "take a smaller train.batch_size" + (" or train.walk_length" if walks else ""),
        )
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


def draws_bytes(train: TrainConfig) -> int:
    """Return what a rank's draws of a GraphSAINT subgraph take, before it is known which nodes are among them."""
    nodes = {"node": 1, "edge": 2, "walk": train.walk_length + 1}[train.saint]
    return 8 * train.batch_size * nodes


def training_bytes(
    config: Any, train: TrainConfig, facts: GraphFacts, counts: Counts, num_parts: int
) -> tuple[int, int] | None:
    """Estimate a training's weights and its peak memory on this machine's CPU in bytes; None where that cannot be told.

    The supervisor's process counts too. Rows of a step: the whole graph's; the nodes that `fanout` reaches from a
    batch's seeds, no more than there are; or the share of clusters in a batch.
    """
    size = model_size(config, train, facts)
    if size is None:
        return None
    width = max(getattr(config, "hidden_dim", 0), facts.out_dim)
    rows = step_rows(train, facts, counts, num_parts, getattr(config, "num_layers", 1))
    activations = 4 * width * _ARRAYS_A_LAYER * sum(rows[:-1]) + 4 * facts.feature_dim * rows[-1]
    draws = draws_bytes(train) if train.loader == "saint" else 0
    each = PROCESS_BYTES + size.device_bytes + activations + draws
    return size.parameters, PROCESS_BYTES + each * train.num_ranks + size.host_bytes


def step_rows(train: TrainConfig, facts: GraphFacts, counts: Counts, num_parts: int, num_layers: int) -> list[int]:
    """Return how many nodes each layer of a step computes, from the seeds outwards, and last how many are read."""
    nodes, loader = counts.num_nodes, train.loader
    if loader == "auto":
        loader = {"node": "neighbor", "link": "full", "graph": "graph"}[facts.task]  # type: ignore[assignment]
    if loader in ("neighbor", "edge"):
        seeds = train.batch_size * (_ENDS_A_PAIR if loader == "edge" else 1)
        grows = [1 + (fan if fan > 0 else nodes) for fan in train.fanout]
        return [min(nodes, seeds * math.prod(grows[:hop])) for hop in range(len(grows) + 1)]
    rows = {
        "random_partition": counts.num_nodes / train.num_clusters,
        "cluster": nodes * train.clusters_per_batch / max(1, num_parts),
        "saint": train.batch_size * train.walk_length,
        "precomputed": train.batch_size,
        "graph": train.batch_size * _NODES_A_GRAPH,
    }.get(loader, nodes)
    return [min(nodes, math.ceil(rows))] * (num_layers + 1)
