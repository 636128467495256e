"""Which loader a recipe means."""

from __future__ import annotations

from configs.errors import RecipeError
from configs.schema import TrainConfig
from tasks.graph_store import GraphStore
from tasks.manifests import GraphManifest
from tasks.train.loaders.base import FeatureSource, Loader
from tasks.train.loaders.edge import EdgeLoader
from tasks.train.loaders.full import FullLinkLoader, FullNodeLoader
from tasks.train.loaders.graph import GraphLoader
from tasks.train.loaders.neighbor import NeighborLoader

# Link tasks: below this many edges encoding the whole graph costs no more than sampling around a batch of pairs, whose
# neighbourhoods then cover most of it.
FULL_ENCODER_EDGES = 5_000_000
_FITS = {"node": ("full", "neighbor"), "link": ("full", "edge"), "graph": ("graph",)}


def loader_name(train: TrainConfig, manifest: GraphManifest) -> str:
    """Resolve `auto`. Raises RecipeError for a loader that does not fit the task."""
    fits = _FITS[manifest.task]
    if train.loader == "auto":
        small = manifest.num_edges <= FULL_ENCODER_EDGES
        return {"node": "neighbor", "link": "full" if small else "edge", "graph": "graph"}[manifest.task]
    if train.loader not in fits:
        raise RecipeError(
            f"train.loader={train.loader} does not fit {manifest.dataset}, a {manifest.task} task; "
            f"use auto or {' or '.join(fits)}"
        )
    return train.loader


def check_loader(train: TrainConfig, num_layers: int, manifest: GraphManifest) -> str:
    """Return the loader's name. Raises RecipeError where it does not fit the task or the model."""
    name = loader_name(train, manifest)
    if name in ("neighbor", "edge") and len(train.fanout) != num_layers:
        raise RecipeError(
            f"train.fanout has {len(train.fanout)} numbers and the model has {num_layers} layers; give one a layer, "
            f"such as train.fanout={','.join(['10'] * num_layers)}"
        )
    return name


def make_loader(train: TrainConfig, num_layers: int, store: GraphStore, features: FeatureSource) -> Loader:
    """Build the loader of the training split. Raises RecipeError where options do not fit."""
    name = check_loader(train, num_layers, store.manifest)
    if name == "neighbor":
        return NeighborLoader(store, features, train.fanout)
    if name == "edge":
        return EdgeLoader(store, features, train.fanout, train.num_negatives)
    if name == "graph":
        return GraphLoader(store, features)
    if store.manifest.task == "link":
        return FullLinkLoader(store, features, train.num_negatives)
    return FullNodeLoader(store, features)
