"""Checkpoints: plain tensors and numbers, written whole or not at all, read without running code.

`last.pt` holds all that a run needs to go on; `best.pt` all that it takes to rebuild and apply the best model. A model
from the user's own file is rebuilt with the copy of that file that lies beside the checkpoint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from configs.errors import CheckpointError, GraphmillError, IntegrityError
from configs.load import stored_options
from configs.registry import MODELS
from models.base import GraphModel
from models.facts import GraphFacts
from tasks.processes.memory import out_of_memory
from tasks.storage.artifacts import atomic_file
from tasks.storage.home_files.fetched import here
from tasks.storage.stored import of_kind
from tasks.train.embeddings.host_tables import TABLE, HostEmbedding, set_around_table
from tasks.train.job import OWN_MODEL, check_archive

FORMAT = 1
_MOST = 1 << 40  # nodes, classes, columns


def save_atomic(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint: a crash leaves the old file or the new one."""
    with atomic_file(path) as file:
        torch.save({"format": FORMAT, **state}, file)


def load(path: Path, digest: str | None = None, *, mapped: bool = False) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; never unpickles code. `mapped`: tensors are read from the disk as they are used.

    Raises IntegrityError, with a digest CheckpointError: it cannot be read, is not as it was written, or belongs to
    another configuration than `digest`. Without a digest no training goes on from it, and tensors that are mapped are
    not checked: that would read all of them.
    """
    kind = IntegrityError if digest is None else CheckpointError
    here(path)
    try:
        if digest is not None or not mapped:
            check_archive(path)  # torch never looks at the checksums of its parts
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # torch raises half a dozen kinds for a damaged file
        raise kind(f"{path} is not a checkpoint of graphmill, or damaged: {error}") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise kind(f"{path} is not a checkpoint of this version of graphmill")
    if digest is not None and state.get("config_digest") != digest:
        raise kind(f"{path} was made with another configuration or graph")
    return state


@contextmanager
def going_on_from(path: Path) -> Iterator[None]:
    """Raise CheckpointError for what does not fit where a training takes over the contents of its last checkpoint.

    No rank waits for another within: a connection that ends is no damage of a file.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, RuntimeError, ValueError) as error:
        if isinstance(error, GraphmillError) or out_of_memory(error) is not None:
            raise
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise CheckpointError(f"{path} is damaged: {why}") from error


def best_state(model: GraphModel, digest: str, epoch: int, metric: float) -> dict[str, Any]:
    """Return what `best.pt` holds. A table that is on the host here stays there when the model is loaded."""
    return {
        "config_digest": digest,
        "model_config": model.config.model_dump(mode="json"),
        "facts": {key: list(v) if isinstance(v, tuple) else v for key, v in dataclasses.asdict(model.facts).items()},
        "model": model.state_dict(),
        "table_on_host": any(isinstance(module, HostEmbedding) for module in model.modules()),
        "epoch": epoch,
        "metric": metric,
    }


def load_model(path: Path) -> GraphModel:
    """Rebuild the model of a `best.pt`, in evaluation mode; a table of sparse embeddings stays in the file, mapped.

    Raises:
        IntegrityError: the file is not one.
        RecipeError: the user's own file that it was made with is neither where it was nor beside the checkpoint.
    """
    state = load(path, mapped=True)
    try:
        return rebuild_model(state["model_config"], state, state["model"], path.parent / OWN_MODEL)
    except (RuntimeError, KeyError, AttributeError, TypeError) as error:
        raise IntegrityError(f"{path} is damaged: {error}") from error


def rebuild_model(
    config: dict[str, Any], described: dict[str, Any], weights: dict[str, Tensor], own_file: Path
) -> GraphModel:
    """Return a model in evaluation mode, in CPU memory.

    Args:
        config: its name and options.
        described: `facts` that size it, and `table_on_host`: whether its table of sparse embeddings stays the tensor in
            `weights`, and follows the model to no device.
        weights: its state dict.
        own_file: copy of a user's own model file, read where the file is gone from its place.

    Raises:
        RecipeError: the user's own file is at neither place, is another one, or does not run here; options that this
            version does not know, or a library that they need is not installed.
        RuntimeError, KeyError: the weights do not fit.
    """
    facts = of_kind(GraphFacts, described["facts"], "the model's description")
    sizes = [value for value in dataclasses.astuple(facts) if isinstance(value, int)]
    sizes += [*facts.categories, *facts.edge_categories]
    if facts.out_dim < 1 or not all(0 <= size <= _MOST for size in sizes):
        raise IntegrityError(f"the model's description is damaged: no graph has {facts}")
    made = stored_options(MODELS, config, own_file, "the stored model")
    weights = dict(weights)
    if described.get("table_on_host"):
        model = set_around_table(made, facts, weights.pop(TABLE))
    else:
        model = MODELS.create(made, facts)
    model.load_state_dict(weights)
    return model.eval()


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters, those of sparse embeddings included."""
    tables = sum(m.num_embeddings * m.embedding_dim for m in model.modules() if isinstance(m, HostEmbedding))
    return tables + sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
