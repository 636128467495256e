"""Weights of classes in the loss, as `train.loss.class_weight` says: counted on the whole training split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from configs.base import ComponentConfig
from configs.errors import RecipeError
from configs.matching import did_you_mean, listed
from configs.training import TrainBase, TrainConfig
from configs.values.class_weight import ClassWeight
from models.losses.configs import losses_of, suits
from tasks.arrays import Array
from tasks.storage.heads import HeadView, head_views
from tasks.storage.manifests import TaskHead, TaskManifest
from tasks.train.job import ClassWeights
from tasks.train.loaders.config_base import resolve_loader

if TYPE_CHECKING:
    from configs.schema import Recipe
    from tasks.storage.graph_store import GraphStore

_CHUNK_ROWS = 1 << 18
_SHOWN = 10
_SWITCH = ["0", "1"]
_WRITTEN = {"false": "0", "true": "1"}


def class_weight_of(train: TrainBase) -> ClassWeight:
    """Return what the loss of a training says of classes."""
    said: ClassWeight = getattr(getattr(train, "loss", None), "class_weight", "none")
    return said


def check_loss(loss: ComponentConfig, manifest: TaskManifest) -> None:
    """Refuse a loss that is for other labels; of several tasks it may be for some. Raises RecipeError."""
    kinds = [view.head.task_type for view in head_views(manifest)] or [manifest.task_type]
    if not any(suits(loss, kind) for kind in kinds):
        raise RecipeError(
            f"train.loss={loss.name} is not for {manifest.dataset}, a {manifest.task_type} task; take "
            f"{listed(losses_of(kinds[0]))}"
        )


def class_weights(
    option: ClassWeight, graph: GraphStore, names: Sequence[str] | None, say: Callable[[str], None]
) -> ClassWeights:
    """Return the weights of a graph's classes; nothing where the option is `none`.

    `balanced`: n / (k n_c) for class c with n_c of the n labelled training rows, where k classes occur, so that all
    classes weigh alike and the mean over the rows is 1; of label columns each by itself.

    Args:
        option: `none`, `balanced`, or names of classes to weights; others weigh 1.
        graph: the whole graph.
        names: of its classes; None: their numbers.
        say: hears what the weights are, and of classes that no training row has.

    Raises:
        RecipeError: nothing is classified, or a class is not known.
    """
    if option == "none":
        return ()
    manifest = graph.manifest
    heads = head_views(manifest)
    tasks: list[TaskManifest | TaskHead] = [view.head for view in heads] or [manifest]
    _refuse_others(option, manifest, tasks)
    counts = _count(graph, heads, tasks)
    if isinstance(option, Mapping):
        weights: ClassWeights = ((_as_named(option, _class_names(tasks[0], names)),),)
    else:
        weights = tuple(tuple(map(_balanced, columns)) for columns in counts)
    for task, columns, of_columns in zip(tasks, counts, weights, strict=True):
        of = f" of {task.name}" if isinstance(task, TaskHead) else ""
        lacking = [str(number) for number, count in enumerate(columns) if not count.all()]
        if len(columns) > 1 and lacking:
            say(
                f"train.loss.class_weight: label columns{of} with one value in training stay as they are: "
                f"{listed(lacking)}"
            )
        elif len(columns) == 1:
            words = _class_names(task, None if of else names)
            said = [f"{word} = {weight:.4g}" for word, weight in zip(words, of_columns[0], strict=True)]
            say(f"class weights{of}: {listed(said, _SHOWN)}")
            if rowless := [word for word, count in zip(words, columns[0].tolist(), strict=True) if not count]:
                say(
                    f"train.loss.class_weight: the training split has no row of {listed(rowless, _SHOWN)}, which no "
                    "weight changes"
                )
    return weights


def check_training(recipe: Recipe, graph: GraphStore, names: Sequence[str] | None, say: Callable[[str], None]) -> None:
    """Refuse a loss, weights of classes or a loader that a preprocessed graph is not for, see `class_weights`.

    Raises RecipeError.
    """
    if isinstance(recipe.train, TrainConfig):
        check_loss(recipe.train.loss, graph.manifest)
        resolve_loader(recipe.train, recipe.model, graph.manifest)
    class_weights(class_weight_of(recipe.train), graph, names, say)


def _refuse_others(option: ClassWeight, manifest: TaskManifest, tasks: Sequence[TaskManifest | TaskHead]) -> None:
    if not any(task.label_type.has_classes for task in tasks):
        what = "links" if manifest.split_rows.are_links else "no classes"
        raise RecipeError(
            f"train.loss.class_weight is for classes, and {manifest.dataset} predicts {what}; leave it out"
        )
    single = len(tasks) == 1 and (tasks[0].label_type.one_of_many or tasks[0].num_tasks == 1)
    if isinstance(option, Mapping) and not single:
        raise RecipeError(
            f"train.loss.class_weight names classes, and {manifest.dataset} has several labels a row; take "
            "train.loss.class_weight=balanced, by which the two values of each weigh alike, or leave it out"
        )


def _class_names(task: TaskManifest | TaskHead, names: Sequence[str] | None) -> list[str]:
    if not task.label_type.one_of_many:
        return _SWITCH
    return list(names) if names is not None else [str(code) for code in range(task.num_classes)]


def _as_named(option: Mapping[str, float], words: list[str]) -> tuple[float, ...]:
    codes = {word: code for code, word in enumerate(words)}
    weights = [1.0] * len(words)
    for name, weight in option.items():
        word = name if name in codes or words != _SWITCH else _WRITTEN.get(name.casefold(), name)
        if word not in codes:
            quotes = '; YAML reads yes, no, on and off as true and false: write {"yes": 20}' if name in _WRITTEN else ""
            raise RecipeError(
                f"train.loss.class_weight: no class is called {name!r}{did_you_mean(name, words)}; there are "
                f"{listed(words)}{quotes}"
            )
        weights[codes[word]] = float(weight)
    return tuple(weights)


def _balanced(counts: Array) -> tuple[float, ...]:
    there = counts > 0
    rows, kinds = counts.sum(), max(1, int(there.sum()))
    return tuple(np.where(there, rows / (kinds * np.maximum(counts, 1)), 1.0).tolist())


def _count(graph: GraphStore, heads: Sequence[HeadView], tasks: Sequence[TaskManifest | TaskHead]) -> list[list[Array]]:
    """Count the training rows of each class of each label column of each task; a regression has no column."""
    counts = []
    for task in tasks:
        is_one = task.label_type.one_of_many
        columns = 1 if is_one else task.num_tasks if task.label_type.has_classes else 0
        counts.append([np.zeros(task.num_classes if is_one else 2, np.int64) for _ in range(columns)])
    labels, rows = graph[graph.manifest.split_rows.labels], graph.training_rows()
    for start in range(0, len(rows), _CHUNK_ROWS):
        part = np.asarray(labels[rows[start : start + _CHUNK_ROWS]])
        for number, of_task in enumerate(counts):
            values = heads[number].label_of(part) if heads else part
            for column, count in zip(values.reshape(len(values), -1).T, of_task, strict=False):
                codes = column[column >= 0].astype(np.int64)  # NaN and -1: no label
                count += np.bincount(codes, minlength=len(count))[: len(count)]
    return counts
