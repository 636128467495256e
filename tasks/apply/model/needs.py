"""What a model expects of data, as its training saw it: written when it is published, checked before it is used.

Other data has to have the same node types, relations and feature columns. What differs without harm is put right:
categories are numbered as the training did, transforms are applied as the training fitted them. What would go wrong
silently is refused, as is a graph that a model cannot read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from configs.base import ComponentConfig, cache_view
from configs.errors import DataError, OtherGraphError, RecipeError
from configs.registry import MODELS, TRANSFORMS
from configs.schema import Recipe
from tasks.apply.model.learned import Learned, Recoding, learned_transforms
from tasks.apply.model.states import keep_states
from tasks.kinds.judged import Threshold
from tasks.kinds.of import kind_named
from tasks.preprocess.stage import snapshot_view
from tasks.preprocess.transforms.base import State
from tasks.preprocess.transforms.configs import from_methods
from tasks.stage import Parent, StageContext
from tasks.storage.controls import BOOSTED_CONTROL
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.ids import class_names, structure_digest
from tasks.storage.manifests import EDGE_CATEGORIES, DatasetManifest, EdgeType, FeatureColumn, GraphManifest, NodeType
from tasks.storage.outcomes import EvalReport
from tasks.storage.outputs.values import read_values, write_values
from tasks.storage.stored import of_kind

if TYPE_CHECKING:
    from models.base import GraphModel


FILES = "data"
_LISTED = 5


@dataclass(frozen=True)
class DataNeeds:
    """Tables, categories, classes and fitted transforms of a model's training data."""

    task: str
    target_type: str
    node_types: tuple[NodeType, ...]
    edge_types: tuple[EdgeType, ...]
    num_classes: int
    classes: list[str] | None
    """Names of the classes, where the data set kept them."""
    categories: dict[str, list[str]]
    """`TYPE/COLUMN` to the names of its codes."""
    learned: tuple[Learned, ...]
    labels: list[str] | None = None
    """Names of the label columns in the order of the model's scores, where they are known."""
    edge_categories: dict[str, list[str]] = field(default_factory=dict)
    """Column of edges to the names of its codes."""
    reads_edge_features: bool = True
    reads_relations: bool = True
    structure: str | None = None
    """What names its nodes' number and its edges (`tasks.storage.ids.structure_digest`), where it is known."""
    threshold: Threshold | None = None
    """From which probability which class is predicted (`evaluate.threshold`); None: the likelier class is."""

    @classmethod
    def of(cls, context: StageContext, recipe: Recipe, parents: dict[str, Parent], control: str = "") -> DataNeeds:
        """Take down what a training saw; `parents` has its `ingest` and `preprocess`.

        `control` is published in place of the model.
        """
        ingest: DatasetManifest = parents["ingest"].manifest
        store = DatasetStore(parents["ingest"].folder, ingest)
        from models.base import GraphModel
        from tasks.apply.model.learning import learn

        learned, model = tuple(learn(context, recipe, parents)), MODELS.get(recipe.model.name)
        reads = True, True  # edge features, and relations
        if control:
            reads = (control == BOOSTED_CONTROL,) * 2
        elif issubclass(model, GraphModel):
            of_edges = ingest.split_rows.are_edges or model.reads_edge_features(recipe.model)
            reads = of_edges, model.reads_relations(recipe.model)
        return cls(
            ingest.task,
            ingest.target_type,
            ingest.node_types,
            ingest.edge_types,
            ingest.num_classes,
            class_names(store),
            category_names(store),
            learned,
            label_columns(ingest, store),
            category_names(store, EDGE_CATEGORIES),
            *reads,
            structure_digest(ingest),
        )

    def write(self, folder: Path) -> None:
        """Write `data.json` and `data.npz`."""
        values = {
            **asdict(self),
            "node_types": [one.model_dump(mode="json") for one in self.node_types],
            "edge_types": [one.model_dump(mode="json") for one in self.edge_types],
        }
        write_values(folder, FILES, values)

    @classmethod
    def read(cls, folder: Path) -> DataNeeds:
        """Read them.

        Raises IntegrityError: damaged; FileNotFoundError; RecipeError: of another layout than this graphmill's.
        """
        values = read_values(folder, FILES)
        if isinstance(values, dict) and set(values) != {field.name for field in fields(cls)}:
            raise RecipeError("its files were written by another version of graphmill; train it again")
        return of_kind(cls, values, folder / f"{FILES}.json")


def chosen_threshold(evaluation: EvalReport) -> Threshold | None:
    """Return the threshold that an evaluation's predictions go by."""
    chosen = evaluation.report.get("threshold")
    return None if chosen is None else Threshold(chosen["code"], chosen["probability"])


def label_columns(data: DatasetManifest, store: DatasetStore | None = None) -> list[str] | None:
    """Return the names of the label's columns in their order; None where the data set is not of users' tables.

    Of labels that were pairs or groups they stand in `store`.
    """
    if store is not None and "labels" in store:
        return [str(name) for name in store.read("labels", ["name"]).column("name").to_pylist()]
    options = data.config.get("dataset", {})
    if options.get("name") == "database":
        predict = options["predict"]
        label = predict.get("label") or (predict.get("labels") or {}).get("label")
        return list(label) if isinstance(label, list | tuple) else None
    if options.get("name") != "tables":  # others name arrays or files there, not columns
        return None
    tables = [options.get("labels") or {}, *(options.get("nodes") or ())]
    return next((list(table["label"]) for table in tables if table.get("label")), None)


def label_order(trained: Sequence[str] | None, here: Sequence[str] | None) -> list[int] | None:
    """Return where among a model's scores those of each of the data's label columns stand; None: in the same places.

    Names that are not known say nothing, nor does that of a single column: whoever renames it has no other to mean.
    Raises DataError: the data has other label columns than the model.
    """
    if trained is None or here is None or list(trained) == list(here) or len(trained) == len(here) == 1:
        return None
    if sorted(trained) != sorted(here):
        raise DataError(
            f"it predicts the label columns {', '.join(trained)}, and those of this data are {', '.join(here)}"
        )
    return [trained.index(name) for name in here]


def category_names(store: DatasetStore, folder: str = "categories") -> dict[str, list[str]]:
    """Return the names of the codes of each categorical node column, `TYPE/COLUMN`, where the data set kept them.

    Of edges by column: `folder` is EDGE_CATEGORIES then.
    """
    names = {}
    for table in store.manifest.tables:
        kind, _, place = table.partition("/")
        if kind == folder:
            names[place] = [str(name) for name in store.read(table, ["name"]).column("name").to_pylist()]
    return names


def adapted_recipe(
    recipe: Recipe, trained: Recipe, needs: DataNeeds, store: DatasetStore, *, same_tables: bool = False
) -> Recipe:
    """Return the recipe by which other data, ingested in `store`, becomes a graph that the model can read.

    `trained` is the recipe of the model's training; `same_tables`: the data are the very tables of that, perhaps as of
    another moment. Raises RecipeError: the recipe prepares data in another way than the training did; DataError: the
    data is of another shape, or has categories that the model has no place for.
    """
    check_options(recipe, trained)
    # Of nodes at all times, labels, features and the split may be others. Held-out links are no edges, and times of
    # nodes say which edges there are.
    by_edges = store.manifest.split_rows.are_nodes and recipe.time_moment is None
    same_edges = same_tables or (by_edges and structure_digest(store.manifest) == needs.structure)
    if snapshot_view(recipe) != snapshot_view(trained) or not same_edges:
        refuse_computed_vectors(trained.preprocess.transforms)
    recoded: list[ComponentConfig] = []
    if not same_tables:
        check_tables(needs, store.manifest)
        hops = any(one.config.get("labels") for one in needs.learned if one.config["name"] == "hops")
        reads = "model.label_reuse" if getattr(trained.model, "label_reuse", False) else "hops.labels" if hops else ""
        if reads and (class_names(store), store.manifest.num_classes) != (needs.classes, needs.num_classes):
            raise DataError(
                f"{store.manifest.dataset}: the model reads labels ({reads}), and this data has other classes than its "
                "training data; train on this data"
            )
        recoding = recoding_of(needs, store)
        if recoding is not None:
            recoded = [TRANSFORMS.config({"name": "recode", "sha256": keep_states(asdict(recoding))})]
    transforms = (*recoded, *learned_transforms(needs.learned))
    preprocess = recipe.preprocess.model_copy(update={"transforms": transforms})
    # Inference reads the graph as one piece: nobody has to split it.
    partition = recipe.partition.model_copy(update={"num_parts": 1})
    return recipe.model_copy(update={"preprocess": preprocess, "partition": partition})


def check_options(recipe: Recipe, trained: Recipe) -> None:
    """Refuse a recipe that prepares data in another way than a model's training did. Raises RecipeError."""
    given, expected = cache_view(recipe.preprocess), cache_view(trained.preprocess)
    if recipe.neighbors is None:  # vectors that are placed in a layout go by those of the layout
        expected.pop("neighbors", None)
    for name in expected:
        if given.get(name) != expected[name]:
            raise RecipeError(
                f"the model was trained with preprocess.{name}={expected[name]}, and the recipe says "
                f"{given.get(name)}; prepare the data as the training did"
            )


def check_tables(needs: DataNeeds, data: DatasetManifest) -> None:
    """Compare node types, relations and feature columns, as far as the model reads them. Raises DataError."""
    if data.task != needs.task:
        raise DataError(
            f"{data.dataset} is data of the task {data.task}, and the model was trained for the task {needs.task}; "
            f"give data of that task, or take a model of the task {data.task}"
        )
    _same(data, "predicted type", [needs.target_type], [data.target_type])
    _same(data, "node types", *([t.name for t in types] for types in (needs.node_types, data.node_types)))
    if data.num_relations and needs.reads_relations:  # pairs are asked about by the numbers of relations
        _same(data, "relations", *([t.name for t in types] for types in (needs.edge_types, data.edge_types)))
    _same_columns(data, needs.node_types, data.node_types)
    if needs.reads_edge_features:  # what was not there when it was trained it does not read
        _same_columns(data, [one for one in needs.edge_types if one.features], data.edge_types)


def _same_columns(
    data: DatasetManifest, trained: Sequence[NodeType | EdgeType], here: Sequence[NodeType | EdgeType]
) -> None:
    """Compare the feature columns of the types that both have. Raises DataError."""
    columns = {t.name: list(map(_described, t.features)) for t in here}
    for one in trained:
        if one.name in columns:
            _same(data, f"feature columns of {one.name}", map(_described, one.features), columns[one.name])


def _same(data: DatasetManifest, what: str, trained: Iterable[str], here: Iterable[str]) -> None:
    before, now = list(trained), list(here)
    if before == now:
        return
    missing, added = ([name for name in one if name not in other] for one, other in ((before, now), (now, before)))
    parts = [f"without {', '.join(missing)}"] if missing else []
    parts += [f"with {', '.join(added)}"] if added else []
    said = "; ".join(parts) or f"{', '.join(now)} in place of {', '.join(before)}"
    raise DataError(f"{data.dataset} has other {what} than the model was trained on: {said}")


def _described(feature: FeatureColumn) -> str:
    filled = ", empty cells filled by the mean" if feature.gaps else ""
    return f"{feature.column} ({feature.kind}, width {feature.dim}{filled})"


def recoding_of(needs: DataNeeds, store: DatasetStore) -> Recoding | None:
    """Return how codes and relations become those of the training; None where they are.

    Raises DataError: the numbers of codes differ, and what they mean is not kept.
    """
    data, notes = store.manifest, list[str]()
    here, nodes = category_names(store), dict[str, State]()
    for place, feature, trained in _features_of_both(needs.node_types, data.node_types):
        if place in needs.categories and place in here:
            nodes[feature.column] = _codes(feature.column, needs.categories[place], here[place], notes)
        else:
            _same_codes(data, place, feature, trained)
    here, edges = category_names(store, EDGE_CATEGORIES), dict[str, State]()
    for place, feature, trained in _features_of_both(needs.edge_types, data.edge_types):
        column = feature.column
        if column in needs.edge_categories and column in here:
            edges[column] = _codes(column, needs.edge_categories[column], here[column], notes)
        elif needs.reads_edge_features:
            _same_codes(data, place, feature, trained)
    relations = _relations(needs, data, notes)
    states = (*nodes.values(), *edges.values())
    changed = any(not np.array_equal(one["codes"], np.arange(one["cardinalities"][0])) for one in states)
    return Recoding(nodes, edges, relations, list(dict.fromkeys(notes))) if changed or relations else None


def _features_of_both(
    trained: Sequence[NodeType | EdgeType], here: Sequence[NodeType | EdgeType]
) -> Iterator[tuple[str, FeatureColumn, FeatureColumn]]:
    """Yield `TYPE/COLUMN` and its description, here and in the training, of what is in both."""
    before = {f"{one.name}/{feature.column}": feature for one in trained for feature in one.features}
    for one in here:
        for feature in one.features:
            place = f"{one.name}/{feature.column}"
            if place in before:
                yield place, feature, before[place]


def _codes(column: str, trained: Sequence[str], here: Sequence[str], notes: list[str]) -> State:
    """Return the training's code for each code here; what it has not seen gets the one behind its last."""
    number = {name: code for code, name in enumerate(trained)}
    unseen = [name for name in here if name not in number]
    if unseen:
        listed = ", ".join(map(repr, unseen[:_LISTED])) + (", ..." if len(unseen) > _LISTED else "")
        notes.append(
            f"{column}: {len(unseen):,} of {len(here):,} categories were not in the model's training data ({listed}); "
            "it reads them all as one that it knows nothing of"
        )
    codes = [number.get(name, len(trained)) for name in here]
    return {"codes": np.array([*codes, len(trained)], np.int32), "cardinalities": [len(trained) + 1]}


def _same_codes(data: DatasetManifest, place: str, feature: FeatureColumn, trained: FeatureColumn) -> None:
    if feature.cardinalities != trained.cardinalities:
        raise DataError(
            f"{data.dataset}: {place} has {feature.cardinalities} codes, the training data had "
            f"{trained.cardinalities}, and what they mean is not kept; train on this data"
        )


def _relations(needs: DataNeeds, data: DatasetManifest, notes: list[str]) -> list[dict[str, Any]]:
    """Return the training's relations where the data's are other ones and the model tells them apart."""
    trained, here = ([one.name for one in types] for types in (needs.edge_types, data.edge_types))
    if trained == here or not needs.reads_relations:
        return []
    if not set(trained) & set(here):
        _same(data, "relations", trained, here)
    if unknown := [name for name in here if name not in trained]:
        notes.append(
            f"edges of {', '.join(unknown)} are left out: the model's training data had no such relation, and it knows "
            f"{', '.join(trained)}"
        )
    return [one.model_dump(mode="json") for one in needs.edge_types]


def check_facts(model: GraphModel, manifest: GraphManifest) -> None:
    """Refuse a graph whose features are not those that the model was sized for. Raises DataError."""
    from tasks.storage.graph_facts import graph_facts

    needed, facts = model.facts, graph_facts(manifest)
    names = ["task", "feature_dim", "categories", "num_node_types"]
    reads_edges = model.edge_facts is not None or needed.scores_edges
    names += ["edge_feature_dim", "edge_categories"] if reads_edges else []
    names += ["ordered_ends"] if needed.scores_edges else []
    names += ["num_edge_types"] if model.uses_edge_types else []
    names += ["has_edge_weights"] if model.config.edge_weights else []
    if needed.fanouts:
        names += ["relation_ends", "node_columns", "node_codes", "edge_columns", "edge_codes"]
        names += ["label_type", "seed_type", "rank_type", "has_times", "age_unit"]
    for name in names:
        if getattr(needed, name) != getattr(facts, name):
            raise DataError(
                f"{manifest.dataset}: the model was trained on a graph with {name}={getattr(needed, name)}, this one "
                f"has {getattr(facts, name)}; give data with the same features, or train on this data"
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
