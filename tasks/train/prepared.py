"""Whether a recipe can train on what preprocess made, and be evaluated, asked between the stages."""

from __future__ import annotations

from configs.errors import IntegrityError
from configs.schema import Recipe
from tasks.calls import ParentGoneError, load_parents, load_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import class_names


def check_labels(recipe: Recipe, keys: dict[str, str], home: Home) -> None:
    """Refuse a preprocessed graph that the recipe's metrics, loss or loader are not for, before more is made of it.

    `keys` names `ingest` and `preprocess`. Raises UserError.
    """
    if recipe.is_layout:
        return
    from tasks.kinds.measurable import check_graph
    from tasks.train.labels.class_weights import check_training

    try:
        dataset = load_parents(load_stage("preprocess"), home, keys)["ingest"]
        graph = load_parents(load_stage("components"), home, keys)["preprocess"]
    except (ParentGoneError, IntegrityError):
        return  # the next stage notices, and has it made again; training looks too
    names = DatasetStore(dataset.folder, dataset.manifest)
    store, gate_metric = GraphStore(graph.folder, graph.manifest), recipe.tracking.gate_metric
    check_graph(recipe.evaluate, store, names, lambda _: None, gate_metric)  # training warns
    check_training(recipe, store, class_names(names), lambda _: None)
