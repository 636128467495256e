"""Completions of triples by a trained model, with numbers for entities and relations."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

from models.knowledge.base import KnowledgeModel, Side, made_queries
from tasks.apply.completion.asked import ENDS
from tasks.arrays import Array, blocks
from tasks.inference.triples import TripleSplits
from tasks.ranking.entities import TableBlocks, float_rows
from tasks.ranking.known_triples import KnownTriples
from tasks.ranking.queries import Queries
from tasks.ranking.rank import MEMORY, NOBODY, top_entities
from tasks.ranking.ranks import check_finite
from tasks.ranking.triples import known_of
from tasks.ranking.types import OF_RELATION, EntityTypes
from tasks.storage.manifests import SPLITS

ASKED = -1
"""Stands in a query for what is asked for."""
_PAIR_BYTES = 1 << 26
_SCORES = 1 << 21
_MOST_QUERIES = 1 << 16


@dataclass(frozen=True)
class Answers:
    """Completions, a row each: those of a query together, best first."""

    query: NDArray[np.int64]
    """Number of the query."""
    triples: NDArray[np.int64]
    """(n, 3): heads, relations, tails."""
    asked: NDArray[np.int64]
    """Place in ENDS of what was asked for."""
    rank: NDArray[np.int64]
    """From 1, among what counts."""
    score: NDArray[np.float32]
    known: NDArray[np.int64]
    """Place in SPLITS of the split that has the triple; behind them: none."""

    @classmethod
    def joined(cls, parts: list[Answers]) -> Answers:
        """Return the answers of several lists of queries, by the queries' numbers."""
        columns = {one.name: np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)}
        order = np.argsort(columns["query"], kind="stable")
        return cls(**{name: column[order] for name, column in columns.items()})


class Completer:
    """Asks one model."""

    def __init__(
        self,
        model: KnowledgeModel,
        splits: TripleSplits,
        k: int,
        *,
        marks_known: bool = False,
        types: EntityTypes | None = None,
        memory: int = MEMORY,
    ) -> None:
        """Read what is known of the graph's triples, for a model on the CPU, whose table may lie in a file.

        `k`: completions of a query, at most. `marks_known`: completions that are triples of a split are kept and
        marked, else left out. `types`: of the entities; None: all may complete. `memory`: bytes that ranking may use.
        """
        self._model, self._k, self._types, self._memory = model, k, types, memory
        self._entities = TableBlocks(model.table)
        manifest = splits.store.manifest
        self._num_relations = manifest.num_relations
        parts = [splits.triples(split) for split in SPLITS] if marks_known else []
        sizes = manifest.num_nodes, manifest.num_relations
        self._marked = [KnownTriples.of([(part.edges, part.relations)], *sizes) for part in parts]
        self._left_out = None if marks_known else splits.known

    def at_once(self, asks_relations: bool) -> int:
        """Return how many queries are asked together: their completions, or all scores, have room in memory."""
        each = max(self._k, self._num_relations if asks_relations else 1)
        return max(1, min(_MOST_QUERIES, _SCORES // each))

    def answer(self, queries: NDArray[np.int64], kinds: NDArray[np.int64] | None = None, first: int = 0) -> Answers:
        """Return the completions of queries (n, 3): heads, relations and tails, one of each ASKED.

        `kinds`, (n,): type of the entities that may complete each, as `EntityTypes` has it; None: OF_RELATION. `first`:
        number of the first query.
        """
        kinds = np.full(len(queries), OF_RELATION) if kinds is None else kinds
        parts = []
        for place, name in enumerate(ENDS):
            rows = np.flatnonzero(queries[:, place] == ASKED)
            if not len(rows):
                continue
            some = queries[rows]
            if name == "relation":
                best, scores = self._relations(some)
            else:
                best, scores = self._ends(some, kinds[rows], name)  # type: ignore[arg-type]
            parts.append(self._made(some, rows + first, place, best, scores))
        return Answers.joined(parts)

    def _ends(
        self, queries: NDArray[np.int64], kinds: NDArray[np.int64], side: Side
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the best entities and their scores, (n, k) each; NOBODY fills up."""
        most = min(self._k, self._entities.num_entities)
        ends, relations = queries[:, 2 if side == "head" else 0], queries[:, 1]
        known = None if self._left_out is None else known_of(self._left_out, ends, relations, side)
        made = self._made_queries(self._rows(ends), relations, side)
        if self._types is None:
            return top_entities(made, self._entities, most, known, memory=self._memory)
        return self._types.top(made, relations, side, self._entities, most, known, kinds, self._memory)

    def _relations(self, queries: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the best relations between two entities, likewise: all are scored as queries for the tail."""
        count, width = self._num_relations, max(self._model.config.relation_width, self._model.config.dim)
        heads, tails = self._rows(queries[:, 0]), self._rows(queries[:, 2])
        scores = np.empty((len(queries) * count, 1), np.float32)
        pair, relation = np.divmod(np.arange(len(scores)), count)
        for part in blocks(len(scores), max(1, _PAIR_BYTES // (16 * width))):
            made = self._made_queries(heads[pair[part]], relation[part], "tail")
            made.score_own(float_rows(tails[pair[part]]), scores[part])
            scores[part] = made.printed(scores[part])
        check_finite(int(np.count_nonzero(~np.isfinite(scores))), len(scores))
        table = scores.reshape(-1, count)
        numbers = np.broadcast_to(np.arange(count), table.shape)
        if self._left_out is not None:
            known = self._left_out.contain(queries[pair, 0], relation, queries[pair, 2]).reshape(table.shape)
            table, numbers = np.where(known, -np.inf, table), np.where(known, NOBODY, numbers)
        order = np.argsort(-table, axis=1, kind="stable")[:, : self._k]  # ties by the smaller number
        return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(table, order, axis=1)

    def _rows(self, nodes: Array) -> torch.Tensor:
        return self._model.table[torch.from_numpy(np.ascontiguousarray(nodes))]

    def _made_queries(self, entities: torch.Tensor, relations: Array, side: Side) -> Queries:
        with torch.no_grad():
            model, numbers = self._model, torch.from_numpy(np.ascontiguousarray(relations))
            made = made_queries(type(model), model.config, entities, model.relations, numbers, side)
        return Queries(model.config.similarity, made.vectors.contiguous(), made.scale)

    def _made(
        self,
        queries: NDArray[np.int64],
        numbers: NDArray[np.int64],
        place: int,
        best: NDArray[np.int64],
        scores: NDArray[np.float32],
    ) -> Answers:
        row, rank = np.nonzero(best != NOBODY)
        triples = queries[row]
        triples[:, place] = best[row, rank]
        known = np.full(len(row), len(SPLITS), np.int64)
        for code, split in reversed(list(enumerate(self._marked))):
            known[split.contain(*triples.T)] = code
        asked = np.full(len(row), place, np.int64)
        return Answers(numbers[row], triples, asked, rank + 1, scores[row, rank].astype(np.float32), known)
