"""Whether what preprocess made can be evaluated, asked between the stages."""

from __future__ import annotations

from configs.errors import IntegrityError
from configs.schema import Recipe
from tasks.calls import ParentGoneError, load_parents, load_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home


def check_labels(recipe: Recipe, keys: dict[str, str], home: Home) -> None:
    """Refuse a preprocessed graph whose splits the recipe's metrics cannot be measured on, before more is made of it.

    `keys` names `ingest` and `preprocess`. Raises UserError.
    """
    if recipe.is_layout:
        return
    from tasks.kinds.measurable import check_graph

    try:
        dataset = load_parents(load_stage("preprocess"), home, keys)["ingest"]
        graph = load_parents(load_stage("components"), home, keys)["preprocess"]
    except (ParentGoneError, IntegrityError):
        return  # the next stage notices, and has it made again; training looks too
    names = DatasetStore(dataset.folder, dataset.manifest)
    store, gate_metric = GraphStore(graph.folder, graph.manifest), recipe.tracking.gate_metric
    check_graph(recipe.evaluate, store, names, lambda _: None, gate_metric)  # training warns
