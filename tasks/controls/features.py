"""The features that rows came with, as ingest read them: what a control sees that knows nothing of the graph.

Numbers stay numbers, texts are what their encoder made of them, categories become one column for each of their most
frequent codes. Empty cells (`missing: mean`) have their column's mean over the training rows, as in training. A graph
has the means over its nodes. Other transforms have no part in it, for some of them read the graph (degree, hops, random
walks).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from tasks.arrays import Array, blocks, sample_rows
from tasks.sampling.rows.labels import column_moments
from tasks.storage.dataset_store import DatasetStore, iter_row_groups, to_numpy
from tasks.storage.graph_store import GraphStore, create_array
from tasks.storage.ids import IdMap
from tasks.storage.manifests import FeatureColumn, GraphManifest

if TYPE_CHECKING:
    from tasks.controls.entities import EntityRows
    from tasks.inference.predictor import Predictor

MOST_CODES = 64
"""Codes of one categorical value that get a column; all others have zeros."""
_MOST_ROWS, _LEAST_ROWS = 50_000, 1000
"""Rows that a linear model is fitted to."""
_MOST_NUMBERS = 1 << 26
"""Their features: 256 MB of float32."""
_MOST_PRODUCTS = 200_000_000
"""Rows times columns times scores: a step of the fit takes about a tenth of a second for so many."""
_NUMBERS_AT_A_TIME = 1 << 23
_FAR = 100.0
"""Standard deviations: what lies further says no more, and must not decide a whole split's error."""


@dataclass(frozen=True)
class ControlledGraph:
    """What controls are fitted to."""

    store: GraphStore
    """The graph that is evaluated."""
    dataset: DatasetStore
    """What it was made of."""
    ids: IdMap
    predictor: Predictor
    """Knows the pairs of a split, on link tasks."""
    scratch: Path
    """Folder with room for features; what is written there is the caller's to remove."""
    labels: slice | None = None
    """Of several tasks, the columns of the label that are this one's."""
    entities: EntityRows | None = None
    """Rows of tables as of their moments, where they are described already."""

    def columns(self, kind: str) -> tuple[FeatureColumn, ...]:
        """Return the feature columns of a node type, of texts with the width of their vectors."""
        places = self.store.manifest.report.get("texts", {})
        return tuple(
            feature.model_copy(update={"dim": int(np.diff(places[feature.column])[0])})
            if feature.kind == "text"
            else feature
            for feature in own_columns(self.dataset, kind)
        )

    def read(self, kind: str, columns: tuple[FeatureColumn, ...], rows: Array, scratch: Path) -> tuple[Array, Array]:
        """Return columns of some rows, int64 (n,) ascending, of a node type: see `read_rows`."""
        numbers, codes = read_rows(self.dataset, f"nodes/{kind}", columns, rows, scratch)
        places = text_places(self.store.manifest, [one.column for one in columns])
        if not len(places):
            return numbers, codes
        nodes = self.ids.nodes_of_type(kind, left_out=-1)[rows]
        whole = create_array(scratch / "with-texts.npy", (len(rows), numbers.shape[1] + len(places)), np.float32)
        for some in blocks(len(rows), max(1, _NUMBERS_AT_A_TIME // whole.shape[1])):
            texts = self.store["feat"][np.maximum(nodes[some], 0)][:, places]
            texts[nodes[some] < 0] = 0  # a filter dropped them, and nobody asks for them
            whole[some] = np.concatenate([numbers[some], texts], axis=1)
        return whole, codes


def text_places(manifest: GraphManifest, columns: Sequence[str] | None = None) -> Array:
    """Return where in `feat` the numbers of some columns' texts are, int64 (n,); None: of all columns."""
    places = manifest.report.get("texts", {})
    named = [name for name in columns if name in places] if columns is not None else list(places)
    return np.concatenate([np.empty(0, np.int64), *(np.arange(*places[name]) for name in named)])


def own_columns(dataset: DatasetStore, kind: str) -> tuple[FeatureColumn, ...]:
    """Return the feature columns of a node type, as ingest wrote them."""
    return next(node_type.features for node_type in dataset.manifest.node_types if node_type.name == kind)


def labelled(rows: Array, labels: Array) -> Array:
    """Return the rows, int64 (n,), that have a label; `labels` (N,) or (N, T) are those of all."""
    label = np.asarray(labels[rows])
    return rows[~np.isnan(label).all(1) if label.ndim == 2 else label >= 0]


def training_sample(rows: Array, columns: tuple[FeatureColumn, ...], num_scores: int, share: int = 1) -> Array:
    """Return as many of the training split's rows, int64 (n,) ascending, as a linear model takes some seconds for.

    `share`: how many sets of rows of this size share the work.
    """
    width = sum(column.dim * (MOST_CODES if column.kind == "categorical" else 1) for column in columns) * share
    most = min(_MOST_ROWS, _MOST_NUMBERS // width, _MOST_PRODUCTS // (width * num_scores)) // share
    return sample_rows(rows, max(most, _LEAST_ROWS))


class OwnFeatures:
    """Features of items: rows of a nodes table, or graphs, which are ranges of such rows."""

    def __init__(self, numbers: Array, codes: Array, offsets: Array | None = None) -> None:
        """What `read_rows` returned; `offsets`, int64 (G + 1,): graph g holds rows offsets[g] to offsets[g + 1]."""
        self._numbers, self._codes, self._offsets = numbers, codes, offsets
        self._frequent: list[Array] = []
        self._filling = np.zeros(numbers.shape[1], np.float32)
        self._mean: Array | float = 0.0
        self._scale: Array | float = 1.0

    @property
    def width(self) -> int:
        """Columns of what a call returns."""
        return self._numbers.shape[1] + sum(map(len, self._frequent))

    def fit(self, items: Array) -> None:
        """Choose the codes that get columns, fill and standardize numbers, by these items (of the training split)."""
        rows = items if self._offsets is None else self._rows(items)
        step = max(1, _NUMBERS_AT_A_TIME // max(1, self._numbers.shape[1]))
        numbers = self._numbers
        self._filling = column_moments(lambda: (np.asarray(numbers[rows[p]]) for p in blocks(len(rows), step)))[0]
        self._frequent = []
        for column in np.asarray(self._codes[rows]).T:
            codes, counts = np.unique(column, return_counts=True)
            self._frequent.append(np.sort(codes[np.argsort(-counts, kind="stable")[:MOST_CODES]]))
        mean, scale = column_moments(lambda: (x for _, x in self._raw_parts(items)))
        if self._offsets is None:  # a single code is there or not; shares of codes in a graph are numbers
            mean[self._numbers.shape[1] :], scale[self._numbers.shape[1] :] = 0, 1
        # Rounding leaves a constant column with a tiny deviation.
        scale[scale <= 1e-6 * np.maximum(np.abs(mean), 1e-30)] = 1
        self._mean, self._scale = mean, scale

    def state(self) -> dict[str, Array]:
        """Return what `fit` learnt."""
        frequent = np.concatenate([np.empty(0, np.int64), *self._frequent]).astype(np.int64)
        return {
            "filling": np.asarray(self._filling),
            "mean": np.asarray(self._mean, np.float64).reshape(-1),
            "scale": np.asarray(self._scale, np.float64).reshape(-1),
            "frequent": frequent,
            "frequent_counts": np.array([len(codes) for codes in self._frequent], np.int64),
        }

    def settle(self, state: Mapping[str, Array]) -> None:
        """Take what `fit` learnt of other items."""
        self._filling, self._mean, self._scale = state["filling"], state["mean"], state["scale"]
        counts = state["frequent_counts"]
        self._frequent = np.split(state["frequent"], np.cumsum(counts)[:-1]) if len(counts) else []

    def with_codes(self, rows: Array) -> tuple[Array, int]:
        """Return numbers, then categories as their codes, float32 (n, D), and how many of the columns are numbers."""
        numbers, codes = np.asarray(self._numbers[rows]), np.asarray(self._codes[rows])
        return np.concatenate([numbers, codes], axis=1, dtype=np.float32), numbers.shape[1]

    def parts(self, items: Array) -> Iterator[tuple[slice, Array]]:
        """Yield some items at a time as a slice of `items` and their features, float32 (n, width)."""
        for part, x in self._raw_parts(items):
            yield part, np.clip((x - self._mean) / self._scale, -_FAR, _FAR).astype(np.float32)

    def whole(self, items: Array) -> Array:
        """Return the features of some items in one piece, float32 (n, width)."""
        return np.concatenate([x for _, x in self.parts(items)] or [np.empty((0, self.width), np.float32)])

    def _raw_parts(self, items: Array) -> Iterator[tuple[slice, Array]]:
        rows_an_item = 1 if self._offsets is None else max(1, len(self._numbers) // max(1, len(self._offsets) - 1))
        step = max(1, _NUMBERS_AT_A_TIME // (max(1, self.width) * rows_an_item))
        for part in blocks(len(items), step):
            yield part, self._raw(items[part])

    def _raw(self, items: Array) -> Array:
        if self._offsets is None:
            return self._encoded(items)
        sizes = self._offsets[items + 1] - self._offsets[items]
        share = np.repeat(1 / np.maximum(sizes, 1), sizes)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        rows = self._rows(items)
        means = sp.csr_matrix((share, np.arange(len(rows)), indptr), shape=(len(sizes), len(rows)))
        return np.asarray(means @ self._encoded(rows))

    def _rows(self, graphs: Array) -> Array:
        assert self._offsets is not None
        first = self._offsets[graphs]
        sizes = self._offsets[graphs + 1] - first
        before = np.cumsum(sizes) - sizes
        return np.repeat(first - before, sizes) + np.arange(sizes.sum())

    def _encoded(self, rows: Array) -> Array:
        codes = np.asarray(self._codes[rows])
        shown = [codes[:, [column]] == frequent for column, frequent in enumerate(self._frequent)]
        numbers = np.asarray(self._numbers[rows])
        numbers = np.where(np.isnan(numbers), self._filling, numbers)
        return np.concatenate([numbers, *shown], axis=1, dtype=np.float32)


def read_rows(
    dataset: DatasetStore, table: str, features: tuple[FeatureColumn, ...], rows: Array, scratch: Path
) -> tuple[Array, Array]:
    """Read some rows, int64 (n,) ascending, of a nodes table (`nodes/TYPE`), in one pass over it.

    Texts have no part in it. Returns: numbers float32 (n, D) and codes int32 (n, C), mapped from files in `scratch`.
    """
    kinds: dict[str, list[FeatureColumn]] = {"numeric": [], "categorical": []}
    features = tuple(feature for feature in features if feature.kind != "text")
    for feature in features:
        kinds[feature.kind].append(feature)
    widths = {kind: sum(feature.dim for feature in columns_of_kind) for kind, columns_of_kind in kinds.items()}
    numbers = create_array(scratch / "numbers.npy", (len(rows), widths["numeric"]), np.float32)
    codes = create_array(scratch / "codes.npy", (len(rows), widths["categorical"]), np.int32)
    for shard in dataset.shards(table):
        first = shard.first_row
        if not _within(rows, first, shard.num_rows)[1].size:
            continue
        for group in iter_row_groups(shard, [feature.column for feature in features]):
            place, local = _within(rows, first, len(group))
            for kind, out in (("numeric", numbers), ("categorical", codes)):
                if out.shape[1] and len(local):
                    values = [to_numpy(group.column(feature.column)) for feature in kinds[kind]]
                    out[place] = np.concatenate([v.reshape(len(group), -1)[local] for v in values], axis=1)
            first += len(group)
    return numbers, codes


def _within(rows: Array, first: int, count: int) -> tuple[slice, Array]:
    """Return the slice of `rows` that lies in first..first + count - 1, and these rows counted from `first`."""
    low, high = np.searchsorted(rows, (first, first + count))
    return slice(int(low), int(high)), rows[low:high] - first
