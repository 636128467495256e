"""Train: from a partitioned graph to checkpoints of the best and the last weights."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from configs.errors import RecipeError
from configs.registry import MODELS, STRATEGIES
from configs.schema import Recipe
from tasks.stage import Parent, Stage, StageContext
from tasks.storage.graph_facts import graph_facts
from tasks.storage.manifests import PartitionManifest, RunResult
from tasks.train import self_training
from tasks.train.job import BEST, LAST, METRICS, OWN_MODEL, RESULT, Job, stage_config
from tasks.train.ranks.launch import run_job
from tasks.train.warm.warm_start import PARENT, earlier_training, warm_start
from tasks.train.weights import remember_trained

if TYPE_CHECKING:
    from tasks.train.strategies.base import Strategy

VERSION = 7
_PROGRESS_FIELDS = ("best_epoch", "best_metric", "epochs_run", "resumed_from_epoch", "restarts", "rows")
_SPEED_FIELDS = ("world_size", "num_parameters", "seeds_per_second", "edges_per_second")


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Train in supervised processes; goes on from an interrupted build's last checkpoint.

    Raises:
        RecipeError: options that do not fit the graph, or a training that diverged.
        StageError: ranks died more often than train.max_restarts.
    """
    from tasks.evaluators.measurable import check_graph
    from tasks.storage.graph_store import GraphStore

    graph = parents["partition"]
    _announce(context, recipe, graph.manifest)
    check_graph(recipe.evaluate, GraphStore(graph.folder, graph.manifest), None, context.warn)
    warm = warm_start(recipe, context.home, parents[PARENT]) if PARENT in parents else None
    if warm is not None:
        context.message(f"begins with the weights of the snapshot as of {warm.as_of} (train/{warm.key})")
    job = Job.make(recipe, graph.folder, graph.manifest.digest, context.work, warm)
    result = _run_all(self_training.trainings(job), context)
    record = None
    if warm is not None:
        why = result["cold_because"]
        record = {"as_of": warm.as_of, "key": warm.key, "used": not why, "why_not": why}
        if why:
            context.warn(f"the weights as of {warm.as_of} do not fit, training began afresh: {why}")
    _remove_traces(context)
    remember_trained(context.home, recipe.model, recipe.train, graph_facts(graph.manifest), result["num_parameters"])
    return {
        "model": recipe.model.model_dump(mode="json"),
        "seed": recipe.seed,
        "threads": job.train.threads,
        "strategy": recipe.train.strategy.name,
        "best_checkpoint": BEST,
        "last_checkpoint": LAST,
        "metrics_file": METRICS,
        "warm_start": record,
        **{name: result[name] for name in (*_PROGRESS_FIELDS, *_SPEED_FIELDS)},
    }


def _run_all(jobs: list[Job], context: StageContext) -> dict[str, Any]:
    """Run one training after the other, but those that an interrupted build has finished; return the last's result."""
    result: dict[str, Any] = {}
    for number, job in enumerate(jobs, start=1):
        if len(jobs) > 1:
            context.message(f"training {number} of {len(jobs)}")
        job.work.mkdir(exist_ok=True)
        if number == len(jobs) or not (job.work / RESULT).exists():
            result = run_job(job, context)
    return result


def _announce(context: StageContext, recipe: Recipe, manifest: PartitionManifest) -> None:
    """Refuse what cannot work before any process starts, and say what will run."""
    # Here and not above: `plan` needs the stage's key, not torch.
    from tasks.train.loaders.config_base import resolve_loader
    from tasks.train.strategies.base import Ranks

    train = recipe.train
    if getattr(recipe.model, "label_reuse", False) and manifest.task_type == "regression":
        raise RecipeError("model.label_reuse reads classes, and this is a regression; remove it")
    loader = resolve_loader(train, recipe.model, manifest).name
    world_size = train.num_ranks * train.num_machines
    strategy: Strategy = STRATEGIES.create(train.strategy, Ranks(0, world_size, 0, train.num_ranks))
    strategy.check(train, loader, manifest)
    self_training.check(train, manifest)
    context.message(f"{recipe.model.name}, {loader} loader, {world_size} rank(s)")
    has_edge_features = manifest.edge_feature_dim or manifest.edge_categories
    if has_edge_features and not MODELS.get(recipe.model.name).reads_edge_features(recipe.model):
        context.message(f"{recipe.model.name} does not read the edge features; gin and deepgcn do")


def _remove_traces(context: StageContext) -> None:
    """Leave the artifact's files only: no logs, drafts or scratch folders of killed attempts."""
    for path in context.work.iterdir():
        if path.name not in (BEST, LAST, METRICS, OWN_MODEL):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


STAGE: Stage[RunResult] = Stage(
    name="train",
    version=VERSION,
    manifest=RunResult,
    parents=("partition",),
    config=stage_config,
    build=build,
    resumable=True,
    further={PARENT: earlier_training},
)
