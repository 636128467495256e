"""The job of a worker process: one JSON file, read by every rank."""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic_core import to_json

from configs.base import ComponentConfig, cache_view
from configs.families.row_training import train_section
from configs.registry import LOSSES, MODELS
from configs.schema import EvaluateConfig, Recipe
from configs.training import TrainBase, TrainConfig
from tasks.storage.artifacts import write_atomic
from tasks.storage.stored import of_kind, read_json

BEST = "best.pt"
LAST = "last.pt"
OWN_MODEL, OWN_LOSS = "model.py", "loss.py"
"""Copy of the file that the model comes from, where that is the user's own."""
METRICS = "metrics.jsonl"
PROGRESS = "progress.json"
LOGS = "logs"
JOB = "job.json"
RESULT = "result.json"
ERROR = "error.json"
_DEVICES = Path("/dev")
ClassWeights = tuple[tuple[tuple[float, ...], ...], ...]
"""Of each task that shares the model (else of the only one): of one class a row a single tuple with a weight for each
class; of label columns a pair for each, of 0 and of 1; of a regression nothing."""
Section = TypeVar("Section", bound=TrainBase, covariant=True)


def check_archive(path: Path) -> None:
    """Raise ValueError, or BadZipFile: a checkpoint was changed after it was written."""
    with zipfile.ZipFile(path) as file:
        changed = file.testzip()
    if changed is not None:
        raise ValueError(f"its part {changed} was changed after it was written")


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that nothing reads it again; return its new path."""
    return path.replace(path.with_name(f"{path.name}.damaged"))


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def threads_per_rank(train: TrainBase) -> int:
    """Return the CPU threads of a rank: as the recipe says, else this machine's cores divided by its ranks.

    Their number changes the order of sums, so it is part of what decides a training's result.
    """
    return train.threads or max(1, cores() // train.num_ranks)


def device_kind(train: TrainBase) -> str:
    """Return `cpu` or `cuda`: what `train.device=auto` comes to on this machine, without importing torch.

    A GPU adds in another order than a CPU, so the device is part of what decides a training's result.
    """
    if train.device != "auto":
        return train.device
    if not train.auto_takes_gpu:
        return "cpu"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    there = not hidden and any(_DEVICES.glob("nvidia[0-9]*"))
    return "cuda" if there and not version("torch").endswith("+cpu") else "cpu"


def scaled_learning_rate(train: TrainConfig, world_size: int) -> float:
    """Return the peak learning rate for so many ranks, by `lr_scaling`."""
    factor = {"none": 1.0, "linear": float(world_size), "sqrt": math.sqrt(world_size)}[train.lr_scaling]
    return train.learning_rate * factor


def stage_config(recipe: Recipe) -> dict[str, Any]:
    """Return the part of a recipe that decides what is trained."""
    model, train = recipe.model.model_dump(mode="json"), cache_view(recipe.train)
    for component in (model, train.get("loss", {})):
        if component.get("file") is not None:
            del component["file"]  # its digest counts, not its place
    return {
        "seed": recipe.seed,
        "model": model,
        "train": {
            **train,
            "threads": threads_per_rank(recipe.train),
            "device": device_kind(recipe.train),
        },
        "evaluator": recipe.evaluate.evaluator.model_dump(mode="json"),  # chooses the best checkpoint
    }


@dataclass(frozen=True)
class WarmStart:
    """An earlier training, and where its nodes are named."""

    as_of: str
    key: str
    checkpoint: Path
    graph: Path | None
    """The graph that it was trained on; None: that, or what one of the two was made of, is no longer there."""
    dataset: Path
    """What that graph was made of."""
    own_dataset: Path
    """What the present graph is made of."""
    weights: str = ""
    """sha256 of the checkpoint."""


@dataclass(frozen=True)
class Job(Generic[Section]):
    """One training: sections of the recipe, the graph's folder and the folder to write into."""

    seed: int
    model: ComponentConfig
    train: Section
    """With `threads` as they were counted when the job was made."""
    evaluate: EvaluateConfig
    graph: Path
    work: Path
    digest: str
    """Digest of the configuration and the graph; a checkpoint of another one is refused."""
    warm: WarmStart | None = None
    """Training whose weights this one begins with."""
    class_weights: ClassWeights = ()
    """Of the loss (`train.loss.class_weight`)."""
    teacher: Path | None = None
    """Checkpoint whose confident predictions count as labels (`train.self_training`)."""

    @classmethod
    def make(
        cls,
        recipe: Recipe,
        graph: Path,
        graph_digest: str,
        work: Path,
        warm: WarmStart | None = None,
        class_weights: ClassWeights = (),
    ) -> AnyJob:
        """Take what training needs out of a recipe."""
        begins_with = [warm.weights or warm.key] if warm else []
        described = json.dumps(
            [stage_config(recipe), graph_digest, *begins_with, *([class_weights] if class_weights else [])],
            sort_keys=True,
        )
        digest = hashlib.sha256(described.encode()).hexdigest()
        train = recipe.train.model_copy(update={"threads": threads_per_rank(recipe.train)})
        sections = recipe.seed, recipe.model, train, recipe.evaluate
        return AnyJob(*sections, graph, work, digest, warm=warm, class_weights=class_weights)

    def save(self) -> Path:
        """Write the job into its work folder, and copies of the user's own files of the model and the loss."""
        loss = getattr(self.train, "loss", None)
        own_files = {OWN_MODEL: MODELS.own_file(self.model), OWN_LOSS: LOSSES.own_file(loss) if loss else None}
        for name, content in own_files.items():
            if content is not None:
                write_atomic(self.work / name, content)
        path = self.work / JOB
        write_atomic(path, to_json(self, indent=1))
        return path

    @classmethod
    def load(cls, path: Path) -> AnyJob:
        """Read a job; only the components that it names are imported."""
        content = read_json(path)
        model = MODELS.config(content["model"], path.parent / OWN_MODEL)
        section = content["train"]
        if "loss" in section:
            section = {**section, "loss": LOSSES.config(section["loss"], path.parent / OWN_LOSS)}
        train = of_kind(train_section(type(model)), section, path)
        job: AnyJob = of_kind(cls, {**content, "model": model, "train": train}, path)
        return job


AnyJob = Job[TrainBase]
GnnJob = Job[TrainConfig]
