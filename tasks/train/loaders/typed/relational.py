"""Mini-batches of rows of a typed graph, each with what was there before its moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from configs.registry import LOADERS
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.sampling.rows.labels import targets
from tasks.train.loaders.base import Array, LabelLoader, TrainingData
from tasks.train.loaders.configs import RelationalConfig

if TYPE_CHECKING:
    from models.relational.batch import TypedBatch


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
