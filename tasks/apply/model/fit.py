"""Whether a model can read a graph that it was not trained on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from configs.base import ComponentConfig
from configs.errors import DataError, OtherGraphError
from tasks.kinds.of import kind_named
from tasks.preprocess.transforms.configs import from_methods
from tasks.storage.manifests import GraphManifest

if TYPE_CHECKING:
    from models.base import GraphModel


def check_facts(model: GraphModel, manifest: GraphManifest) -> None:
    """Refuse a graph whose features are not those that the model was sized for. Raises DataError."""
    from tasks.storage.graph_facts import graph_facts

    wanted, found = model.facts, graph_facts(manifest)
    names = ["task", "feature_dim", "categories", "num_node_types"]
    names += ["edge_feature_dim", "edge_categories"] if model.edge_facts is not None else []
    names += ["num_edge_types"] if model.uses_edge_types else []
    names += ["has_edge_weights"] if model.config.edge_weights else []
    if wanted.fanouts:
        names += ["relation_ends", "node_columns", "node_codes", "edge_columns", "edge_codes"]
        names += ["label_type", "seed_type", "rank_type", "has_times", "age_unit"]
    for name in names:
        if getattr(wanted, name) != getattr(found, name):
            raise DataError(
                f"{manifest.dataset}: the model was trained on a graph with {name}={getattr(wanted, name)}, this one "
                f"has {getattr(found, name)}; give data with the same features, or train on this data"
            )


def refuse_node_embeddings(model: GraphModel) -> None:
    """Refuse a model that learnt a vector for each node of its graph: it knows no others. Raises OtherGraphError."""
    from torch import nn

    from tasks.train.embeddings.host_tables import HostEmbedding

    if model.facts.fanouts:
        return  # it finds its rows by their ids (`tasks.apply.model.row_ids`)
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | HostEmbedding):
            refuse_rows(model.config.name, name, module.num_embeddings, model.facts.num_nodes, model.facts.task)


def refuse_rows(model: str, part: str, rows: int, num_nodes: int, task: str) -> None:
    """Refuse a table with a row for each node. Graph tasks know no nodes: they share one row."""
    if rows == num_nodes > 1 and kind_named(task).vectors_of == "nodes":
        way_out = kind_named(task).without_rows
        raise OtherGraphError(
            f"{model} learnt a vector for each of its {rows:,} nodes ({part}), so it knows no others: such a model can "
            f"be used on its training data only. Train on the new data{way_out}"
        )


def refuse_computed_vectors(transforms: Iterable[ComponentConfig]) -> None:
    """Refuse a model's transforms that compute vectors of the graph. Raises OtherGraphError.

    Another graph's vectors are as wide, so nothing else would notice that their axes are others. That holds for fastrp
    too: it projects nodes by their numbers, and a node more or less shifts them.
    """
    for one in from_methods(transforms):
        raise OtherGraphError(
            f"the model was trained on vectors that the transform embedding (method={one.method}) computed from its "
            "training's graph; those of another graph or snapshot have other axes, so its predictions would be "
            "nonsense. Predict on the training data, train anew on this data, or train with vectors of a registered "
            "model, which stay as they are: embedding with model: NAME@VERSION instead of method"
        )
