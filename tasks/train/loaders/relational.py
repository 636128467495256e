"""Mini-batches of rows of a typed graph, each with what was there before its moment; also with what is recommended."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from configs.registry import LOADERS
from models.relational.batch import RankingBatch, TypedBatch
from models.relational.configs import ImportanceWalksConfig
from tasks.arrays import Array
from tasks.sampling.neighborhoods.neighbors import derive_key, shuffled
from tasks.sampling.relational.batches import TypedNeighborhoods, sorted_edges
from tasks.sampling.relational.importance import ImportanceSampler
from tasks.sampling.relational.links import Asked, RankedLinks, RankedNeighborhoods
from tasks.sampling.rows.labels import targets
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.base import LabelLoader, Loader, TrainingData
from tasks.train.loaders.configs import RankingLoaderConfig, RelationalConfig


@LOADERS.register("relational")
class RelationalLoader(LabelLoader):
    """Seeds are labelled rows; each layer sees a sample of each relation's edges before the seed's moment."""

    def __init__(self, config: RelationalConfig, data: TrainingData) -> None:
        """Open a graph. Raises RecipeError or DataError for options or a graph that do not fit."""
        store = data.store
        super().__init__(store.manifest, store["train_idx"], store["label"])
        self.batch_size = config.batch_size
        fanouts = config.fanouts(data.num_layers or 0)
        newest = config.takes_newest(store.manifest)
        self.neighborhoods = TypedNeighborhoods(store, fanouts, newest=newest, numbered=data.numbered, walks=data.walks)

    def batch(self, positions: Array, key: int) -> TypedBatch:
        """Sample around the seeds."""
        seeds = np.asarray(self.seeds[positions], np.int64)
        [label] = self.labels_of([seeds])
        return self.neighborhoods.batch(seeds, key, targets(self.manifest, label))


_ORDER, _WITHIN, _DRAW = 11, 12, 13  # purposes that keys are drawn for
_KEPT_BYTES = 1 << 28
"""Of what is known of moments, so much is kept."""


@dataclass
class _Moment:
    """The candidates of a moment, and how likely each is to be in a batch."""

    there: Array
    """int64 (c,): columns, ascending."""
    drawn: Array
    """float64 (C,): the chance that a draw takes each."""
    right: Array
    """float64 (C,): the chance that a seed takes each as right."""
    cumulated: Array
    """float64 (c,): of `drawn[there]`."""
    num_seeds: int


@LOADERS.register("ranking")
class RankingLoader(Loader):
    """Seeds of one moment with what is right for them, and candidates drawn besides."""

    def __init__(self, config: RankingLoaderConfig, data: TrainingData) -> None:
        """Open a graph. Raises RecipeError or DataError for options or a graph that do not fit."""
        store = data.store
        self.config, self.batch_size, self._seed = config, config.batch_size, derive_key(data.seed, data.rank)
        fanouts = config.fanouts(data.num_layers or 0)
        newest = config.takes_newest(store.manifest)
        typed = TypedNeighborhoods(store, fanouts, newest=newest, numbered=data.numbered, walks=data.walks)
        self.neighborhoods = RankedNeighborhoods(store, typed)
        self.links = self.neighborhoods.links
        tasks = np.asarray(store["train_idx"], np.int64)
        moments = self.links.moments(tasks)
        order = np.argsort(moments, kind="stable")
        self.seeds, self.num_seeds = tasks[order], len(tasks)
        self.moments, starts = np.unique(moments[order], return_index=True)
        self._starts = np.append(starts, len(tasks))
        counts = -(-np.diff(self._starts) // self.batch_size)
        self._first_batch = np.concatenate([[0], np.cumsum(counts)])
        self.num_batches = int(self._first_batch[-1])
        self.hard = HardNegatives(store, config, data.walks, self.links) if config.hard_negatives else None
        self._known: OrderedDict[int, _Moment] = OrderedDict()
        self._lock = threading.Lock()

    def has_equal_batches(self) -> bool:
        """Whether all are equally large: the last of a moment is not."""
        return False

    def epoch_batch(self, epoch: int, number: int, key: int) -> RankingBatch:
        """Sample around some seeds of a moment and the candidates that they are compared with."""
        order = derive_key(self._seed, epoch, _ORDER)
        place = int(shuffled(self.num_batches, order, np.array([number]))[0])
        of = int(np.searchsorted(self._first_batch, place, side="right")) - 1
        first, size = int(self._starts[of]), int(self._starts[of + 1] - self._starts[of])
        part = (place - int(self._first_batch[of])) * self.batch_size
        places = np.arange(part, min(size, part + self.batch_size))
        tasks = self.seeds[first + shuffled(size, derive_key(self._seed, epoch, of, _WITHIN), places)]
        asked = self._ask(np.sort(tasks), of, derive_key(key, _DRAW))
        most = min(epoch, self.config.hard_negatives)
        if self.hard is not None and most and asked.log_inclusion is not None:
            asked = self.hard.added(asked, int(self.moments[of]), most, key)
        return self.neighborhoods.training_batch(asked, int(self.moments[of]), key)

    def _ask(self, tasks: Array, of: int, key: int) -> Asked:
        """Draw what is right for each task, and the candidates."""
        random = np.random.Generator(np.random.Philox(key=key))
        moment = self._moment(of)
        indptr, right = self.links.right(tasks)
        row, chosen = _some_of_each(indptr, right, self.config.positives, random)
        if len(moment.there) <= self.config.negatives:
            columns, log_inclusion = np.union1d(moment.there, chosen), None
        else:
            drawn = np.searchsorted(moment.cumulated, random.random(self.config.negatives) * moment.cumulated[-1])
            drawn = moment.there[np.minimum(drawn, len(moment.there) - 1)]
            columns = np.union1d(drawn, chosen)
            missed = self.config.negatives * np.log1p(-np.minimum(moment.drawn[columns], 0.999_999))
            missed += _log_missed(moment.right[columns] * moment.num_seeds, moment.num_seeds, len(tasks))
            log_inclusion = np.log(np.maximum(-np.expm1(missed), 1e-30)).astype(np.float32)
        return Asked(tasks, columns, np.stack([row, np.searchsorted(columns, chosen)]), log_inclusion)

    def _moment(self, of: int) -> _Moment:
        with self._lock:
            if of in self._known:
                self._known.move_to_end(of)
                return self._known[of]
        made = self._make_moment(of)
        with self._lock:
            self._known[of] = made
            most = max(1, _KEPT_BYTES // (32 * max(1, self.links.num_candidates)))
            while len(self._known) > most:
                self._known.popitem(last=False)
        return made

    def _make_moment(self, of: int) -> _Moment:
        links, size, moment = self.links, self.links.num_candidates, int(self.moments[of])
        there = np.flatnonzero(links.there(moment))
        weight = np.ones(len(there))
        if self.config.draw == "popularity":
            weight = (1.0 + links.popularity(there, moment)[:, 0]) ** self.config.alpha
        drawn = np.zeros(size)
        drawn[there] = weight / weight.sum()
        tasks = self.seeds[self._starts[of] : self._starts[of + 1]]
        indptr, columns = links.right(tasks)
        counts = np.diff(indptr)
        share = np.repeat(np.minimum(1, self.config.positives / np.maximum(1, counts)) / len(tasks), counts)
        right = np.bincount(columns, weights=share, minlength=size)
        return _Moment(there, drawn, right, np.cumsum(drawn[there]), len(tasks))


def _log_missed(having: Array, num_seeds: int, size: int) -> Array:
    """Return the log of the chance that none of a batch's other seeds brings a candidate, which one has not.

    having: how many of the moment's `num_seeds` bring it, float64 (n,); `size`: seeds of a batch. They are drawn
    without replacement: C(N - 1 - m, B - 1) / C(N - 1, B - 1).
    """
    left = num_seeds - having - size + 1
    log_ways = gammaln(num_seeds - having) - gammaln(np.maximum(left, 1e-9))
    log_ways += gammaln(num_seeds - size + 1) - gammaln(num_seeds)
    return np.where(left > 0, np.minimum(log_ways, 0), -np.inf)


def _some_of_each(indptr: Array, columns: Array, most: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Return row and column of at most so many columns of each row, each set of them equally likely."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((random.random(len(row)), row))
    chosen = np.sort(order[np.arange(len(row)) - indptr[row] < most])
    return row[chosen], columns[chosen]


_WALK = 14
"""Purpose that keys are drawn for."""


class HardNegatives:
    """Adds to what a batch asks what is reached most from each seed, and not right for it."""

    def __init__(
        self,
        store: GraphStore,
        config: RankingLoaderConfig,
        walks: tuple[ImportanceWalksConfig, int] | None,
        links: RankedLinks,
    ) -> None:
        """`walks`: those of the model, where it makes some. Raises RecipeError: walks have nowhere to go."""
        options = ImportanceWalksConfig() if walks is None else walks[0]
        self.sampler = ImportanceSampler.of_store(store, sorted_edges(store), options, 1)
        self.links, self.skip = links, config.hard_skip

    def added(self, asked: Asked, moment: int, most: int, key: int) -> Asked:
        """Return what is asked with `most` hard ones for each seed at most."""
        row, column = self.of_tasks(asked.tasks, moment, most, key)
        columns = np.union1d(asked.columns, column)
        assert asked.log_inclusion is not None
        log_inclusion = np.full(len(columns), np.inf, np.float32)
        place = np.searchsorted(columns, asked.columns)
        log_inclusion[place] = asked.log_inclusion
        right = np.stack([asked.right[0], place[asked.right[1]]])
        return Asked(asked.tasks, columns, right, log_inclusion, np.stack([row, np.searchsorted(columns, column)]))

    def of_tasks(self, tasks: Array, moment: int, most: int, key: int) -> tuple[Array, Array]:
        """Return rows of tasks and columns of their hard ones, int64 (h,) each, those that are reached most."""
        links, size = self.links, self.links.num_candidates
        indptr, right = links.right(tasks)
        counts = np.diff(indptr)
        entities, moments = links.entities(tasks), np.full(len(tasks), moment, np.int64)
        out = [np.repeat(np.arange(len(tasks)), counts) * size + right]
        if links.ranking.new_only:
            past, had, _, _ = links.past(entities, moments)
            out.append(np.repeat(np.arange(len(tasks)), np.diff(past)) * size + had)
            counts = counts + np.diff(past)
        places = min(size, self.skip + most + int(counts.max(initial=0)))
        starts, nodes, _ = self.sampler.visits(entities, moments, derive_key(key, _WALK), places)
        row, column = np.repeat(np.arange(len(tasks)), np.diff(starts)), np.searchsorted(links.candidates, nodes)
        kept = ~np.isin(row * size + column, np.concatenate(out))
        row, column = row[kept], column[kept]
        first = np.searchsorted(row, np.arange(len(tasks)))
        rank = np.arange(len(row)) - first[row]
        chosen = (rank >= self.skip) & (rank < self.skip + most)
        return row[chosen], column[chosen]
