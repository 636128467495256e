"""What an explanation says: rows of a file under the users' own ids, sentences, and a drawing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.arrays import Array
from tasks.explain.base import Effects, Explanation
from tasks.explain.neighborhood import Neighborhood

_MOST, _LEAST_SHARE = 4, 0.02
"""Reasons of each part; effects below this share of the largest need none."""
_NEAR_END = 0.01
"""From 0 or 1: probabilities that lie so near differ by their odds more than by themselves."""


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
    ends: Array
    """int64 (1,) or (2,): local numbers of the node, or of both ends of the pair, edge or triple."""
    directed: bool = False
    """Whether such a pair goes from one end to the other."""

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
        effects = self.explanation.effects
        parts = [one.part.removeprefix("edge ") for one in effects]
        part = np.repeat([parts.index(name) for name in parts], [len(one.place) for one in effects])
        order = np.lexsort([-np.abs(np.concatenate([one.moved for one in effects])), part])
        table = pa.concat_tables([self._rows(one) for one in effects]).take(order)
        fixed = {**self.asked, "score": self.explanation.score, "method": self.method}
        columns = {name: pa.repeat(value, len(table)) for name, value in fixed.items()}
        own = {name: table[name] for name in table.column_names}
        return pa.table({**{name: columns.pop(name) for name in self.asked}, **own, **columns})

    def _rows(self, effects: Effects) -> pa.Table:
        words, units = self.words, self.hood.units
        place, of_edge = effects.place, effects.part.startswith("edge")
        source, target = (units.source[place], units.target[place]) if of_edge else (place, None)
        count = units.count[place] if of_edge else effects.count

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
                "count": column(count, pa.int64(), place >= 0),
                "degree": column(effects.degree, pa.int64()),
                "effect": column(effects.effect, pa.float64()),
                "effect_log_odds": column(effects.odds, pa.float64()),
                "score_without": column(effects.without, pa.float64()),
            }
        )

    def reasons(self, most: int = _MOST) -> list[tuple[str, str]]:
        """Return what moved the score, and the score without it or by how much: `without acc-1`, `.412`.

        At most so many tables, neighbours, edges that tell more than these, and features; the strongest of all first.
        """
        rows = sorted(self.table.to_pylist(), key=lambda row: (row["part"] == "edge", -abs(moved(row))))
        largest, of_node = max((abs(moved(row)) for row in rows), default=0), dict[Any, float]()
        told, reasons = Counter[str](), list[tuple[float, str, str]]()
        for row in rows:
            part, effect = row["part"], moved(row)
            if part == "node":
                of_node[row["source"]] = effect
            if abs(effect) < _LEAST_SHARE * largest or not effect or told[part] == most:
                continue
            ends = row["source"], row["target"]
            if part == "edge" and any(math.isclose(of_node.get(end, math.nan), effect, rel_tol=1e-3) for end in ends):
                continue  # leaving the neighbour out says it already
            told[part] += 1
            what, outcome = self._what(row), signed(effect)
            if row["score_without"] is not None:
                what = f"with {what} as usual" if part == "feature" else f"without {what}"
                outcome = figure(row["score_without"])
                if row["effect_log_odds"] is not None and not _NEAR_END < row["score"] < 1 - _NEAR_END:
                    outcome += f" (log odds {signed(-effect)})"
            reasons.append((abs(effect), what, outcome))
        return [(what, outcome) for _, what, outcome in sorted(reasons, key=lambda reason: -reason[0])]

    def sentences(self) -> list[str]:
        """Say the same in a sentence each."""
        told = [f"{what}: {outcome}" for what, outcome in self.reasons()]
        return told or ["nothing that can be left out moves the score"]

    def _what(self, row: dict[str, Any]) -> str:
        source, count = row["source"], row["count"]
        if row["part"] == "node":
            in_reach = " in reach" * (count != row["degree"])
            return f"{source} and its {count:,} edge{'s' * (count > 1)}{in_reach}" if count else str(source)
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


def moved(row: dict[str, Any]) -> float:
    """Return by how much a part of the table moved the score: of probabilities the logarithm of their odds."""
    odds: float | None = row["effect_log_odds"]
    return float(row["effect"] if odds is None else odds)


def relation_words(edge_types: Sequence[str]) -> list[str]:
    """Return the relations' own names: of `account__transfer__account` the middle."""
    return [name.split("__")[1] if name.count("__") >= 2 else name for name in edge_types]


def figure(value: float) -> str:
    """Return a score in few digits, as many as tell it from 0 and 1: .930, 17.2, 1.3e-05, .99993, 1 - 3.0e-08."""
    if 0 < 1 - value < _NEAR_END:
        beside = 1 - value
        digits = 1 - math.floor(math.log10(beside))
        text = f"{value:.{digits}f}" if beside > 1e-6 else f"1 - {beside:.1e}"
    else:
        text = f"{value:.3f}" if 0.1 <= abs(value) < 10 or value == 0 else f"{value:.3g}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def signed(value: float) -> str:
    """Return a difference in few digits: +.412, -2.10."""
    return f"{'+' if value > 0 else ''}{figure(value)}"
