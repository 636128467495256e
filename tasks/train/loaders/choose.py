"""Which loader a recipe means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from configs.base import ComponentConfig
from configs.errors import RecipeError
from configs.schema import LOADERS, TrainConfig
from models.base import GraphModel
from tasks.graph_store import GraphStore
from tasks.manifests import GraphManifest, PartitionManifest
from tasks.train.loaders.base import FeatureSource, Loader
from tasks.train.loaders.cluster import ClusterLoader, RandomPartitionLoader
from tasks.train.loaders.edge import EdgeLoader
from tasks.train.loaders.full import FullLinkLoader, FullNodeLoader
from tasks.train.loaders.graph import GraphLoader
from tasks.train.loaders.neighbor import NeighborLoader
from tasks.train.loaders.precomputed import PrecomputedLoader
from tasks.train.loaders.saint import SaintLoader

# Link tasks: below this many edges encoding the whole graph costs no more than sampling around a batch of pairs, whose
# neighbourhoods then cover most of it.
FULL_ENCODER_EDGES = 5_000_000
# What only some loaders read. fanout and batch_size are not among them: a recipe is to change its loader by one word.
_READ_BY = {
    "sampler": ("neighbor", "edge"),
    "first_hop": ("neighbor", "edge"),
    "num_clusters": ("random_partition",),
    "clusters_per_batch": ("cluster",),
    "saint": ("saint",),
    "walk_length": ("saint",),
}
_LINK_OPTIONS = ("negatives", "num_negatives")


def loader_name(train: TrainConfig, manifest: GraphManifest) -> str:
    """Resolve `auto`. Raises RecipeError for a loader that does not fit the task."""
    fits = LOADERS[manifest.task]
    if train.loader == "auto":
        small = manifest.num_edges <= FULL_ENCODER_EDGES
        return {"node": "neighbor", "link": "full" if small else "edge", "graph": "graph"}[manifest.task]
    if train.loader not in fits:
        raise RecipeError(
            f"train.loader={train.loader} does not fit {manifest.dataset}, a {manifest.task} task; "
            f"use auto or {' or '.join(fits)}"
        )
    return train.loader


def check_loader(train: TrainConfig, model: ComponentConfig, manifest: GraphManifest) -> str:
    """Return the loader's name. Raises RecipeError where options do not fit the task, the graph, the model or it."""
    name = loader_name(train, manifest)
    _refuse_idle_options(train, name, manifest)
    _check_staying_nodes(name, model, manifest)
    _check_dilation(train, name, model)
    if name in ("neighbor", "edge"):
        _check_fanout(train, getattr(model, "num_layers", len(train.fanout)))
    elif name == "cluster":
        _check_clusters(train, manifest)
    elif name == "random_partition" and 2 * train.num_clusters > manifest.num_nodes:
        raise RecipeError(
            f"train.num_clusters={train.num_clusters} leaves clusters of {manifest.dataset}'s {manifest.num_nodes:,} "
            f"nodes with a single node; take at most {max(1, manifest.num_nodes // 2):,}"
        )
    return name


def make_loader(
    train: TrainConfig,
    model: GraphModel,
    store: GraphStore,
    features: FeatureSource,
    *,
    seed: int = 0,
    rank: int = 0,
    scratch: Path | None = None,
) -> Loader:
    """Build the loader of the training split.

    Args:
        train: options.
        model: for which the batches are.
        store: the graph, or what the strategy gives this rank of it.
        features: of its nodes and edges.
        seed: what loaders draw that lay out their own epochs, or estimate something once.
        rank: ranks that go through the same epochs give the same number, else each its own.
        scratch: folder for tables as large as the features, shared by the machine's ranks; None: the system's own.

    Raises:
        RecipeError: options that do not fit.
    """
    name = check_loader(train, model.config, store.manifest)
    if store.manifest.task == "link":
        return _link_loader(name, train, model, store, features)
    if name == "graph":
        return GraphLoader(store, features)
    if name == "neighbor":
        return NeighborLoader(
            store,
            features,
            train.fanout,
            sampler=train.sampler,
            first_hop=train.first_hop,
            reads_mean=model.reads_mean,
            scratch=scratch,
        )
    if name == "cluster":
        return ClusterLoader(store, features, train.clusters_per_batch, seed=seed, rank=rank)
    if name == "random_partition":
        return RandomPartitionLoader(store, features, train.num_clusters, seed=seed, rank=rank)
    if name == "saint":
        return SaintLoader(store, features, train.saint, train.batch_size, train.walk_length, seed=seed)
    if name == "precomputed":
        if not model.num_propagations:
            raise RecipeError(
                "train.loader=precomputed is for models that propagate numeric features as they are (sgc, sign; no "
                f"label_reuse, no input_dropout), and {model.config.name} does more with these options; take "
                "train.loader=neighbor or full"
            )
        return PrecomputedLoader(store, features, model.num_propagations, scratch)
    return FullNodeLoader(store, features)


def _link_loader(
    name: str, train: TrainConfig, model: GraphModel, store: GraphStore, features: FeatureSource
) -> Loader:
    if name == "full":
        return FullLinkLoader(
            store, features, train.num_negatives, train.negatives, leave_out=train.leave_out_positives
        )
    return EdgeLoader(
        store,
        features,
        train.fanout,
        train.num_negatives,
        train.negatives,
        sampler=train.sampler,
        first_hop=train.first_hop,
        reads_mean=model.reads_mean,
    )


def _refuse_idle_options(train: TrainConfig, name: str, manifest: GraphManifest) -> None:
    """Refuse options that this loader or task does not read."""
    for option, loaders in _READ_BY.items():
        value = getattr(train, option)
        if _is_default(train, option) or name in loaders:
            continue
        if option == "num_clusters" and name == "cluster":
            raise RecipeError(
                f"train.num_clusters={value} does nothing with train.loader=cluster, whose clusters are the parts of "
                f"the partition; remove it and set partition.num_parts={value}"
            )
        raise RecipeError(
            f"train.{option}={value} does nothing with the loader {name}; remove it or take train.loader="
            f"{' or '.join(loaders)}"
        )
    if train.leave_out_positives and (name, manifest.task) != ("full", "link"):
        raise RecipeError(
            f"train.leave_out_positives is for link tasks with the loader full and this is the loader {name} on a "
            f"{manifest.task} task (the edge loader leaves them out anyway); remove it"
        )
    if name == "saint" and train.saint != "walk" and not _is_default(train, "walk_length"):
        raise RecipeError(
            f"train.walk_length={train.walk_length} does nothing with train.saint={train.saint}; remove it or take "
            "train.saint=walk"
        )
    for option in _LINK_OPTIONS:
        if manifest.task != "link" and not _is_default(train, option):
            raise RecipeError(
                f"train.{option}={getattr(train, option)} is for link tasks and this is a {manifest.task} task; "
                "remove it"
            )


def _is_default(train: TrainConfig, option: str) -> bool:
    default: Any = TrainConfig.model_fields[option].default
    return bool(getattr(train, option) == default)


def _check_staying_nodes(name: str, model: ComponentConfig, manifest: GraphManifest) -> None:
    """Refuse sampled neighbourhoods, whose nodes become fewer from layer to layer, where a model wants them to stay."""
    if name not in ("neighbor", "edge"):
        return
    for option, value in (("reversible", False), ("label_iterations", 0)):
        if (given := getattr(model, option, value)) == value:
            continue
        fits = [other for other in LOADERS[manifest.task] if other not in (name, "precomputed")]
        raise RecipeError(
            f"model.{option}={str(given).lower()} wants batches whose nodes stay from layer to layer, and "
            f"train.loader={name} gives each layer fewer; take train.loader={' or '.join(fits)}, or set "
            f"model.{option}={str(value).lower()}"
        )


def _check_dilation(train: TrainConfig, name: str, model: ComponentConfig) -> None:
    """Refuse batches that hold some of a node's neighbours where a model wants them all, in order."""
    if getattr(model, "dilation", 1) == 1:
        return
    sampled = name in ("neighbor", "edge") and any(fanout != -1 for fanout in train.fanout)
    if sampled or name in ("cluster", "random_partition", "saint"):
        raise RecipeError(
            "model.dilation takes every d-th of all neighbours, and the batches of "
            f"train.loader={name} hold some of them; take train.loader=full, set train.fanout to -1 in every layer of "
            "the loader neighbor, or model.dilation=1"
        )


def _check_fanout(train: TrainConfig, num_layers: int) -> None:
    if len(train.fanout) != num_layers:
        raise RecipeError(
            f"train.fanout has {len(train.fanout)} numbers and the model has {num_layers} layers; give one a layer, "
            f"such as train.fanout={','.join(['10'] * num_layers)}"
        )


def _check_clusters(train: TrainConfig, manifest: GraphManifest) -> None:
    assert isinstance(manifest, PartitionManifest), "training reads what the partition stage left"
    if manifest.num_parts == 1:
        raise RecipeError(
            "train.loader=cluster takes the parts of the partition as clusters and this recipe's partition has one; "
            "set partition.num_parts, such as partition.num_parts=100 with train.clusters_per_batch=10, or take "
            "train.loader=random_partition"
        )
    if train.clusters_per_batch > manifest.num_parts:
        raise RecipeError(
            f"train.clusters_per_batch={train.clusters_per_batch} is more than the partition's {manifest.num_parts} "
            "parts; lower it or raise partition.num_parts"
        )
