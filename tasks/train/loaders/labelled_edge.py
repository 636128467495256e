"""Mini-batches of labelled edges with sampled neighbourhoods."""

from __future__ import annotations

import numpy as np
import torch

from configs.registry import LOADERS
from models.block import Batch
from tasks.arrays import Array
from tasks.sampling.neighborhoods.in_edges import Seeds
from tasks.sampling.rows.features import take_rows
from tasks.sampling.rows.labels import targets
from tasks.train.loaders.base import LabelLoader, TrainingData
from tasks.train.loaders.configs import LabelledEdgeConfig
from tasks.train.loaders.neighbor import open_neighborhoods


@LOADERS.register("labelled_edge")
class LabelledEdgeLoader(LabelLoader):
    """Seeds are labelled edges; the ends' neighbourhoods are sampled without the batch's own edges.

    So training sees what evaluation sees, whose edges carry no messages either. Where scored edges are kept, all stay.
    """

    def __init__(self, config: LabelledEdgeConfig, data: TrainingData) -> None:
        """Open a graph. Raises RecipeError for options that do not fit it, or the model."""
        store = data.store
        super().__init__(store.manifest, store["train_idx"], store["edge_label"])
        self.ends, self.feat, self.feat_cat = store["edge_ends"], store.get("scored_feat"), store.get("scored_feat_cat")
        self.batch_size = config.batch_size
        self.neighborhoods = open_neighborhoods(config, config.first_hop, data)

    def batch(self, positions: Array, key: int) -> Batch:
        """Sample around the ends of the edges at some positions."""
        edges = np.asarray(self.seeds[positions])
        local, nodes = self.neighborhoods.number(np.ascontiguousarray(self.ends[edges].T, np.int64))
        excluded = None if self.manifest.keep_known_pairs else local
        [(blocks, inputs)] = self.neighborhoods.around_all([Seeds(nodes, key, excluded)])
        return Batch(
            blocks=blocks,
            inputs=inputs,
            target=targets(self.manifest, np.asarray(self.labels[edges])),
            num_seeds=len(edges),
            pairs=torch.from_numpy(local),
            own_feat=take_rows(self.feat, edges, np.float32),
            own_feat_cat=take_rows(self.feat_cat, edges, np.int64),
            num_edges=sum(block.num_edges for block in blocks),
        )
