"""What an explanation says: rows of a file under the users' own ids, sentences, and a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.arrays import Array
from tasks.explain.base import Effects, Explanation
from tasks.explain.neighborhood import Neighborhood

_MOST, _LEAST_SHARE = 4, 0.02
"""Sentences of each part; effects below this share of the largest need none."""


@dataclass(frozen=True)
class Words:
    """What the parts of a neighbourhood are called."""

    nodes: pa.Array
    features: Sequence[str]
    relations: Sequence[str]
    either_way: frozenset[str] = frozenset()
    """Relations of whose edges the direction is not known: the graph has their reverses as the same."""


@dataclass(frozen=True)
class Answer:
    """Why one score is what it is."""

    asked: dict[str, Any]
    """Columns that name what was asked about."""
    said: str
    """What the score is of: `probability of fraud`."""
    explanation: Explanation
    method: str
    hood: Neighborhood
    words: Words

    @property
    def title(self) -> str:
        """What was asked about."""
        return str(self.asked.get("edge_id") or " ".join(map(str, self.asked.values())))

    @property
    def head(self) -> str:
        """The sentence that the others are about."""
        return f"{self.title}: {self.said} {figure(self.explanation.score)}"

    @cached_property
    def table(self) -> pa.Table:
        """The effects as rows, the strongest of each part first."""
        table = pa.concat_tables([self._rows(effects) for effects in self.explanation.effects])
        fixed = {**self.asked, "score": self.explanation.score, "method": self.method}
        columns = {name: pa.repeat(value, len(table)) for name, value in fixed.items()}
        own = {name: table[name] for name in table.column_names}
        return pa.table({**{name: columns.pop(name) for name in self.asked}, **own, **columns})

    def _rows(self, effects: Effects) -> pa.Table:
        effects, words, units = effects.strongest(), self.words, self.hood.units
        place, of_edge = effects.place, effects.part.startswith("edge")
        source, target = (units.source[place], units.target[place]) if of_edge else (place, None)
        count = units.count[place] if effects.part == "edge" else effects.count

        def column(values: Array | None, kind: Any, known: bool | Array = True) -> pa.Array:
            if values is None:
                return pa.nulls(len(place), kind)
            return pa.array(values, kind, mask=~np.broadcast_to(known, len(place)))

        def named(numbers: Array | None, names: pa.Array) -> pa.Array:
            return names.take(column(numbers, pa.int64(), place >= 0))

        return pa.table(
            {
                "part": pa.repeat(effects.part.removeprefix("edge "), len(place)),
                "source": named(source, words.nodes),
                "target": named(target, words.nodes),
                "relation": named(units.relation[place] if of_edge else None, pa.array(words.relations, pa.string())),
                "feature": pa.array(words.features, pa.string()).take(column(effects.feature, pa.int64())),
                "count": column(count, pa.int64()),
                "effect": column(effects.effect, pa.float64()),
                "effect_log_odds": column(effects.odds, pa.float64()),
                "score_without": column(effects.without, pa.float64()),
            }
        )

    def sentences(self) -> list[str]:
        """Say what the strongest parts did: tables and neighbours, edges that tell more than these, features."""
        asked = set(self.asked.values())
        rows = sorted(self.table.to_pylist(), key=lambda row: (row["part"] == "edge", -_strength(row)))
        largest, of_node = max((abs(row["effect"]) for row in rows), default=0), dict[Any, float]()
        told: dict[str, list[str]] = {"table": [], "node": [], "edge": [], "feature": []}
        for row in rows:
            part, source, effect = row["part"], row["source"], row["effect"]
            if part == "node":
                of_node[source] = effect
            if abs(effect) < _LEAST_SHARE * largest or not effect or len(told[part]) == _MOST:
                continue
            ends = {source, row["target"]}
            if part == "edge" and ends & asked and any(abs(of_node.get(end, 9e9) - effect) < 1e-6 for end in ends):
                continue  # leaving the neighbour out says it already
            what = self._what(row)
            if row["score_without"] is None:
                told[part].append(f"{what}: {'+' if effect > 0 else ''}{figure(effect)}")
            elif part == "feature":
                told[part].append(f"with {what} as usual: {figure(row['score_without'])}")
            else:
                told[part].append(f"without {what}: {figure(row['score_without'])}")
        return [*chain(*told.values())] or ["nothing that can be left out moves the score"]

    def _what(self, row: dict[str, Any]) -> str:
        source, count = row["source"], row["count"]
        if row["part"] == "node":
            return f"{source} and its {count:,} edge{'s' * (count > 1)}" if count else str(source)
        if row["part"] == "table":
            return str(source)
        kind = f"{row['relation']} edge" if len(self.words.relations) > 1 else "edge"
        kind = f"{count:,} {kind}s" if count and count > 1 else kind
        way = ("between", "and") if row["relation"] in self.words.either_way else ("from", "to")
        edge = f"the {kind} {way[0]} {source} {way[1]} {row['target']}"
        if row["part"] == "edge":
            return edge
        of = edge if row["target"] is not None else source
        return row["feature"] if of in (None, self.asked.get("node")) else f"{row['feature']} of {of}"


def _strength(row: dict[str, Any]) -> float:
    return abs(row["effect"] if row["effect_log_odds"] is None else row["effect_log_odds"])


def relation_words(edge_types: Sequence[str]) -> list[str]:
    """Return the relations' own names: of `account__transfer__account` the middle."""
    return [name.split("__")[1] if name.count("__") >= 2 else name for name in edge_types]


def figure(value: float) -> str:
    """Return a score in few digits: .93, 17.2, 1.3e-05."""
    text = f"{value:.3f}" if 0.001 <= abs(value) < 10 or value == 0 else f"{value:.3g}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
