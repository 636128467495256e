"""What a model needs to know of a graph."""

from __future__ import annotations

from configs.errors import DataError
from models.facts import GraphFacts
from tasks.storage.manifests import GraphManifest


def graph_facts(manifest: GraphManifest) -> GraphFacts:
    """Return what a model needs to know. Raises DataError for a label that no head fits."""
    if manifest.task_type == "multiclass":
        if manifest.num_tasks != 1:
            raise DataError(f"{manifest.dataset} has {manifest.num_tasks} multiclass labels a node; one is supported")
        out_dim = manifest.num_classes
    else:
        out_dim = manifest.num_tasks
    return GraphFacts(
        task=manifest.task,
        out_dim=out_dim,
        num_nodes=manifest.num_nodes,
        feature_dim=manifest.feature_dim,
        categories=manifest.categories,
        edge_feature_dim=manifest.edge_feature_dim,
        edge_categories=manifest.edge_categories,
        num_node_types=len(manifest.node_types),
        num_edge_types=len(manifest.edge_types),
        has_edge_weights="edge_weight" in manifest.arrays,
        symmetric=manifest.symmetric,
        num_relations=manifest.num_relations,
    )
