"""What a loader is, what all of them share, and which one fits a task.

A loader makes one batch from the positions of its seeds in the split. A batch depends on (seed, epoch, step, rank) and
on nothing before it, so a run that resumes sees the batches that it would have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import torch

from models.base import GraphModel
from models.block import StepBatch
from tasks.arrays import Array, blocks
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.artifacts import disk_errors, file_lock
from tasks.storage.file_names import file_name
from tasks.storage.graph_store import GraphStore, create_array
from tasks.storage.manifests import GraphManifest

_CHUNK_ROWS = 1 << 16


class Loader:
    """Makes batches of one split.

    An epoch is either a walk over the split's seeds, and `batch` is asked for those at some positions; or, where
    `num_batches` is a number, so many batches that the loader itself lays out, and `epoch_batch` is asked for one of
    them. Ranks that share an epoch split its positions or its batch numbers; how, the strategy decides. Every
    method may be called from several threads at once, in any order.
    """

    num_seeds: int
    """Seeds (nodes, edges or graphs) of the split."""
    num_batches: int | None = None
    """Batches of an epoch, at least 1, the same in every epoch; None: the batches are cut from the seeds."""
    batch_size: int = 1
    """Seeds a step and rank."""
    whole_split: ClassVar[bool] = False
    """Whether a step takes all seeds at once, whatever the batch size."""

    def batch(self, positions: Array, key: int) -> StepBatch:
        """Return the batch of the seeds at `positions`, int64 (n,); all that is drawn comes from `key`.

        Only where `num_batches` is None.
        """
        raise AssertionError(f"{type(self).__name__} defines no batch")

    def batches(self, requests: Sequence[tuple[Array, int]]) -> Iterator[StepBatch]:
        """Yield a batch for each pair of positions and key, see `batch`; all are taken before this is called again."""
        for positions, key in requests:
            yield self.batch(positions, key)

    def rehearse(self, groups: Sequence[Sequence[tuple[Array, int]]]) -> None:
        """Prepare for requests like these, see `batches`; ranks that make batches together call it together."""

    def epoch_batch(self, epoch: int, number: int, key: int) -> StepBatch:
        """Return batch `number`, 0 to num_batches - 1, of an epoch. Only where `num_batches` is a number.

        What the whole epoch shares (which cluster a node belongs to) is drawn from the seed, the epoch and the rank
        that the loader was made with, what a batch draws by itself from `key`. The batch's `num_seeds` counts the
        labelled nodes in it, which may be none.
        """
        raise AssertionError(f"{type(self).__name__} defines no epoch_batch")

    def to(self, device: torch.device) -> None:
        """Move what is the same in every batch to the device, once; all ranks together."""

    def has_equal_batches(self) -> bool:
        """Whether all ranks' batches of a step count alike: they have equally many labels."""
        return True


class LabelLoader(Loader):
    """A loader whose seeds are nodes or graphs with labels."""

    def __init__(self, manifest: GraphManifest, seeds: Array, labels: Array) -> None:
        """`seeds`: integer (n,), rows of `labels`, (N,) or (N, T)."""
        self.manifest, self.seeds, self.labels = manifest, seeds, labels
        self.num_seeds = len(seeds)

    def labels_of(self, seeds: Sequence[Array]) -> list[Array]:
        """Return the labels of lists of seeds."""
        return [np.asarray(self.labels[some]) for some in seeds]

    def has_equal_batches(self) -> bool:
        """Whether no seed's label is missing: NaN, or below 0 where labels are integers. Reads them all."""
        for part in blocks(self.num_seeds, _CHUNK_ROWS):
            [some] = self.labels_of([self.seeds[part]])
            if bool((some < 0).any() if some.dtype.kind == "i" else np.isnan(some).any()):
                return False
        return True


@dataclass(frozen=True)
class TrainingData:
    """What a loader is made for, beside its options: `Loader(config, data)`."""

    store: GraphStore
    """The graph, or what the strategy gives this rank of it."""
    features: FeatureSource
    """Of its nodes and edges: what the model reads."""
    num_layers: int | None = None
    """Of the model; None: as many as the options say."""
    reads_mean: bool = False
    """Whether the model reads the outermost hop only through a mean or sum (`GraphModel.reads_mean`)."""
    num_propagations: int = 0
    """How often the model propagates features without learning (`GraphModel.num_propagations`)."""
    numbered: dict[int, Any] = field(default_factory=dict)
    """Types of nodes of which the model learns a row for each (`RelationalModel.numbered`)."""
    walks: Any = None
    """Options of walks and number of layers, where rows read what their walks visit (`RelationalModel.walks`)."""
    seed: int = 0
    """What loaders draw that lay out their own epochs, or estimate something once."""
    rank: int = 0
    """Ranks that go through the same epochs give the same number, else each its own."""
    scratch: Path | None = None
    """Folder for tables as large as the features, shared by the machine's ranks; None: the system's own."""

    @classmethod
    def of(cls, model: GraphModel, store: GraphStore, features: FeatureSource, **others: Any) -> TrainingData:
        """Take down what loaders ask of a model; `others` are further fields."""
        of_typed = getattr(model, "numbered", {}), getattr(model, "walks", None)
        given = model.config.num_layers, model.reads_mean, model.num_propagations, *of_typed
        return cls(store, features, *given, **others)


@dataclass(frozen=True)
class SampleData:
    """What a loader of pairs or triples is made for, beside its options: `Loader(config, data)`."""

    store: GraphStore
    key: int
    """Of all that is drawn, at least 0."""


def shared_table(
    scratch: Path | None, name: str, shape: tuple[int, int], dtype: Any, fill: Callable[[Array, Path], None]
) -> Array:
    """Return a table, memory-mapped read-only, that `fill` has written into the file `name` of the folder `scratch`.

    It stays there for other ranks, and for a run that is resumed; without a folder nothing stays. `name` tells all that
    decides the content. `fill` gets the table, and a folder for scratch files. Raises StageError: the disk has no room.
    """
    with nullcontext(scratch) if scratch else TemporaryDirectory() as place:
        folder = Path(place)
        path = folder / file_name(name)
        with file_lock(path.with_suffix(".lock")), disk_errors(folder):
            if not path.exists():
                draft = path.with_suffix(".part")
                fill(create_array(draft, shape, dtype), folder)
                draft.rename(path)
        table: Array = np.load(path, mmap_mode="r", allow_pickle=False)  # once mapped, it needs no name
    assert table.shape == shape
    return table
