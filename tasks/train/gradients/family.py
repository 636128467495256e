"""The family of models that learn by gradients of batches: GNNs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from configs.errors import RecipeError
from configs.registry import STRATEGIES
from configs.schema import Recipe
from configs.training import TrainConfig
from models.facts import GraphFacts
from tasks.sizes import Counts
from tasks.stage import StageContext
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import BEST, GnnJob
from tasks.train.loaders.config_base import LoaderConfig, resolve_loader
from tasks.train.loaders.configs import AutoConfig
from tasks.train.strategies.configs import PartitionedConfig, PartitionParallelConfig

if TYPE_CHECKING:
    from tasks.train.strategies.base import Ranks, Strategy

_WHOLE_GRAPH = ("full", "full_edge")


def check_options(recipe: Recipe) -> None:
    """Refuse what no graph makes right, before hours go into preparing one. Raises RecipeError."""
    train = recipe.train
    assert isinstance(train, TrainConfig)
    partition: Any = recipe.partition
    assert isinstance(train.loader, LoaderConfig), "a loader's Config derives from LoaderConfig"
    train.loader.check_model(recipe.model)
    if train.strategy.name != "data_parallel":  # which refuses nothing: strategies import numpy, and `plan` asks this
        dataset: Any = recipe.dataset
        loader: str | None = train.loader.name
        if isinstance(train.loader, AutoConfig):
            loader = train.loader.name_for(getattr(dataset, "task", ""))
        _strategy(train).check_options(train, loader, partition.num_parts)
        whole = getattr(dataset, "needs_whole_graph", "")
        if whole and train.strategy.name == "partitioned":
            raise RecipeError(f"train.strategy=partitioned does not train {whole}; take train.strategy=data_parallel")


def _strategy(train: TrainConfig) -> Strategy:
    from tasks.train.strategies.base import Ranks

    ranks = Ranks(0, train.num_ranks, 0, train.num_ranks)
    made: Strategy = STRATEGIES.create(train.strategy, ranks)
    return made


def announce(context: StageContext, recipe: Recipe, manifest: PartitionManifest) -> None:
    """Refuse what cannot work before any process starts, and say what will run. Raises RecipeError."""
    train = recipe.train
    assert isinstance(train, TrainConfig)
    if getattr(recipe.model, "label_reuse", False) and manifest.label_type.is_number:
        raise RecipeError("model.label_reuse reads classes, and this is a regression; remove it")
    from tasks.train.labels.class_weights import check_loss

    loader = resolve_loader(train, recipe.model, manifest).name
    world_size = train.num_ranks
    _strategy(train).check(train, loader, manifest)
    check_loss(train.loss, manifest)
    check_self_training(train, manifest)
    context.message(f"{recipe.model.name}, {loader} loader, {world_size} rank(s)")
    if world_size > 1 and loader in _WHOLE_GRAPH and train.strategy.name == "data_parallel":
        context.warn(
            f"each of the {world_size} ranks computes the whole graph in every step (loader {loader}), no faster than "
            "one; train.strategy=partition_parallel gives each its part, and other loaders share the seeds"
        )
    options = train.strategy
    own_seeds = isinstance(options, PartitionParallelConfig) or getattr(options, "seeds", "") == "own"
    if world_size > 1 and own_seeds and getattr(recipe.model, "norm", "") == "batch":
        shuffled = " or train.strategy.seeds=shuffled" if isinstance(options, PartitionedConfig) else ""
        context.warn(
            "ranks take the seeds of their own parts, and model.norm=batch learns from each rank's batches: where "
            "parts follow the classes, its statistics hold for no part, and the model is far worse; compare once with "
            f"model.norm=layer{shuffled}"
        )


def train(job: GnnJob, ranks: Ranks) -> None:
    """Train one rank to the end, from the last checkpoint if there is one. Raises RecipeError."""
    from tasks.processes.device import choose_device, use_threads
    from tasks.train import run
    from tasks.train.gradients.engine import GradientEngine
    from tasks.train.gradients.steps import check_precision

    use_threads(job.train.threads)
    device = choose_device(job.train.device, ranks.local_rank, share=job.train.share_gpu)
    check_precision(job.train, device)
    run.train(lambda: GradientEngine(job, ranks, device), ranks, device, share_gpu=job.train.share_gpu)


def size(home: Home, recipe: Recipe, facts: GraphFacts, counts: Counts, num_parts: int) -> tuple[str, int] | None:
    """Return the model's weights, in words, and a training's peak memory in bytes, on this machine's CPU.

    On a cluster: that of all ranks together, each on a machine of its own.
    """
    from tasks.train.gradients.sizes import known_weights, training_bytes

    assert isinstance(recipe.train, TrainConfig)
    weights = known_weights(home, recipe.model, recipe.train, facts)
    if weights is None:
        return None
    machines = recipe.train.num_ranks if recipe.cluster.address else 1
    needed, held = training_bytes(recipe.model, recipe.train, facts, weights, counts, num_parts, machines)
    return f"{weights.dense + weights.table:,} weights" + (f"; {held}" if held else ""), machines * needed


def check_self_training(train: TrainConfig, manifest: PartitionManifest) -> None:
    """Raise RecipeError where self-training is asked for and the task is not one class a node."""
    one_class = manifest.split_rows.are_nodes and manifest.label_type.one_of_many and manifest.num_tasks == 1
    if train.self_training is not None and not one_class:
        raise RecipeError(
            f"train.self_training is for one class a node, and {manifest.dataset} is a {manifest.task} task "
            f"({manifest.task_type}); remove it"
        )


def trainings(job: GnnJob) -> list[GnnJob]:
    """Return the trainings that make up a job, in order; the last one works in the job's own folder.

    Each of the others has a folder and a digest of its own, and each but the first learns from the one before it.
    """
    rounds = job.train.self_training.rounds if job.train.self_training else 0
    folders = [job.work / f"round-{number}" for number in range(rounds)]
    jobs = [replace(job, work=folder, digest=f"{job.digest}-{number}") for number, folder in enumerate(folders)]
    teachers = [None, *(folder / BEST for folder in folders)]
    return [replace(each, teacher=teacher) for each, teacher in zip([*jobs, job], teachers, strict=True)]
