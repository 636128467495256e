"""What a page draws and says of explanations: arrows, what is asked about, labels, and figures near 0 and 1."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.explain.answers import Answer, Words, figure
from tasks.explain.base import Effects, Explanation
from tasks.explain.neighborhood import EdgeUnits, Neighborhood
from tasks.explain.page import draw, render_page

RELATIONS = ["pays", "knows"]


def answer(edges: list[tuple[int, int, int]], hop: list[int], ends: list[int], score: float = 0.5) -> Answer:
    """Edges as (source, target, relation), one of which nobody knows the direction of: knows."""
    names = [f"customer-{number:031d}" for number in range(len(hop))]
    source, target, relation = (np.array(column) for column in zip(*edges, strict=True))
    units = EdgeUnits(source, target, relation, np.ones(len(edges), np.int64), both_ways=False)
    odds = np.linspace(-1, 2, len(edges))
    margin = np.log(score) - np.log1p(-score)
    without = 1 / (1 + np.exp(odds - margin))
    effects = Effects("edge", score - without, np.arange(len(edges)), without=without, odds=odds)
    return Answer(
        asked=dict(zip(("source_node", "target_node"), (names[end] for end in ends), strict=False)),
        said="probability of yes",
        explanation=Explanation(score, [effects]),
        method="removal",
        hood=Neighborhood(np.arange(len(hop)), np.array(hop), [], [], units, True),
        words=Words(pa.array(names), [], RELATIONS, frozenset({"knows"})),
        ends=np.array(ends),
        directed=True,
    )


def star(leaves: int) -> Answer:
    return answer([(leaf, 0, 0) for leaf in range(1, leaves + 1)], [0] + [1] * leaves, [0])


def numbers(path: str) -> list[float]:
    return [float(text) for text in re.findall(r"-?[\d.]+", path)]


def test_edges_have_arrows_where_their_direction_is_known() -> None:
    lines = draw(answer([(1, 0, 0), (2, 0, 1)], [0, 1, 1], [0]))["lines"]
    assert {bool(one["head"]) for one in lines if " to " in one["title"]} == {True}
    assert {bool(one["head"]) for one in lines if " and " in one["title"]} == {False}
    [pays] = [one for one in lines if one["head"]]
    tip, start = numbers(pays["head"])[:2], numbers(pays["path"])[:2]
    assert np.hypot(*tip) < np.hypot(*start), "the middle is the target"


def test_an_asked_pair_is_drawn_among_the_edges_beside_it() -> None:
    drawn = draw(answer([(0, 1, 0), (1, 0, 0), (0, 1, 1), (0, 0, 0), (2, 1, 0)], [0, 0, 1], [0, 1]))
    [asked] = [one for one in drawn["lines"] if one["kind"] == "asked"]
    assert asked["head"]
    paths = [one["path"] for one in drawn["lines"]]
    assert len({*paths}) == 6, "none hides another"
    assert all(np.ptp(numbers(path)[::2]) + np.ptp(numbers(path)[1::2]) > 20 for path in paths), "loops are seen"
    assert not [one for one in draw(star(1))["lines"] if one["kind"] == "asked"]


@pytest.mark.parametrize("leaves", [1, 8, 60])
def test_labels_are_short_and_lie_on_nothing(leaves: int) -> None:
    drawn = draw(star(leaves))
    labels: list[dict[str, Any]] = drawn["labels"]
    assert labels[0]["title"] == f"customer-{0:031d}", "what is asked about comes first"
    assert all(len(one["text"]) <= 14 and "…" in one["text"] for one in labels)
    assert len({one["text"] for one in labels}) == len(labels) >= min(leaves + 1, 12)
    for one, other in itertools.combinations(labels, 2):
        assert abs(one["y"] - other["y"]) >= 15 or abs(one["x"] - other["x"]) >= 8 * 14
    for label, point in itertools.product(labels, drawn["points"]):
        across, down = abs(label["x"] - point["x"]), abs(label["y"] - 4 - point["y"])
        assert across >= 8 * 7 or down >= point["radius"]


@pytest.mark.parametrize("score", [1e-5, 0.5, 1 - 1e-5, 1 - 1e-12])
def test_reasons_can_be_told_apart_near_0_and_1(score: float) -> None:
    found = answer([(leaf, 0, 0) for leaf in range(1, 5)], [0] + [1] * 4, [0], score)
    outcomes = [outcome for _, outcome in found.reasons()]
    assert len({*outcomes}) == len(outcomes) == 3, "one of four moves nothing"
    assert all(("log odds" in one) == (score != 0.5) for one in outcomes)
    page = render_page([found], "Why?", "removal", 0)
    assert all(one in page for one in outcomes)


def test_the_strongest_cause_comes_first_whatever_its_part() -> None:
    one = answer([(1, 0, 0), (2, 0, 0), (3, 0, 1)], [0, 1, 1, 1], [0])
    [edges] = one.explanation.effects
    units = replace(one.hood.units, count=np.array([1, 3, 7]))

    def effects(part: Any, odds: list[float], place: list[int], **more: Any) -> Effects:
        odd = np.array(odds)
        return Effects(part, odd / 9, np.array(place), without=0.5 - odd / 9, odds=odd, **more)

    nodes = effects("node", [-0.9, 0.2], [1, 2], count=np.array([7, 7]), degree=np.array([24, 7]))
    own = effects("feature", [0.05, -3.0], [0, 0], feature=np.array([0, 1]))
    carried = effects("edge feature", [0.4, -5.0], [-1, 2], feature=np.array([2, 2]))
    odds = replace(edges, odds=np.array([0.3, 0.6, -1.5]))
    words = replace(one.words, nodes=pa.array(["a", "b", "c", "d"]), features=["age", "risk", "amount"])
    found = Explanation(0.5, [odds, nodes, own, carried])
    told = replace(one, hood=replace(one.hood, units=units), words=words, explanation=found, asked={"node": "a"})
    table = told.table.to_pylist()
    assert [row["part"] for row in table] == ["edge"] * 3 + ["node"] * 2 + ["feature"] * 4
    assert [row["effect_log_odds"] for row in table] == [-1.5, 0.6, 0.3, -0.9, 0.2, -5.0, -3.0, 0.4, 0.05]
    assert [row["count"] for row in table] == [7, 3, 1, 7, 7, 7, None, None, None]
    assert [what for what, _ in told.reasons()] == [
        "with amount of the 7 knows edges between d and a as usual",
        "with risk as usual",
        "without the 7 knows edges between d and a",
        "without b and its 7 edges in reach",
        "without the 3 pays edges from c to a",
        "with amount as usual",
        "without the pays edge from b to a",
        "without c and its 7 edges",
    ]
    assert [what for what, _ in told.reasons(1)] == [
        "with amount of the 7 knows edges between d and a as usual",
        "without the 7 knows edges between d and a",
        "without b and its 7 edges in reach",
    ]


def test_ids_may_be_numbers() -> None:
    one = answer([(1, 0, 0)], [0, 1], [0])
    numbered = replace(one, words=replace(one.words, nodes=pa.array([7, 1003])), asked={"node": 7})
    assert [label["text"] for label in draw(numbered)["labels"]] == ["7", "1003"]
    assert ">1003<" in render_page([numbered], "Why?", "removal", 0)


def test_figures_tell_scores_from_0_and_1() -> None:
    values = [0, 1, 0.5, 0.0123, 1.3e-5, 0.99931, 1 - 3e-8, -0.25, 17.23]
    texts = [".000", "1.000", ".500", ".0123", "1.3e-05", ".99931", "1 - 3.0e-08", "-.250", "17.2"]
    assert [figure(value) for value in values] == texts
