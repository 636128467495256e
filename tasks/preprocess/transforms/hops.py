"""Transform that adds a summary of a node's surroundings to its row: hops.

A path such as `out-in` is read from the node: its out-neighbours, then their in-neighbours (what depends on the same).
"""

from __future__ import annotations

import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from configs.errors import RecipeError
from configs.registry import TRANSFORMS
from configs.schema import PreprocessConfig
from tasks.arrays import Array, blocks
from tasks.preprocess.transforms.configs import HopsConfig
from tasks.storage.graph_store import ArrayWriter, create_array
from tasks.storage.manifests import DatasetManifest

_CHUNK_ROWS = 1 << 14
# Shares of rare classes have deviations far below this: scaled to 1 they would drown the others, and a single neighbour
# would be dozens of deviations away. Test accuracy of an MLP on Cora: 0.776 with both limits, 0.750 without the first,
# 0.406 without either (5 seeds, 2026); on minesweeper they change nothing.
_LEAST_DEVIATION, _LARGEST = 0.02, 8.0
_HUB = 256  # edges from which on sums are in float64: in float32 what comes late would drown, as 0.1 in 100,000


@njit(cache=True, nogil=True)
def mean_rows(indptr: Array, indices: Array, x: Array, out: Array) -> None:
    """out_v = mean of x_u over v's edges: indptr int64 (N + 1,), indices id (E,), x and out float32 (N, D)."""
    total = np.empty(out.shape[1], np.float64)
    for v in range(len(out)):
        first, last = indptr[v], indptr[v + 1]
        if last - first >= _HUB:
            total[:] = 0.0
            for e in range(first, last):
                row = x[indices[e]]
                for j in range(len(total)):
                    total[j] += row[j]
            out[v] = total / (last - first)
            continue
        out[v] = 0.0
        for e in range(first, last):
            row = x[indices[e]]
            for j in range(out.shape[1]):
                out[v, j] += row[j]
        if last > first:
            share = np.float32(1.0) / np.float32(last - first)
            for j in range(out.shape[1]):
                out[v, j] *= share


@njit(cache=True, nogil=True)
def count_labels(indptr: Array, indices: Array, readable: Array, out: Array) -> None:
    """Count the classes of v's neighbours but v itself, into `out`, float32 (N, C): exact up to 2^24 edges.

    indptr int64 (N + 1,), indices id (E,), readable int64 (N,): labels that may be read, -1 for none.
    """
    for v in range(len(out)):
        out[v] = 0.0
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if u != v and readable[u] >= 0:
                out[v, readable[u]] += 1.0


@njit(cache=True, nogil=True)
def mean_shares(
    indptr: Array, indices: Array, far_indptr: Array, far_indices: Array, counts: Array, readable: Array, out: Array
) -> None:
    """out_v = mean over v's neighbours u of the shares of classes among u's far neighbours, v's own label left out.

    What v itself adds to u's counts is taken off before anything is divided, so that no rounding error of it remains.
    indptr and indices are those of the first step, far_indptr and far_indices (ascending within a node) of the second,
    whose `count_labels` are counts, float32 (N, C); readable int64 (N,): labels that may be read, -1 for none.
    """
    total = np.empty(out.shape[1], np.float64)
    for v in range(len(out)):
        first, last = indptr[v], indptr[v + 1]
        total[:] = 0.0
        for e in range(first, last):
            u = indices[e]
            far = far_indices[far_indptr[u] : far_indptr[u + 1]]
            if u == v or not len(far):
                continue
            repeats = 0  # how often v is among u's far neighbours with its own label
            if readable[v] >= 0:
                place = np.searchsorted(far, v)
                while place + repeats < len(far) and far[place + repeats] == v:
                    repeats += 1
            share = np.float32(1.0) / np.float32(len(far) * (last - first))
            for c in range(out.shape[1]):
                others = counts[u, c] - repeats if c == readable[v] else counts[u, c]
                total[c] += np.float32(others) * share
        out[v] = total


@TRANSFORMS.register("hops")
class Hops:
    """Append means of features and shares of training labels over paths, each direction by itself; stands last.

    So a model that looks at single nodes (`mlp`) sees the graph, as in SIGN (https://arxiv.org/abs/2004.11198), and
    labels as in GAMLP (https://arxiv.org/abs/2108.10097). A label path leaves out the node it describes, whose own
    label would tell the answer; labels of other splits than train are never read. New columns are standardised on the
    training rows (deviations below 0.02 count as 0.02) and cut off at 8.

    Memory: two rows a node of a path are on disk at a time, a chunk of rows in memory.
    """

    def __init__(self, config: HopsConfig) -> None:
        """Raises RecipeError where no path is named."""
        self.config = config
        if not config.features and not config.labels:
            raise RecipeError("preprocess.transforms: hops names no paths; give it features or labels")

    def check(self, manifest: DatasetManifest, symmetric: bool, feature_dim: int) -> None:
        """Raise RecipeError for paths that the graph has not."""
        steps = {step for path in (*self.config.features, *self.config.labels) for step in path.split("-")}
        if symmetric and "out" in steps:
            raise RecipeError(
                "preprocess.transforms: hops cannot tell out from in on a symmetrised graph; set "
                "preprocess.symmetrize=false, or take paths of `in` alone"
            )
        if self.config.features and not feature_dim:
            raise RecipeError("preprocess.transforms: hops.features needs numeric features, and there are none")
        if self.config.labels and (manifest.task, manifest.task_type, manifest.num_tasks) != ("node", "multiclass", 1):
            raise RecipeError("preprocess.transforms: hops.labels needs one class a node (a node task); remove it")

    def widen(
        self,
        writer: ArrayWriter,
        manifest: DatasetManifest,
        symmetric: bool,
        train_rows: Array | None,
        built: dict[str, Any],
    ) -> dict[str, Any]:
        """Replace `feat` (N, D) by [feat | new columns]; return `built`, of `FeatureBuilder.build`, with the new width.

        `symmetric`: the in-edges are the out-edges too. `train_rows`, int64 (n,) ascending: rows to standardise on;
        None: all. Raises RecipeError for paths that the graph has not.
        """
        entry = writer.entries.get("feat")
        self.check(manifest, symmetric, entry.shape[1] if entry else 0)
        scratch = writer.folder / "hops"
        scratch.mkdir()
        try:
            parts = _Paths(writer, manifest, symmetric, scratch)
            columns = {f"features {path}": parts.features(path) for path in self.config.features}
            columns |= {f"labels {path}": parts.labels(path) for path in self.config.labels}
            scales = {name: self.scale(name, x, train_rows) for name, x in columns.items()}
            dim = _write_wider(writer, scratch, parts.num_nodes, [(x, *scales[name]) for name, x in columns.items()])
        finally:
            shutil.rmtree(scratch)
        widths = {name: x.shape[1] for name, x in columns.items()}
        plain = {name: {"mean": mean.tolist(), "deviation": wide.tolist()} for name, (mean, wide) in scales.items()}
        added = {"transform": "hops", "columns": list(widths), "scales": plain}
        of_arrays = {**built["columns"], "feat": built["columns"]["feat"] | widths}
        return {**built, "feature_dim": dim, "transforms": [*built["transforms"], added], "columns": of_arrays}

    def scale(self, name: str, x: Array, train_rows: Array | None) -> tuple[Array, Array]:
        """Return mean and deviation, float32 (D,), that a path's columns (N, D) are standardised by."""
        total, squares, count = np.zeros(x.shape[1]), np.zeros(x.shape[1]), 0
        for part in blocks(len(x) if train_rows is None else len(train_rows), _CHUNK_ROWS):
            chunk = x[part if train_rows is None else train_rows[part]].astype(np.float64)
            total += chunk.sum(0)
            squares += (chunk**2).sum(0)
            count += len(chunk)
        mean = total / max(count, 1)
        deviation = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0))
        return mean.astype(np.float32), np.maximum(deviation, _LEAST_DEVIATION).astype(np.float32)


def _write_wider(writer: ArrayWriter, scratch: Path, num_nodes: int, parts: list[tuple[Array, Array, Array]]) -> int:
    """Write `feat` anew with further columns, given with their means and deviations; return its width."""
    before, dtype = None, "float32"
    if "feat" in writer.entries:
        before, dtype = writer.read("feat"), writer.entries["feat"].dtype
        (writer.folder / "feat.npy").rename(scratch / "feat.npy")  # stays mapped
    place = 0 if before is None else before.shape[1]
    dim = place + sum(part.shape[1] for part, *_ in parts)
    feat = writer.create("feat", (num_nodes, dim), dtype)
    if before is not None:
        feat[:, :place] = before
    for part, mean, deviation in parts:
        for rows in blocks(num_nodes, _CHUNK_ROWS):
            x = np.clip((part[rows] - mean) / deviation, -_LARGEST, _LARGEST)
            feat[rows, place : place + part.shape[1]] = x
        place += part.shape[1]
    return dim


def split_hops(config: PreprocessConfig) -> tuple[PreprocessConfig, Hops | None]:
    """Part `hops`, which reads finished features, from the transforms that make them.

    Return the configuration without it, and the transform, None where the recipe has none. Raises RecipeError unless it
    stands last.
    """
    names = [transform.name for transform in config.transforms]
    place = next((i for i, name in enumerate(names) if issubclass(TRANSFORMS.get(name), Hops)), None)
    if place is None:
        return config, None
    if place < len(names) - 1:
        raise RecipeError(
            f"preprocess.transforms: hops reads finished features, and {names[place + 1]} stands behind it; put hops "
            "last, once"
        )
    made: Hops = TRANSFORMS.create(config.transforms[-1])
    return config.model_copy(update={"transforms": config.transforms[:-1]}), made


class _Paths:
    def __init__(self, writer: ArrayWriter, manifest: DatasetManifest, symmetric: bool, scratch: Path) -> None:
        self.read, self.scratch = writer.read, scratch
        self.edges = {"in": (self.read("csc_indptr"), self.read("csc_indices"))}
        if not symmetric:
            self.edges["out"] = (self.read("csr_indptr"), self.read("csr_indices"))
        self.num_nodes, self.num_classes = len(self.edges["in"][0]) - 1, manifest.num_classes
        self._made: dict[str, Array] = {}

    def _new(self, name: str, columns: int) -> Array:
        self._made[name] = np.asarray(create_array(self.scratch / f"{name}.npy", (self.num_nodes, columns), np.float32))
        return self._made[name]

    def features(self, path: str) -> Array:
        """Return means over a path, float32 (N, D); "" is the features themselves."""
        if path in self._made:
            return self._made[path]
        if not path:
            feat = self.read("feat")
            if feat.dtype == np.float32:
                return feat
            x = self._new("", feat.shape[1])
            x[:] = feat
            return x
        step, _, rest = path.partition("-")
        before = self.features(rest)
        out = self._new(path, before.shape[1])
        mean_rows(*self.edges[step], before, out)
        return out

    def labels(self, path: str) -> Array:
        """Return shares of classes over a path of one or two steps, float32 (N, C)."""
        step, _, far = path.partition("-")
        indptr, indices = self.edges[step]
        shares = self._new(f"labels-{path}", self.num_classes)
        if far:
            mean_shares(indptr, indices, *self.edges[far], self._counts(far), self.readable, shares)
        else:
            shares[:] = self._counts(step)
            shares /= np.maximum(np.diff(indptr), 1)[:, None].astype(np.float32)
        return shares

    def _counts(self, step: str) -> Array:
        name = f"counts-{step}"
        if name not in self._made:
            count_labels(*self.edges[step], self.readable, self._new(name, self.num_classes))
        return self._made[name]

    @cached_property
    def readable(self) -> Array:
        """Labels of the training nodes, -1 for all others: int64 (N,)."""
        train, labels = self.read("train_idx"), np.full(self.num_nodes, -1, np.int64)
        labels[train] = self.read("label")[train]
        return labels
