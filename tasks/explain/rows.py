"""Which rows of which table moved the score of a row, as of its moment: removal among the rows sampled for it.

Nothing is drawn in the place of a row that is left out, and what is later than the moment has no part in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from configs.errors import RecipeError
from configs.registry import EXPLAINERS
from models.relational.base import RelationalModel
from models.relational.batch import RelationBlock, TypedBatch
from tasks.arrays import Array, offsets
from tasks.explain.answers import Answer, Words, relation_words
from tasks.explain.asked_score import AskedScore, asked_score
from tasks.explain.base import Effects, Explanation, Part
from tasks.explain.configs import RemovalConfig
from tasks.explain.neighborhood import EdgeUnits, Neighborhood
from tasks.inference.opened import Opened
from tasks.inference.predictor import evaluating
from tasks.inference.sampled import SampledScores
from tasks.kinds.judged import Deciding


def explain_rows(
    opened: Opened, items: Array, options: dict[str, Any], deciding: Deciding, of_class: str | None
) -> Iterator[Answer]:
    """Yield explanations of labelled rows, int64 (n,), by removal; arguments are those of `explain_items`.

    Raises RecipeError: another explainer, or no such class.
    """
    model, config = opened.model, EXPLAINERS.config(options)
    assert isinstance(model, RelationalModel)
    if not isinstance(config, RemovalConfig):
        raise RecipeError(f"evaluate.explain={config.name}: rows of tables are explained by removal")
    sampled, types = SampledScores(opened.store, model), opened.store.manifest.node_types
    asked = asked_score(opened.store, model, deciding, of_class)
    for item in items:
        rows = SampledRows(model, sampled.batch(item[None]).to(opened.predictor.device), asked)
        ids = [opened.ids.lookup(nodes.numpy(), typed=True) for nodes in rows.nodes]
        tables = pa.array([f"all sampled rows of {kind}" for kind in types])
        words = Words(pa.concat_arrays([*ids, tables]), [], relation_words(opened.store.manifest.edge_types))
        named = {"node": opened.ids.lookup(item[None])[0].as_py()}
        yield Answer(
            named,
            rows.asked.said(),
            rows.explain(config.most),
            config.name,
            rows.hood,
            words,
            np.array([rows.seed]),
        )


class SampledRows:
    """The rows that one labelled row is scored from, numbered over all types."""

    def __init__(self, model: RelationalModel, batch: TypedBatch, asked: AskedScore) -> None:
        self.model, self.batch, self.asked = model, batch, asked
        self.nodes = [inputs.node_ids.cpu() for inputs in batch.inputs.types]
        self.first = offsets([len(nodes) for nodes in self.nodes])
        hop = np.full(self.first[-1], len(batch.blocks), np.int64)
        for steps, block in enumerate(reversed(batch.blocks)):
            for kind, count in enumerate(block.num_dst):
                part = hop[self.first[kind] : self.first[kind] + count]
                np.minimum(part, steps, out=part)
        assert batch.rows is not None
        hop[hop == 0] = 1
        self.seed = int(self.first[model.facts.seed_type]) + int(batch.rows[0])
        hop[self.seed] = 0
        self.hood = Neighborhood(np.concatenate(self.nodes), hop, [], [], self._units(), is_whole=True)
        with evaluating(model):
            self.asked = asked.predicted(model(batch))

    def _units(self) -> EdgeUnits:
        triples = []
        for edges in (one for block in self.batch.blocks for one in block.relations):
            source, target = edges.indices.cpu().numpy(), edges.adjacency.targets().cpu().numpy()
            ends = source + self.first[edges.source_type], target + self.first[edges.target_type]
            triples.append(np.stack([*ends, np.full(len(source), max(edges.number, 0))]))
        distinct, count = np.unique(np.concatenate(triples, 1), axis=1, return_counts=True)
        source, target, number = distinct
        return EdgeUnits(source, target, number, count, both_ways=False)

    def explain(self, most: int) -> Explanation:
        """Leave out rows one by one, the nearest first, and all rows of each table."""
        score, every = self._score(self.batch), np.argsort(self.hood.hop, kind="stable")[1:]
        rows, table = np.sort(every[:most]), np.searchsorted(self.first, every, side="right") - 1
        notes = [] if len(rows) == len(every) else [f"the {most:,} nearest of {len(every):,} rows are left out"]
        tables, found = np.unique(table), list[Effects]()
        parts: dict[Part, tuple[Array, list[Array]]] = {
            "table": (self.first[-1] + tables, [every[table == one] for one in tables]),
            "node": (rows, list(rows[:, None])),
        }
        for part, (places, left_out) in parts.items():
            without = np.concatenate([np.empty((0, 2)), *(self._score(self._without(some)) for some in left_out)])
            found.append(Effects.left_out(part, places, score[0], without))
        return Explanation(float(score[0, 0]), found, notes)

    def _score(self, batch: TypedBatch) -> Array:
        with evaluating(self.model):
            return self.asked.scores(self.model(batch))

    def _without(self, rows: Array) -> TypedBatch:
        """Return the batch without edges from or to some rows."""
        gone = torch.zeros(int(self.first[-1]), dtype=torch.bool, device=self.batch.inputs.types[0].node_ids.device)
        gone[rows] = True
        by_type = torch.split(gone, np.diff(self.first).tolist())
        blocks = [
            replace(block, relations=[_kept(edges, by_type) for edges in block.relations])
            for block in self.batch.blocks
        ]
        return replace(self.batch, blocks=blocks)


def _kept(edges: RelationBlock, gone: Sequence[Tensor]) -> RelationBlock:
    targets = edges.adjacency.targets()
    keep = ~(gone[edges.source_type][edges.indices.long()] | gone[edges.target_type][targets])
    counts = torch.bincount(targets[keep], minlength=len(edges.indptr) - 1)
    carried = ("indices", "edge_feat", "edge_feat_cat", "edge_age", "weight")
    kept: Any = {name: table[keep] for name in carried if (table := getattr(edges, name)) is not None}
    return replace(edges, indptr=torch.cat([counts.new_zeros(1), counts.cumsum(0)]), **kept)
