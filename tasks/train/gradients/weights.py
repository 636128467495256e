"""How many weights a model has. Counting takes torch, so a home remembers it: `plan` is asked again and again."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from configs.base import ComponentConfig
from configs.errors import GraphmillError, IntegrityError
from configs.registry import MODELS
from configs.training import TrainConfig
from models.facts import GraphFacts
from tasks.storage.artifacts import write_atomic
from tasks.storage.file_names import file_name
from tasks.storage.home import Home
from tasks.storage.stored import of_kind, read_json

_TABLE = "encoder.embedding.weight"
_MODELS = Path(__file__).resolve().parents[3] / "models"


@dataclass(frozen=True)
class Weights:
    """Numbers that a model learns."""

    dense: int
    """Where the model computes."""
    table: int = 0
    """Of a table of sparse node embeddings, in CPU memory."""


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
    found = {name: parameter.numel() for name, parameter in made.named_parameters()}
    table = found.pop(_TABLE, 0) if _has_table(train) else 0
    return Weights(sum(found.values()), table)


def known_weights(home: Home, model: ComponentConfig, train: TrainConfig, facts: GraphFacts) -> Weights | None:
    """Return what `count_weights` does, counted once in a home."""
    path = _path(home, model, train, facts)
    with suppress(FileNotFoundError, IntegrityError):
        remembered: Weights = of_kind(Weights, read_json(path), path)
        return remembered
    found = count_weights(model, train, facts)
    if found is not None:
        _write(path, found)
    return found


def remember_trained(
    home: Home, model: ComponentConfig, train: TrainConfig, facts: GraphFacts, num_parameters: int
) -> None:
    """Keep the count that a training tells of its model; of a table of embeddings it tells nothing apart."""
    if not _has_table(train):
        _write(_path(home, model, train, facts), Weights(num_parameters))


def _has_table(train: TrainConfig) -> bool:
    return hasattr(train.embeddings, "optimizer")


def _path(home: Home, model: ComponentConfig, train: TrainConfig, facts: GraphFacts) -> Path:
    """Name a count by all that it depends on: options, graph, and the code of the models."""
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_MODELS.rglob("*.py")))).hexdigest()
    # A training knows these, a plan does not.
    graph = asdict(replace(facts, label_mean=(), label_scale=(), fanouts=(), newest=False))
    content = json.dumps([model.model_dump(mode="json"), _has_table(train), graph, code], sort_keys=True)
    return home.cache / "weights" / file_name(f"{hashlib.sha256(content.encode()).hexdigest()[:24]}.json")


def _write(path: Path, weights: Weights) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(path, json.dumps(asdict(weights)).encode())
