"""Columns by how much the metric gets worse where their values are dealt out anew among nodes or edges.

Permutation importance (Breiman 2001, https://doi.org/10.1023/A:1010933404324), of the trained model: a column that
others can stand for matters little by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import RecipeError
from tasks.arrays import Array
from tasks.evaluators.prediction import Prediction
from tasks.explain.features import Features
from tasks.inference.opened import Opened
from tasks.inference.predictor import Predictor
from tasks.kinds.base import Kind, TaskRows
from tasks.processes.memory import available_bytes
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import array_of_type

_ROWS, _MOST_COLUMNS = 2000, 50
_DRAWS, _STUDENT = 5, 2.776
"""The latter: of Student's distribution of as many draws, for an interval of 95 %."""


def columns_by_loss(
    opened: Opened, kind: Kind, rows: TaskRows, metric: Callable[[Prediction], float], seed: int, scratch: Path
) -> list[dict[str, Any]]:
    """Return `column`, `lost`: what `metric` loses without it, and `low`, `high`: 95 %; the largest loss first.

    Of at most 2,000 of the rows and the first 50 columns. Raises RecipeError: the columns cannot be dealt out.
    """
    rng, store = np.random.default_rng(seed), GraphStore(opened.store.folder, opened.store.manifest)
    columns = _columns(opened)[:_MOST_COLUMNS]
    if not columns:
        return []
    tables = {name: store[name] for name in sorted({name for _, places in columns for name in places})}
    if 4 * sum(table.nbytes for table in tables.values()) > available_bytes():
        raise RecipeError("there is no memory for features that are dealt out anew")
    orders = {name: [_order(opened, name, len(table), rng) for _ in range(_DRAWS)] for name, table in tables.items()}
    left_out = np.ones(len(rows.items), bool)
    left_out[rng.permutation(len(left_out))[:_ROWS]] = False
    sample = rows.without(left_out)
    if rows.items.ndim == 1:  # lists of targets leave out what is known of other splits
        sample = replace(sample, split=rows.split)

    def value() -> float:
        predictor = Predictor(
            store, device=opened.predictor.device, batch_size=opened.predictor.batch_size, scratch=scratch
        )
        return metric(kind.score(predictor, opened.model, sample))

    whole, found = value(), []
    for name, table in tables.items():
        store.replace(name, np.array(table))
    for column, places in columns:
        lost = np.empty(_DRAWS)
        for draw in range(_DRAWS):
            for name, place in places.items():
                store[name][:, place] = tables[name][orders[name][draw]][:, place]
            lost[draw] = whole - value()
        for name, place in places.items():
            store[name][:, place] = tables[name][:, place]
        mean, half = float(lost.mean()), _STUDENT * float(lost.std(ddof=1)) / _DRAWS**0.5
        found.append({"column": column, "lost": mean, "low": mean - half, "high": mean + half})
    return sorted(found, key=lambda one: -one["lost"])


def _columns(opened: Opened) -> list[tuple[str, dict[str, Array]]]:
    """Return the name of each column, and its numbers' places in the arrays that hold it."""
    found = _columns_of_types(opened.store)
    for prefixes, suffix in ((("",), ""), (("edge_", "scored_"), " (edges)")):
        of_kind: dict[str, dict[str, Array]] = {}
        for prefix in prefixes:
            features, table = Features.of(opened.store, prefix), opened.store.get(f"{prefix}feat")
            first = 0 if table is None else table.shape[1]
            for number, name in enumerate(features.names):
                places = np.flatnonzero(features.column_of == number)
                is_code = bool(places[0] >= first)
                of_column = of_kind.setdefault(f"{name}{suffix}", {})
                of_column[f"{prefix}feat{'_cat' * is_code}"] = places - first * is_code
        found += of_kind.items()
    return found


def _columns_of_types(store: GraphStore) -> list[tuple[str, dict[str, Array]]]:
    """Return the same of columns in arrays of their types' own, as databases have them."""
    found, widths = dict[str, dict[str, Array]](), store.manifest.report.get("columns", {})
    for table in ("feat", "feat_cat"):
        names = np.repeat([*widths.get(table, ())], [*widths.get(table, {}).values()])
        for kind, columns in store.manifest.type_columns.items():
            numbers = np.array(columns.numeric if table == "feat" else columns.categorical, np.int64)
            if array_of_type(table, kind) in store:
                for name in dict.fromkeys(names[numbers].tolist()):
                    found.setdefault(name, {})[array_of_type(table, kind)] = np.flatnonzero(names[numbers] == name)
    return [*found.items()]


def _order(opened: Opened, table: str, count: int, rng: np.random.Generator) -> Array:
    """Return rows in an order in which each is of the type that it was, int64 (n,)."""
    of_edges = opened.store.get("edge_type") if table.startswith("edge") else None
    types = opened.ids.type_numbers() if table in ("feat", "feat_cat") else of_edges
    types = np.zeros(count, np.int8) if types is None else np.asarray(types)
    drawn, order = rng.permutation(count), np.empty(count, np.int64)
    order[np.argsort(types, kind="stable")] = drawn[np.argsort(types[drawn], kind="stable")]
    return order
