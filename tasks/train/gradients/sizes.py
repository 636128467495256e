"""How much memory a training takes: counted before it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from configs.base import ComponentConfig
from configs.errors import RecipeError
from configs.training import TrainConfig
from models.facts import GraphFacts
from tasks.processes.memory import available_bytes
from tasks.sizes import PROCESS_BYTES, Counts
from tasks.train.gradients.part_sizes import largest_graph, part_bytes
from tasks.train.gradients.weights import Weights, count_weights
from tasks.train.loaders.config_base import LoaderConfig
from tasks.train.loaders.configs import AutoConfig
from tasks.train.strategies.configs import PartitionedConfig

if TYPE_CHECKING:
    from tasks.train.strategies.base import Ranks

_STATES = {"adam": 2, "adamw": 2, "sgd": 1, "sparse_adam": 2, "row_adagrad": 0, "": 0}
"""Numbers that an optimizer keeps for each weight (Adagrad by row: one a row, which is nothing beside it)."""
# Arrays kept for gradients, each of the size of a layer's output: sum over neighbours, output, norm, activation.
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


def model_size(weights: Weights, train: TrainConfig) -> ModelSize:
    """Return what a model of so many weights takes in training."""
    rows = getattr(train.embeddings, "optimizer", "")  # that of a table in CPU memory
    return ModelSize(
        weights.dense + weights.table,
        4 * weights.dense * (2 + _STATES[train.optimizer]),
        4 * weights.table * (1 + _STATES[rows]),
    )


def refuse_excess(config: ComponentConfig, train: TrainConfig, facts: GraphFacts, ranks: Ranks) -> None:
    """Refuse a model that cannot be held where it shall train, before any of it is made.

    Raises RecipeError: weights, gradients and optimizer state are more than the memory that is free.
    """
    weights = count_weights(config, train, facts)
    if weights is None:
        return
    import torch

    from tasks.processes.device import choose_device

    size = model_size(weights, train)
    device, local_ranks = choose_device(train.device, ranks.local_rank, share=train.share_gpu), ranks.local_size
    in_shards = isinstance(train.strategy, PartitionedConfig)
    host = size.host_bytes * local_ranks // ranks.world_size if in_shards else size.host_bytes
    host += size.device_bytes * local_ranks if device.type == "cpu" else 0
    places = [("this machine", host, available_bytes())]
    if device.type == "cuda":
        sharing = -(-local_ranks // torch.cuda.device_count())
        places.append((str(device), size.device_bytes * sharing, torch.cuda.mem_get_info(device)[0]))
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
    config: Any, train: TrainConfig, facts: GraphFacts, weights: Weights, counts: Counts, num_parts: int
) -> tuple[int, str]:
    """Estimate a training's peak memory on this machine's CPU in bytes, that of the supervisor's process included.

    Rows of a step are the loader's estimate. Beside it: what there is to say of machines that hold parts.
    """
    size = model_size(weights, train)
    width = max(getattr(config, "hidden_dim", 0), facts.out_dim)
    loader = train.loader
    assert isinstance(loader, LoaderConfig), "a loader's Config derives from LoaderConfig"
    if isinstance(loader, AutoConfig):
        loader = loader.of_task(facts.task, counts.num_edges)
    rows = loader.step_rows(counts.num_nodes, num_parts, getattr(config, "num_layers", 1))
    activations = 4 * width * _ARRAYS_A_LAYER * sum(rows[:-1]) + 4 * facts.feature_dim * rows[-1]
    each = PROCESS_BYTES + size.device_bytes + activations
    needed = PROCESS_BYTES + each * train.num_ranks
    states = _STATES[getattr(train.embeddings, "optimizer", "")]
    parts = part_bytes(train, facts, weights, states, counts, rows[-1])
    if parts is None:
        return needed + size.host_bytes, ""
    needed += int(parts.fixed + parts.scaled)
    return needed, largest_graph(needed, parts.scaled, counts.num_nodes, available_bytes())
