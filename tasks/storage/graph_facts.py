"""What a model needs to know of a graph."""

from __future__ import annotations

import itertools

from configs.errors import DataError
from models.facts import GraphFacts
from tasks.storage.file_names import joined_name
from tasks.storage.heads import head_views
from tasks.storage.manifests import GraphManifest

DAY_SECONDS = 86_400
TASK_RELATION = "of"
"""What joins a task, which is an entity at a moment, to its entity."""

LINKS_RELATION = "links"
"""What joins a task to what it is linked to within its horizon, where candidates are ranked."""


def task_relation(manifest: GraphManifest) -> tuple[int, int] | None:
    """Return the relation that joins the labelled nodes, which are tasks, to their entities, and the entities' type.

    Both are numbers, among `edge_types` and `node_types`. None where labels are those of rows of their own.
    """
    for number, entity in enumerate(manifest.node_types):
        name = joined_name((manifest.target_type, TASK_RELATION, entity))
        if name in manifest.edge_types and entity != manifest.target_type:
            return manifest.edge_types.index(name), number
    return None


def reads_tables(manifest: GraphManifest) -> bool:
    """Whether the graph is a database's, whose rows are seen with what their foreign keys name, as of moments."""
    return bool(manifest.own_keys) or manifest.fit_before is not None or task_relation(manifest) is not None


def relations_of(manifest: GraphManifest) -> list[str]:
    """Return the names of the relations that links are predicted in: those of users' tables, in files' letters."""
    kind = manifest.target_type
    return [name.removeprefix(f"{kind}__").removesuffix(f"__{kind}") for name in manifest.edge_types]


def asked_relations(manifest: GraphManifest) -> list[int]:
    """Return the numbers of the relation that links are predicted in and of its reverse, where one of context may join
    the same nodes; else none: an edge's ends tell what it is."""
    if not manifest.has_context:
        return []
    name, source = manifest.edge_types[0], manifest.target_type
    relation = name.removeprefix(f"{source}__")
    targets = [kind for kind in manifest.node_types if relation.endswith(f"__{kind}")]
    reverses = [f"{kind}__rev_{relation.removesuffix(f'__{kind}')}__{source}" for kind in targets]
    asked = [number for number, one in enumerate(manifest.edge_types) if one in (name, *reverses)]
    ends = manifest.relation_ends
    if ends and all(number in asked or {*ends[number]} != {*ends[0]} for number in range(len(ends))):
        return []
    return asked


def graph_facts(manifest: GraphManifest) -> GraphFacts:
    """Return what a model needs to know. Raises DataError for a label that no head fits."""
    if manifest.label_type.one_of_many and manifest.num_tasks != 1:
        raise DataError(f"{manifest.dataset} has {manifest.num_tasks} multiclass labels a node; one is supported")
    out_dim = manifest.label_type.num_scores(manifest.num_classes, manifest.num_tasks)
    heads = head_views(manifest)
    if heads:
        out_dim = heads[-1].scores.stop
    relation = task_relation(manifest)
    types = manifest.node_types
    label_type = types.index(manifest.target_type) if manifest.target_type in types else 0
    columns = [manifest.type_columns[name] for name in types if manifest.type_columns]
    edge_columns = [manifest.relation_columns[name] for name in manifest.edge_types if manifest.relation_columns]
    one_relation = ((0, 0),) if len(types) == len(manifest.edge_types) == 1 else ()
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
        relation_ends=manifest.relation_ends or one_relation,
        relation_names=manifest.edge_types,
        node_columns=tuple(one.numeric for one in columns),
        node_codes=tuple(one.categorical for one in columns),
        edge_columns=tuple(one.numeric for one in edge_columns),
        edge_codes=tuple(one.categorical for one in edge_columns),
        label_type=label_type,
        seed_type=label_type if relation is None else relation[1],
        has_times=manifest.fit_before is not None and "node_time" in manifest.arrays,
        head_types=tuple(view.head.task_type for view in heads),
        head_labels=tuple(view.head.num_tasks for view in heads),
        head_scores=tuple(view.num_scores for view in heads),
        head_weights=tuple(view.head.weight for view in heads),
        rank_type=None if manifest.ranking is None else types.index(manifest.ranking.candidates),
        node_types=types if len(types) > 1 else (),
        type_sizes=tuple(b - a for a, b in itertools.pairwise(manifest.type_offsets)) if len(types) > 1 else (),
        ordered_ends=manifest.ordered_ends,
        age_unit=1 if manifest.time_unit == "number" else DAY_SECONDS,
    )
