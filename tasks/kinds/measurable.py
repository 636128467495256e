"""Whether the metric of a recipe can be measured on its splits: asked before hours are spent on training.

Only the labels are looked at, and of those one row of each class (or each column's smallest and largest value): a
metric that is defined on them is defined on all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from configs.errors import DataError, RecipeError
from configs.label_types import LabelType
from configs.matching import did_you_mean, listed, misspelt
from configs.metric_names import EVEN_METRICS, ONE_CLASS, metric_of
from configs.schema import EvaluateConfig
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.metrics import Array
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import make_evaluator
from tasks.kinds.base import Names, Warn
from tasks.kinds.of import kind_of
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap, class_names
from tasks.storage.manifests import GraphManifest

_LISTED = 5
_FEWEST = 30
"""Validation rows of a class, or pairs of a relation, below which its share of a mean is mostly noise."""


def check_graph(
    evaluate: EvaluateConfig,
    graph: GraphStore,
    dataset: DatasetStore | None,
    warn: Warn,
    gate_metric: str | None = None,
) -> None:
    """Refuse splits that the recipe's metric is not defined on; `dataset` knows the names of classes.

    Validation needs a metric whatever the splits to report. Raises RecipeError: the metric does not fit the task, or
    none is the `gate_metric` (`valid/metric`); DataError: naming the split and what its labels are.
    """
    evaluator, kind = make_evaluator(evaluate.evaluator, graph.manifest), kind_of(graph.manifest)
    if gate_metric is not None:
        judges = [evaluator, *kind.secondary(graph.manifest)]
        metric_of(gate_metric.removeprefix("valid/"), {name: 0.0 for judge in judges for name in judge.names})
    names = class_names(dataset)
    _check_threshold(evaluate, graph, names)
    if dataset is not None:
        check_groups(evaluate, graph, dataset)
    kind.measurable(evaluator, graph, names, evaluate.splits, warn)


def check_groups(evaluate: EvaluateConfig, graph: GraphStore, dataset: DatasetStore) -> None:
    """Refuse columns to group rows by that are not there. Raises RecipeError, with those that are."""
    if set(evaluate.groups) <= {"degree"}:
        return
    from tasks.kinds.points import OF_EDGES

    asked = [name for name in evaluate.groups if name not in OF_EDGES]  # of those there may be none, or be some later
    kind, there = kind_of(graph.manifest), ["degree"]
    if kind.labels(graph) is not None:
        there = list(kind.grouped_by(graph, dataset, IdMap(graph, dataset), np.empty(0, np.int64), asked))
    for name in asked:
        if name not in there:
            raise RecipeError(
                f"evaluate.groups: {kind.words} have no column {name!r} to be grouped by{did_you_mean(name, there)}; "
                f"there are {listed(there) or 'none'} (time: the column that the table names as such). Numbers, and "
                "categories whose values have names, make groups where they are features; texts do not"
            )


def _check_threshold(evaluate: EvaluateConfig, graph: GraphStore, names: Names) -> None:
    """Refuse options of decisions between yes and no where others are made. Raises RecipeError."""
    manifest = graph.manifest
    two = manifest.label_type.one_decision and (not manifest.label_type.one_of_many or manifest.num_classes == 2)
    given = [name for name in ("threshold", "costs") if getattr(evaluate, name) is not None]
    if given and (manifest.heads or not two):
        labels = None if manifest.heads else kind_of(manifest).labels(graph)
        third = [] if labels is None else _misspelt_classes({"all": labels}, names)
        raise RecipeError(
            f"evaluate.{given[0]} is for one label of yes or no, or two classes, and {manifest.dataset} is another "
            f"task ({manifest.task_type}); {'; '.join(third) or 'leave it out'}"
        )


def check_labels_of(
    evaluator: Evaluator,
    graph: GraphManifest,
    labels: Mapping[str, Array],
    splits: Sequence[str],
    warn: Warn,
    names: Names = None,
) -> None:
    """Refuse splits that a metric is not defined on; warn of classes that only held-out rows have.

    `labels` maps a split to its labels, int64 (n,) with -1 for none, or float (n, T) with NaN for none. Raises
    DataError.
    """
    for split in dict.fromkeys(("valid", *splits)):
        if split not in labels:
            continue
        few = representatives(labels[split])
        width = max(2, graph.num_classes) if few.ndim == 1 else few.shape[1]
        try:
            evaluator(Prediction(scores=np.zeros((len(few), width), np.float32), label=few))
        except DataError as error:
            # Rows at moments go by the options of what is predicted, without snapshots.
            at_moments = graph.fit_before is not None
            options = "dataset.predict.at, dataset.predict.split" if at_moments else "dataset.split, snapshot"
            raise DataError(
                f"the {split} split of {len(labels[split]):,} rows cannot be measured by {evaluator.metric}: {error} "
                f"(its labels: {_listed(labels[split], names)}). Split otherwise ({options}), leave "
                "the split out of evaluate.splits, or choose another evaluate.evaluator"
            ) from error
    if "valid" in labels and evaluator.metric in EVEN_METRICS:
        _name_thin_classes(labels["valid"], graph.label_type, evaluator.metric, warn, names)
    _look_for_majority(evaluator.metric, labels, warn, names)
    if graph.label_type.one_decision:
        _compare_classes(labels, warn, names)
        even = f" {evaluator.metric} takes it for a class of its own" if evaluator.metric in EVEN_METRICS else ""
        for said in _misspelt_classes(labels, names):
            warn(said + even)
    elif "train" in labels:
        _look_for_constants(labels["train"], warn)


def representatives(labels: Array) -> Array:
    """Return a few labels on which a metric is defined if it is on all: (k,) classes, or (2, T) extremes."""
    if labels.ndim == 1:
        return classes_of(labels)[:3]
    if not len(labels):
        return labels
    empty = np.isnan(labels).all(axis=0)
    filled = np.where(empty, 0, labels)  # nanmin warns of columns without a value
    ends = np.stack([np.nanmin(filled, axis=0), np.nanmax(filled, axis=0)])
    return np.where(empty, np.nan, ends)


def classes_of(labels: Array) -> Array:
    """Return the classes that labels have, ascending int64."""
    flat = labels if labels.ndim == 1 else labels[:, 0]
    classes = np.unique(flat[~np.isnan(flat)] if flat.dtype.kind == "f" else flat)
    return classes[classes >= 0].astype(np.int64)


def _compare_classes(labels: Mapping[str, Array], warn: Warn, names: Names) -> None:
    trained = classes_of(labels["train"])
    if len(trained) < 2:
        warn(
            f"the {len(labels['train']):,} rows of the train split are all of one class ({_words(trained, names)}): "
            "there is nothing to learn; choose another split (dataset.split, snapshot)"
        )
    for split in ("valid", "test"):
        if split in labels:
            new = np.setdiff1d(classes_of(labels[split]), trained)
            if len(new):
                flat = labels[split].reshape(len(labels[split]), -1)[:, 0]
                warn(
                    f"{int(np.isin(flat, new).sum()):,} of {len(flat):,} rows of the {split} split are of classes that "
                    f"the train split never shows ({_words(new, names)}): no model can get them right"
                )


def _misspelt_classes(labels: Mapping[str, Array], names: Names) -> list[str]:
    if not names:
        return []
    every = np.concatenate([label.reshape(len(label), -1)[:, 0] for label in labels.values()])
    counts = np.bincount(every[every >= 0].astype(np.int64), minlength=len(names)).tolist()
    of_names = {name: count for name, count in zip(names, counts, strict=False) if count}
    return [
        f"class {name!r} of {of_names[name]:,} rows looks like {other!r} of {of_names[other]:,}: is it misspelt in the "
        "data?"
        for name, other in misspelt(of_names)[:_LISTED]
    ]


def _name_thin_classes(labels: Array, kind: LabelType, metric: str, warn: Warn, names: Names) -> None:
    """Warn of classes, or columns of labels, that the validation split has hardly any row of, though it has some."""
    if kind.is_number or len(labels) < _FEWEST:
        return
    if not kind.one_column:
        counts, what = np.nansum(labels, axis=0).astype(np.int64), "label columns"
    else:
        flat = labels.reshape(len(labels), -1)[:, 0]
        counts, what = np.bincount(flat[flat >= 0].astype(np.int64)), "classes"
    name_thin(counts, what, names, f"the epoch is chosen by {metric}, in which they weigh as much as the others", warn)


def name_thin(counts: Array, what: str, names: Names, why: str, warn: Warn) -> None:
    """Warn of classes or relations, `what`, that have hardly any rows in the validation split; `why` that matters."""
    thin = np.flatnonzero((counts > 0) & (counts < _FEWEST))
    if len(thin):
        shown = [f"{names[code] if names and code < len(names) else code}: {counts[code]}" for code in thin[:_LISTED]]
        more = ", ..." if len(thin) > _LISTED else ""
        warn(
            f"the validation split has fewer than {_FEWEST} rows of {len(thin):,} of {int((counts > 0).sum()):,} "
            f"{what} ({', '.join(shown)}{more}): {why}"
        )


def _look_for_majority(metric: str, labels: Mapping[str, Array], warn: Warn, names: Names) -> None:
    """Warn where who always says the same is right so often that accuracy tells models hardly apart."""
    split = "valid" if "valid" in labels else "train"
    label = labels.get(split)
    single = label is not None and (label.ndim == 1 or label.shape[1] == 1)
    if label is None or not (metric == "accuracy" or (metric == "f1_micro" and label.ndim == 1)):
        return
    if single:
        flat = label.reshape(len(label))
        codes = flat[flat >= 0].astype(np.int64)  # NaN is no label
        counts = np.bincount(codes)
        share, most = counts.max(initial=0) / max(1, len(codes)), int(counts.argmax()) if len(counts) else 0
        has_name = names is not None or label.ndim == 2  # else the code of a class that has a name elsewhere
        which = f"class {_words(np.array([most]), names)}" if has_name else "one class"
        who = f"{share:.1%} of the labelled rows of {split} are of {which}"
    else:
        yes = np.nanmean(label[:, ~np.isnan(label).all(axis=0)], axis=0)
        share = float(np.maximum(yes, 1 - yes).mean()) if len(yes) else 0.0
        who = f"on average {share:.1%} of a column's labels of {split} are alike"
    if ONE_CLASS <= share < 1:
        warn(
            f"{who}: always predicting that reaches {metric} {share:.3f}, so {metric} says nothing about the other "
            "classes. Judge by average precision (evaluate.evaluator=average_precision) or macro F1 "
            "(evaluate.evaluator=f1); train.loss.class_weight=balanced has a rare class count as much as the others"
        )


def _look_for_constants(train: Array, warn: Warn) -> None:
    """Warn of columns of labels, (n, T), that have one value in training, or none."""
    firsts = representatives(train)
    if train.ndim == 1 or not len(firsts):
        return
    low, high = firsts
    for columns, words in ((np.isnan(low), "no label at all"), (low == high, "one and the same label")):
        if columns.any():
            some = ", ".join(map(str, np.flatnonzero(columns)[:_LISTED])) + (", ..." if columns.sum() > _LISTED else "")
            where = f" in {columns.sum():,} of {len(low):,} columns of labels ({some})" if len(low) > 1 else ""
            warn(f"the {len(train):,} rows of the train split have {words}{where}: there is nothing to learn")


def _listed(labels: Array, names: Names) -> str:
    if labels.ndim == 1 or labels.shape[1] == 1:
        return f"only of class {_words(classes_of(labels), names)}" if (labels >= 0).any() else "none"
    return f"{int(np.count_nonzero(~np.isnan(labels))):,} values, no column of which has two kinds"


def _words(classes: Array, names: Names) -> str:
    words = [names[code] if names and code < len(names) else str(code) for code in classes[:_LISTED].tolist()]
    return ", ".join(words) + (", ..." if len(classes) > _LISTED else "") or "none"


def split_labels(graph: GraphStore, label: Array) -> dict[str, Array]:
    """Return the labels of each split, of those of all rows."""
    indices = {split: graph.get(f"{split}_idx") for split in ("train", "valid", "test")}
    return {split: np.asarray(label[np.asarray(index)]) for split, index in indices.items() if index is not None}
