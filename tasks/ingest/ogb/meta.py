"""What OGB knows of its data sets: names, addresses, tasks and metrics, read from the files of the `ogb` package.

The package itself is never imported: that would pull in torch and ask the network for a newer version.
"""

from __future__ import annotations

import csv
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from configs.errors import RecipeError
from tasks.storage.manifests import TaskKind, TaskType

_TABLES: dict[TaskKind, str] = {"node": "nodeproppred", "link": "linkproppred", "graph": "graphproppred"}
_METRICS = {"acc": "accuracy", "F1": "f1"}
_KNOWLEDGE_GRAPH = "KG completion"


@dataclass(frozen=True)
class OgbMeta:
    """What a folder in OGB's layout does not say itself."""

    name: str
    task: TaskKind
    task_type: TaskType
    num_classes: int
    num_tasks: int
    metric: str
    split: str
    """Folder under split/."""
    directed: bool
    """False where each undirected edge is stored once (OGB's add_inverse_edge)."""
    has_node_features: bool | None = None
    """Whether raw/ must hold node features; None: whatever is there."""
    has_edge_features: bool | None = None
    molecules: bool = False
    """Whether features are the codes of ogb.utils.features, whose cardinalities are known."""
    listed: bool = False
    version: int = 1
    url: str = ""
    archive_folder: str = ""
    """Top folder inside the downloaded archive."""


@cache
def _package() -> Path:
    spec = importlib.util.find_spec("ogb")
    if spec is None or not spec.submodule_search_locations:
        raise RecipeError("the ogb package is not installed; run make setup")
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def listed_names() -> dict[str, TaskKind]:
    """Return the names that OGB lists, with their kind of task."""
    return {name: kind for kind in _TABLES for name in _columns(kind)}


@cache
def _columns(kind: TaskKind) -> dict[str, dict[str, str]]:
    """Return OGB's table of one kind of task: name to property to value."""
    with (_package() / _TABLES[kind] / "master.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    return {name: {row[0]: row[i] for row in rows} for i, name in enumerate(header) if i}


def listed_meta(name: str) -> OgbMeta:
    """Return what OGB says of a data set. Raises RecipeError for kinds of task that graphmill has not."""
    kind = listed_names()[name]
    row = _columns(kind)[name]
    num_tasks = int(row.get("num tasks", 1))
    return OgbMeta(
        name=name,
        task="triple" if row["task type"] == _KNOWLEDGE_GRAPH else kind,
        task_type=_task_type(name, row["task type"], num_tasks),
        num_classes=max(0, int(row.get("num classes", 0))),
        num_tasks=num_tasks,
        metric=_METRICS.get(row["eval metric"], row["eval metric"]),
        split=row["split"],
        directed=row["add_inverse_edge"] != "True",
        has_node_features=row["has_node_attr"] == "True",
        has_edge_features=row["has_edge_attr"] == "True",
        molecules=row.get("data type") == "mol",
        listed=True,
        version=int(row["version"]),
        url=row["url"],
        archive_folder=row["download_name"],
    )


def _task_type(name: str, text: str, num_tasks: int) -> TaskType:
    kinds: dict[str, TaskType] = {
        "binary classification": "binary" if num_tasks == 1 else "multilabel",
        "multiclass classification": "multiclass",
        "regression": "regression",
        "link prediction": "link",
        _KNOWLEDGE_GRAPH: "triple",
    }
    if text not in kinds:
        raise RecipeError(
            f"{name} is a {text} task, which graphmill does not train; it knows node, link, graph and triple"
        )
    return kinds[text]


def _features() -> ModuleType:
    """Load ogb/utils/features.py alone: plain Python, while its package imports torch."""
    spec = importlib.util.spec_from_file_location("graphmill_ogb_features", _package() / "utils" / "features.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def atom_cardinalities() -> tuple[int, ...]:
    """Return how many codes each of the 9 atom features has."""
    return tuple(_features().get_atom_feature_dims())


@cache
def bond_cardinalities() -> tuple[int, ...]:
    """Return how many codes each of the 3 bond features has."""
    return tuple(_features().get_bond_feature_dims())
