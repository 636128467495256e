"""How many weights a model has, and how much memory its training takes: counted before it is asked for."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.base import ComponentConfig
from configs.errors import GraphmillError, IntegrityError, RecipeError
from configs.registry import MODELS
from configs.training import TrainConfig
from models.facts import GraphFacts
from tasks.processes.memory import available_bytes
from tasks.sizes import PROCESS_BYTES, Counts
from tasks.storage.artifacts import write_atomic
from tasks.storage.file_names import file_name
from tasks.storage.home import Home
from tasks.storage.stored import of_kind, read_json
from tasks.train.loaders.config_base import LoaderConfig, SampledConfig
from tasks.train.loaders.configs import AutoConfig
from tasks.train.strategies.configs import PartitionedConfig

if TYPE_CHECKING:
    from tasks.train.strategies.base import Ranks

_TABLE = "encoder.embedding.weight"
_MODELS = Path(__file__).resolve().parents[3] / "models"
_STATES = {"adam": 2, "adamw": 2, "sgd": 1, "sparse_adam": 2, "row_adagrad": 0, "": 0}
"""Numbers that an optimizer keeps for each weight (Adagrad by row: one a row, which is nothing beside it)."""
# Arrays kept for gradients, each of the size of a layer's output: sum over neighbours, output, norm, activation.
_ARRAYS_A_LAYER = 4
_NUMBERING_BYTES = 8
"""A node of the whole graph and rank: local numbers, and once as many where validation finds what borders on a part."""
_OFFSET_BYTES = 8 + 4
"""A node of a machine and rank: where its in-edges begin, and their number as a float."""
_NUMBER_BYTES = {"stored": 4, "float16": 2, "bfloat16": 2, "int8": 1}
_CACHE_SHARE = 1 / 8


@dataclass(frozen=True)
class Weights:
    """Numbers that a model learns."""

    dense: int
    """Where the model computes."""
    table: int = 0
    """Of a table of sparse node embeddings, in CPU memory."""

    def device_bytes(self, train: TrainConfig) -> int:
        """Return what weights, gradients and optimizer state take where the model computes."""
        return 4 * self.dense * (2 + _STATES[train.optimizer])

    def host_bytes(self, train: TrainConfig) -> int:
        """Return what the table of sparse embeddings and its optimizer's state take in CPU memory."""
        return 4 * self.table * (1 + _table_states(train))


def count_weights(model: ComponentConfig, train: TrainConfig, facts: GraphFacts) -> Weights | None:
    """Count a model's weights without making them; None for a model of the user's own that torch cannot build so.

    Raises RecipeError: as the model itself does.
    """
    import torch

    try:
        # Tensors on the device "meta" have shapes and no memory. Drawing initial weights must not shift other draws.
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            made = MODELS.create(model, facts)
    except GraphmillError:
        raise
    except Exception:
        return None
    sizes = {name: parameter.numel() for name, parameter in made.named_parameters()}
    table = sizes.pop(_TABLE, 0) if _has_table(train) else 0
    return Weights(sum(sizes.values()), table)


def known_weights(home: Home, model: ComponentConfig, train: TrainConfig, facts: GraphFacts) -> Weights | None:
    """Return what `count_weights` does, counted once in a home."""
    path = _path(home, model, train, facts)
    with suppress(FileNotFoundError, IntegrityError):
        remembered: Weights = of_kind(Weights, read_json(path), path)
        return remembered
    weights = count_weights(model, train, facts)
    if weights is not None:
        _keep_weights(path, weights)
    return weights


def remember_trained(
    home: Home, model: ComponentConfig, train: TrainConfig, facts: GraphFacts, num_parameters: int
) -> None:
    """Keep the count that a training tells of its model; of a table of embeddings it tells nothing apart."""
    if not _has_table(train):
        _keep_weights(_path(home, model, train, facts), Weights(num_parameters))


def _keep_weights(path: Path, weights: Weights) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(path, json.dumps(asdict(weights)).encode())


def _has_table(train: TrainConfig) -> bool:
    return hasattr(train.embeddings, "optimizer")


def _table_states(train: TrainConfig) -> int:
    """Return how many numbers a table's optimizer keeps for each of its own."""
    return _STATES[getattr(train.embeddings, "optimizer", "")]


def _path(home: Home, model: ComponentConfig, train: TrainConfig, facts: GraphFacts) -> Path:
    """Name a count by all that it depends on: options, graph, and the code of the models."""
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_MODELS.rglob("*.py")))).hexdigest()
    # A training knows these, a plan does not.
    graph = asdict(replace(facts, label_mean=(), label_scale=(), fanouts=(), newest=False))
    content = json.dumps([model.model_dump(mode="json"), _has_table(train), graph, code], sort_keys=True)
    return home.cache / "weights" / file_name(f"{hashlib.sha256(content.encode()).hexdigest()[:24]}.json")


def refuse_excess(config: ComponentConfig, train: TrainConfig, facts: GraphFacts, ranks: Ranks) -> None:
    """Refuse a model that cannot be held where it shall train, before any of it is made.

    Raises RecipeError: weights, gradients and optimizer state are more than the memory that is free.
    """
    weights = count_weights(config, train, facts)
    if weights is None:
        return
    import torch

    from tasks.processes.device import choose_device

    device, local_ranks = choose_device(train.device, ranks.local_rank, share=train.share_gpu), ranks.local_size
    in_shards = isinstance(train.strategy, PartitionedConfig)
    host = weights.host_bytes(train) * local_ranks // ranks.world_size if in_shards else weights.host_bytes(train)
    host += weights.device_bytes(train) * local_ranks if device.type == "cpu" else 0
    places = [("this machine", host, available_bytes())]
    if device.type == "cuda":
        sharing = -(-local_ranks // torch.cuda.device_count())
        places.append((str(device), weights.device_bytes(train) * sharing, torch.cuda.mem_get_info(device)[0]))
    for place, needed, free in places:
        if needed > free:
            each = f", {local_ranks} ranks of it" if local_ranks > 1 and device.type == "cpu" else ""
            raise RecipeError(
                f"model.name={config.name} has {weights.dense + weights.table:,} weights: with gradients and the "
                f"optimizer's state {needed / 1e9:,.1f} GB{each}, and {place} has {free / 1e9:,.1f} GB free; take a "
                "smaller model.hidden_dim or model.num_layers"
                + ("" if facts.feature_dim else ", or a smaller model.embedding_dim")
            )


def training_bytes(
    config: Any,
    train: TrainConfig,
    facts: GraphFacts,
    weights: Weights,
    counts: Counts,
    num_parts: int,
    machines: int = 1,
) -> tuple[int, str]:
    """Estimate a training's peak memory on the CPU in bytes, that of the supervisor's process included.

    `machines`: that the ranks are on; the memory is that of each.

    Rows of a step are the loader's estimate. Beside it: what there is to say of machines that hold parts.
    """
    width = max(getattr(config, "hidden_dim", 0), facts.out_dim)
    loader = train.loader
    assert isinstance(loader, LoaderConfig), "a loader's Config derives from LoaderConfig"
    if isinstance(loader, AutoConfig):
        loader = loader.of_task(facts.task, counts.num_edges)
    num_layers, are_several = getattr(config, "num_layers", 1), facts.num_edge_types > 1
    if isinstance(loader, SampledConfig) and are_several and MODELS.get(config.name).reads_relations(config):
        # Fan-outs of all relations that lead into a type: each is sampled by itself.
        into = max(Counter(target for _, target in facts.relation_ends).values(), default=facts.num_edge_types)
        summed = tuple(one * into if one > 0 else one for one in loader.fanouts(num_layers))
        loader = loader.model_copy(update={"fanout": summed})
    rows = loader.step_rows(counts.num_nodes, num_parts, num_layers)
    activations = 4 * width * _ARRAYS_A_LAYER * sum(rows[:-1]) + 4 * facts.feature_dim * rows[-1]
    each = PROCESS_BYTES + weights.device_bytes(train) + activations
    needed = PROCESS_BYTES + each * -(-train.num_ranks // machines)
    parts = part_bytes(train, facts, weights, counts, rows[-1], machines)
    if parts is None:
        return needed + weights.host_bytes(train), ""
    fixed, scaled = parts
    needed += int(fixed + scaled)
    most = counts.num_nodes * max(0.0, available_bytes() - (needed - scaled)) / max(scaled, 1.0)
    holders = "this machine holds" if machines == 1 else f"{machines} machines like this one hold"
    return needed, f"{holders} {most / 1e6:,.0f} M nodes of such a graph, if the disk does"


def part_bytes(
    train: TrainConfig, facts: GraphFacts, weights: Weights, counts: Counts, rows_read: int, machines: int = 1
) -> tuple[float, float] | None:
    """Return what strategy `partitioned` takes on a machine beside any training; None with another one.

    In bytes, mapped files apart: what does not grow with the nodes of the graph, and what does. `rows_read`: nodes that
    a batch reads.
    """
    options = train.strategy
    if not isinstance(options, PartitionedConfig):
        return None
    num_nodes, world_size = counts.num_nodes, train.num_ranks
    ranks = -(-world_size // machines)
    row_bytes = facts.feature_dim * _NUMBER_BYTES[options.rows]
    copied = row_bytes if options.rows != "stored" else 2 * facts.feature_dim * (train.precision == "bfloat16")
    remote_rows = min(num_nodes, rows_read * options.exchange_batches) * (1 - 1 / machines)
    fixed = ranks * (remote_rows * row_bytes + (options.cache or 0))
    scaled = ranks * num_nodes * (_NUMBERING_BYTES + (_OFFSET_BYTES + copied) / machines)
    if options.cache is None and machines > 1:
        scaled += ranks * num_nodes / world_size * row_bytes * _CACHE_SHARE
    scaled += ranks * 4 * (weights.table * (1 + _table_states(train)) + num_nodes * (weights.table > 0)) / world_size
    return fixed, scaled
