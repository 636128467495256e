"""Where a model is good and where not: its metric in groups of rows, and the rows it is most wrong about."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.label_types import LabelType
from tasks.arrays import Array
from tasks.evaluators.metrics import ranks
from tasks.evaluators.prediction import Prediction

MOST_WRONG = 10
_GROUPS = 12
_QUANTILES = (0.2, 0.4, 0.6, 0.8)
_REST = "all others"
_MISSING = "missing"


def in_groups(
    columns: dict[str, pa.Array],
    prediction: Prediction,
    metric: Callable[[Prediction], float],
    wanted: Collection[str],
    kind: LabelType,
) -> dict[str, list[dict[str, Any]]]:
    """Return for wanted columns, (n,) each, their groups with `name`, `rows` and `metric`, where there are several.

    Numbers and times are cut into fifths, texts into the most frequent ones; dictionaries are groups. `metric` may
    raise DataError where a group does not define it: it is None there, and `positives`, rows of the class that is
    looked for, say why; they are None where there is no such class.
    """
    groups, positive = dict[str, list[dict[str, Any]]](), _positive_rows(prediction, kind)
    for column in wanted:
        if column not in columns:  # of one part or component, or degrees where there are no edges
            continue
        names, code = _cut(columns[column])
        found = []
        for number, name in enumerate(names):
            rows = np.flatnonzero(code == number)
            if not len(rows):
                continue
            try:
                value: float | None = metric(prediction.taken(rows))
            except DataError:
                value = None
            positives = None if positive is None else int(positive[rows].sum())
            found.append({"name": name, "rows": len(rows), "positives": positives, "metric": value})
        if len(found) > 1:
            groups[column] = found
    return groups


def _positive_rows(prediction: Prediction, kind: LabelType) -> Array | None:
    """Return which rows are of the class that is looked for, bool (n,); None: there are not two classes."""
    label, scores = prediction.label, prediction.scores
    if not kind.one_decision or label is None or scores is None or scores.shape[-1] > 2:
        return None
    positive: Array = label.reshape(len(label), -1)[:, 0] == prediction.positive_class
    return positive


def _cut(values: pa.Array) -> tuple[list[str], Array]:
    """Return names of groups, and the number of each row's, int64 (n,)."""
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_temporal(values.type) or pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        names, code = _fifths(values, missing)
    elif pa.types.is_dictionary(values.type):  # groups already, in their order
        names, code = values.dictionary.to_pylist(), values.indices.fill_null(0).to_numpy()
    else:
        texts = compute.cast(values, pa.string()).dictionary_encode()
        count = np.bincount(texts.indices.drop_null().to_numpy(), minlength=len(texts.dictionary))
        first = np.argsort(-count, kind="stable")[:_GROUPS]
        place = np.full(len(count), len(first))
        place[first] = np.arange(len(first))
        names = [*texts.dictionary.take(pa.array(first)).to_pylist(), _REST]
        code = place[texts.indices.fill_null(0).to_numpy()] if len(place) else np.zeros(len(values), np.int64)
    return [*names, _MISSING], np.where(missing, len(names), code)


def _fifths(values: pa.Array, missing: Array) -> tuple[list[str], Array]:
    kept = values.drop_null().to_numpy(zero_copy_only=False)
    if kept.dtype.kind == "M" and (kept == kept.astype("M8[D]")).all():
        kept = kept.astype("M8[D]")  # no time of day
    if not len(kept):
        return [], np.zeros(len(values), np.int64)
    ordered = np.sort(kept)
    ends = np.unique(ordered[(np.array(_QUANTILES) * (len(ordered) - 1)).astype(np.int64)])
    ends = ends[ends < ordered[-1]]
    code = np.zeros(len(values), np.int64)
    code[~missing] = np.searchsorted(ends, kept, side="left")
    lows = [ordered[0], *(ordered[np.searchsorted(ordered, end, side="right")] for end in ends)]
    return [_span(low, high) for low, high in zip(lows, [*ends, ordered[-1]], strict=True)], code


def _span(low: Any, high: Any) -> str:
    ends = [f"{end:.6g}" if isinstance(end, np.number) else str(end)[:19] for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def most_wrong(prediction: Prediction, kind: LabelType) -> Array:
    """Return the labelled rows that are the least likely by what is predicted, the worst first: int64 (k,).

    By -log of the label's probability, of several labels their sum; of numbers by the error in standard deviations of
    the labels; edges by their rank among negatives.
    """
    if prediction.positive is not None:
        return np.argsort(-ranks(*prediction.pairs()), kind="stable")[:MOST_WRONG]
    assert prediction.label is not None
    given = prediction.label.reshape(len(prediction.label), -1)
    rows = np.flatnonzero((given >= 0).all(axis=1) if given.dtype.kind == "i" else ~np.isnan(given).all(axis=1))
    label, score = prediction.columns()
    if kind.is_number:
        cost = np.abs(label - score) / np.maximum(np.nanstd(label, axis=0), 1e-12)
    elif kind.one_of_many and label.shape[1] > 1:
        cost = -label * score  # scores are logarithms of probabilities there
    else:
        cost = np.logaddexp(0, np.where(label == 1, -score, score))
    return rows[np.argsort(-np.where(np.isnan(label), 0.0, cost).sum(axis=1), kind="stable")[:MOST_WRONG]]
