"""From queries to a file or a table of completions, under the users' own names.

Columns: `query`, its number from 0 in the file's order; `head`, `relation`, `tail`; `asked`, which of the three was;
`rank` from 1, among what counts; `score`, raw; `probability` that the triple is among the recorded ones
(`tasks.ranking.calibration`), null of relations; `known`, the split that has the triple, else null.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from configs.errors import RecipeError
from models.knowledge.base import KnowledgeModel
from tasks.apply.completion.answers import ASKED, Answers, Completer
from tasks.apply.completion.asked import ENDS, CompletionRequest
from tasks.apply.completion.names import (
    RELATIONS,
    TYPE,
    TYPES,
    EntityNames,
    QueryTexts,
    Refusal,
    find_names,
    read_queries,
)
from tasks.arrays import blocks
from tasks.evaluators.metrics import sigmoid
from tasks.inference.opened import Opened
from tasks.inference.triples import TripleSplits
from tasks.ranking.types import ANY, OF_RELATION, EntityTypes
from tasks.storage.ids import relation_names
from tasks.storage.manifests import SPLITS
from tasks.storage.outputs.tables import CsvOutput, ParquetOutput
from tasks.supervise import report_progress

_ASKED = pa.array(ENDS)
_NEVER_LEARNT = "its row was never learnt, so these completions mean little"
_KNOWN = pa.array([*SPLITS, None], pa.string())


class Completion:
    """Answers what is asked of one model on its graph."""

    def __init__(self, opened: Opened, asked: CompletionRequest, queries: Path | None) -> None:
        """Look up what the queries name. Raises UserError: it is not in the graph."""
        assert isinstance(opened.model, KnowledgeModel)
        self._model, self._manifest = opened.model, opened.store.manifest
        self._splits = TripleSplits(opened.store)
        self._entities = EntityNames(opened.ids, opened.dataset, self._manifest.node_types)
        self._relations = relation_names(opened.dataset)
        self._asked = asked
        if queries is None:
            columns = {name: pa.array([getattr(asked, name)], pa.string()) for name in ENDS}
            self._texts = QueryTexts(columns, pa.nulls(1, pa.string()))
        else:
            self._texts = read_queries(queries)
        self._queries, self._kinds = self._numbers(self._texts), self._kinds_of(self._texts)
        types = None
        if self._entities.are_typed:
            train, count = self._splits.triples("train"), len(self._manifest.node_types)
            types = EntityTypes(opened.ids.type_numbers(), count, train, self._manifest.num_relations)
        self._completer = Completer(self._model, self._splits, asked.most, marks_known=asked.marks_known, types=types)

    def _numbers(self, texts: QueryTexts) -> NDArray[np.int64]:
        """Return the queries as numbers, (n, 3)."""
        numbers = np.full((len(texts), len(ENDS)), ASKED, np.int64)
        for place, name in enumerate(ENDS):
            rows = np.flatnonzero(np.asarray(texts.columns[name].is_valid()))
            given, refusal = texts.columns[name].take(pa.array(rows)), texts.refusals(name, rows)
            if name == "relation":
                numbers[rows, place] = find_names(given, self._relations, RELATIONS, refusal)
            else:
                numbers[rows, place] = self._entities.find(given, refusal)
        return numbers

    def _kinds_of(self, texts: QueryTexts) -> NDArray[np.int64]:
        """Return the type of what may complete each query, (n,), as `EntityTypes` has it."""
        types, asked = pa.array(self._manifest.node_types), self._asked
        kinds = np.full(len(texts), ANY if asked.any_type else OF_RELATION, np.int64)
        if asked.type is not None:
            refusal: Refusal = lambda _, message: RecipeError(f"--type {asked.type!r} {message}")  # noqa: E731
            kinds[:] = find_names(pa.array([asked.type]), types, TYPES, refusal)
        rows = np.flatnonzero(np.asarray(texts.types.is_valid()))
        kinds[rows] = find_names(texts.types.take(pa.array(rows)), types, TYPES, texts.refusals(TYPE, rows))
        return kinds

    def warnings(self) -> list[str]:
        """Return what to know of the queries: those of what training never saw."""
        is_seen = {"relation": np.zeros(self._manifest.num_relations, np.bool_)}
        is_seen["relation"][self._splits.triples("train").relations] = True
        is_seen["head"] = is_seen["tail"] = self._splits.is_seen
        of_entities, of_relations = self._manifest.feature_dim, self._manifest.relation_feature_dim
        widths = {"head": of_entities, "relation": of_relations, "tail": of_entities}
        has_features = {name: width > 0 and self._model.config.features for name, width in widths.items()}
        warnings = []
        for place, name in enumerate(ENDS):
            given = self._queries[:, place]
            unseen = np.flatnonzero((given != ASKED) & ~is_seen[name][np.maximum(given, 0)])
            if not len(unseen):
                continue
            text = self._texts.columns[name][int(unseen[0])].as_py()
            others = f" (and {len(unseen) - 1:,} more queries' {name}s)" if len(unseen) > 1 else ""
            warnings.append(
                f"{name} {text!r}{others} is in no training triple: "
                + ("only its features are known" if has_features[name] else _NEVER_LEARNT)
            )
        return warnings

    def tables(self) -> Iterator[pa.Table]:
        """Yield the completions, those of some queries at a time."""
        asks_relations = bool((self._queries[:, 1] == ASKED).any())
        for part in blocks(len(self._queries), self._completer.at_once(asks_relations)):
            yield self._named(self._completer.answer(self._queries[part], self._kinds[part], part.start))
            report_progress(part.stop, len(self._queries), "queries", "predictions")

    def _named(self, answers: Answers) -> pa.Table:
        heads, relations, tails = answers.triples.T
        asks_relation = answers.asked == ENDS.index("relation")
        ends = np.where(answers.asked == ENDS.index("tail"), 1, 0)
        slope, shift = self._model.calibration[relations, ends].double().numpy().T
        probability = sigmoid(slope * answers.score + shift)
        return pa.table(
            {
                "query": answers.query,
                "head": self._entities.of(heads),
                "relation": self._relations.take(pa.array(relations)),
                "tail": self._entities.of(tails),
                "asked": _ASKED.take(pa.array(answers.asked)),
                "rank": pa.array(answers.rank, pa.int32()),
                "score": answers.score,
                "probability": pa.array(probability, mask=asks_relation),
                "known": _KNOWN.take(pa.array(answers.known)),
            }
        )

    def write(self, path: Path) -> dict[str, Any]:
        """Write Parquet or CSV, as the ending says; returns what a `ServeJob` does."""
        with ParquetOutput(path) if path.suffix == ".parquet" else CsvOutput(path) as writer:
            for table in self.tables():
                writer.write(table)
        written = {"files": [path.name], "rows": writer.num_rows, "queries": len(self._queries)}
        return {**written, "warnings": self.warnings()}

    def rows(self) -> dict[str, Any]:
        """Return the completions themselves: of one query on the command line."""
        rows = pa.concat_tables(self.tables()).drop_columns(["query"]).to_pylist()
        asked = next(name for name in ENDS if getattr(self._asked, name) is None)
        warnings = self.warnings()
        fitting = "" if self._asked.type is None else f" of type {self._asked.type}"
        if not rows and self._asked.marks_known:
            warnings.append(f"no completion is left: the graph has no entity{fitting}")
        elif not rows:
            limits_types = self._entities.are_typed and self._asked.relation is not None and not self._asked.any_type
            others = ", --any-type others" if limits_types else ""
            warnings.append(
                f"no completion{fitting} is left that is not a known triple; --known mark shows those{others}"
            )
        return {"files": [], "rows": len(rows), "asked": asked, "completions": rows, "warnings": warnings}
