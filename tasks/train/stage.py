"""Train: from a partitioned graph to checkpoints of the best and the last weights."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from configs.errors import RecipeError
from configs.families.row_training import FactorTrainConfig
from configs.schema import Recipe
from configs.training import RelationalTrainConfig, TrainConfig
from tasks.calls import ParentGoneError, expected_key
from tasks.sizes import counts_of
from tasks.stage import Parent, Stage, StageContext
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.graph_facts import graph_facts, task_relation
from tasks.storage.home import Home
from tasks.storage.manifests import DatasetManifest, PartitionManifest
from tasks.storage.outcomes import RunResult
from tasks.train.families import family_of, trainings, unread_edge_features
from tasks.train.gradients.sizes import remember_trained
from tasks.train.job import BEST, LAST, METRICS, OWN_MODEL, AnyJob, ClassWeights, Job, stage_config
from tasks.train.ranks.launch import launcher_of, run_training
from tasks.train.warm.start import PARENT, earlier_training, warm_start

VERSION = 18
NAMED_BY = "classes"
"""What the data set is called among the parents of a training that weighs classes: it has their names."""
_PROGRESS_FIELDS = ("best_epoch", "best_metric", "epochs_run", "resumed_from_epoch", "restarts", "rows")
_SPEED_FIELDS = ("world_size", "num_parameters", "seeds_per_second", "edges_per_second")


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Train in supervised processes; goes on from an interrupted build's last checkpoint.

    Raises:
        RecipeError: options that do not fit the graph, or a training that diverged.
        StageError: ranks died more often than train.max_restarts.
    """
    from tasks.kinds.measurable import check_graph
    from tasks.storage.dataset_store import DatasetStore
    from tasks.storage.graph_store import GraphStore

    graph = parents["partition"]
    _refuse_later_rows(recipe, graph.manifest)
    family = family_of(recipe.train)
    family.announce(context, recipe, graph.manifest)
    unread = unread_edge_features(recipe, graph.manifest)
    if unread is not None:
        context.warn(unread)
    if not recipe.is_layout:
        dataset = _ingested(recipe, context.home)  # for the names of classes
        store = None if dataset is None else DatasetStore(dataset.folder, dataset.manifest)
        check_graph(recipe.evaluate, GraphStore(graph.folder, graph.manifest), store, context.warn)
    warm = warm_start(recipe, context.home, parents[PARENT]) if PARENT in parents else None
    if warm is not None:
        context.message(f"begins with the weights of the snapshot as of {warm.as_of} (train/{warm.key})")
    weights = _class_weights(context, recipe, parents)
    job = Job.make(recipe, graph.folder, graph.manifest.digest, context.work, warm, weights)
    result = _run_all(trainings(job), context, recipe, graph.manifest)
    record = None
    if warm is not None:
        why = result["cold_because"]
        record = {"as_of": warm.as_of, "key": warm.key, "used": not why, "why_not": why}
        if why:
            context.warn(f"the weights as of {warm.as_of} do not fit, training began afresh: {why}")
    epochs = getattr(recipe.train, "epochs", None)
    if epochs and result["epochs_run"] == result["best_epoch"] >= epochs:
        context.warn(
            f"the best epoch is the last one, {result['best_epoch']}: more epochs may help "
            f"(train.epochs={2 * epochs}, with train.patience to end in time)"
        )
    strategy = getattr(recipe.train, "strategy", None)
    alone = "" if recipe.train.family == FactorTrainConfig.family else "one_process"  # "": there are no steps to share
    for path in context.work.iterdir():  # no logs, drafts or scratch folders of killed attempts
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (BEST, LAST, METRICS, OWN_MODEL):
            path.unlink()
    if isinstance(recipe.train, TrainConfig):
        facts = graph_facts(graph.manifest)
        remember_trained(context.home, recipe.model, recipe.train, facts, result["num_parameters"])
    return {
        "model": recipe.model.model_dump(mode="json"),
        "seed": recipe.seed,
        "threads": job.train.threads,
        "strategy": strategy.name if strategy else alone,
        "best_checkpoint": BEST,
        "last_checkpoint": LAST,
        "metrics_file": METRICS,
        "warm_start": record,
        "machines": result["machines"],
        "peak_bytes": max((one["peak_bytes"] for one in result["machines"]), default=0),
        **{name: result[name] for name in (*_PROGRESS_FIELDS, *_SPEED_FIELDS)},
    }


def _class_weights(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> ClassWeights:
    if NAMED_BY not in parents:
        return ()
    from tasks.storage.dataset_store import DatasetStore
    from tasks.storage.graph_store import GraphStore
    from tasks.storage.ids import class_names
    from tasks.train.labels.class_weights import class_weight_of, class_weights

    assert isinstance(recipe.train, TrainConfig)
    graph, dataset = parents["partition"], parents[NAMED_BY]
    names = class_names(DatasetStore(dataset.folder, dataset.manifest))
    return class_weights(
        class_weight_of(recipe.train), GraphStore(graph.folder, graph.manifest), names, context.message
    )


def _dataset(recipe: Recipe, home: Home, parents: dict[str, Parent]) -> Parent | None:
    """Return what was ingested, where the recipe weighs classes, which have their names there."""
    if getattr(getattr(recipe.train, "loss", None), "class_weight", "none") == "none":
        return None
    dataset = _ingested(recipe, home)
    if dataset is None:
        raise ParentGoneError("ingest")
    return dataset


def _ingested(recipe: Recipe, home: Home) -> Parent | None:
    key, store = expected_key("ingest", recipe, {}, home), ArtifactStore(home)
    manifest = store.load("ingest", key, DatasetManifest)
    return None if manifest is None else Parent(manifest, store.folder("ingest", key))


def _refuse_later_rows(recipe: Recipe, manifest: PartitionManifest) -> None:
    """Refuse a model that sees the whole graph where rows are predicted as of a moment each. Raises RecipeError."""
    if manifest.heads and recipe.train.family != RelationalTrainConfig.family:
        raise RecipeError(
            f"{manifest.dataset} has several tasks, and model.name={recipe.model.name} learns one; name a single label "
            "(dataset.predict), or take a model of typed graphs: model.name=heterosage, rgat or hgt"
        )
    at_moments = task_relation(manifest) is not None or manifest.fit_before is not None
    if at_moments and recipe.train.family != RelationalTrainConfig.family:
        raise RecipeError(
            f"{manifest.dataset} predicts {manifest.target_type} as of a moment each, and model.name="
            f"{recipe.model.name} sees what came after it too, so its scores would mean nothing; take a model of typed "
            "graphs: model.name=heterosage, rgat, hgt or dgl_hetero"
        )


def _run_all(jobs: Sequence[AnyJob], context: StageContext, recipe: Recipe, graph: PartitionManifest) -> dict[str, Any]:
    """Run one training after the other; return the last's result."""
    result: dict[str, Any] = {}
    size = None  # what a rank is estimated to take, where a cluster is to have it; 0: that is not known
    if recipe.cluster.address is not None and recipe.train.num_ranks > 1:
        facts, counts = graph_facts(graph), counts_of(graph)
        size = family_of(recipe.train).size(context.home, recipe, facts, counts, graph.num_parts)
    memory = size[1] / recipe.train.num_ranks if size else 0
    for number, job in enumerate(jobs, start=1):
        if len(jobs) > 1:
            context.message(f"training {number} of {len(jobs)}")
        job.work.mkdir(exist_ok=True)
        result = run_training(job, context, launcher_of(recipe, context.home, job.work, memory))
    return result


STAGE: Stage[RunResult] = Stage(
    name="train",
    version=VERSION,
    manifest=RunResult,
    parents=("partition",),
    config=stage_config,
    build=build,
    resumable=True,
    further={PARENT: earlier_training, NAMED_BY: _dataset},
)
