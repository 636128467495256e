"""What is recommended, and what goes with what: tasks and links, compared with loops over the same rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError, RecipeError
from configs.load import build_recipe
from tasks.storage.dataset_store import DatasetStore
from tests.ingest.conftest import Ingest
from tests.ingest.small_databases import ROWS, database, write
from tests.ingest.test_database import DAY, edges, seconds

AT = ["2022-04-01", "2022-07-01", "2022-10-01", "2023-01-01"]
WHO = [10, 11, 10, 12, 12, 13, 12, 10]
LINES = {"buy": [0, 0, 1, 2, 3, 4, 4, 5, 6, 7], "thing": list("abacbcbaba")}
CHANGED: dict[str, dict[str, Any]] = {"buys": {"who": WHO}, "lines": {**LINES, "number": [1] * 10}}


def recommending(**changes: dict[str, Any]) -> dict[str, Any]:
    """The small database, in which people are recommended things; lines are a link table of buys and things."""
    predict = {"target": {"links": "lines.thing"}, "at": AT, **changes.pop("predict", {})}
    return database(predict=predict, **changes)


def plain(moments: list[str], horizon: int = 90, *, new_only: bool = False) -> dict[tuple[int, str], set[int]]:
    """Person and moment to things, by loops."""
    who, day = WHO, [seconds(one) for one in ROWS["buys"]["day"]]
    found: dict[tuple[int, str], set[int]] = defaultdict(set)
    for moment in moments:
        start = seconds(moment)
        for buy, thing in zip(LINES["buy"], LINES["thing"], strict=True):
            person, at = who[buy] - 10, day[buy]
            if start <= at < start + horizon * DAY and seconds(ROWS["people"]["since"][person]) < start:
                found[person, moment].add("abc".index(thing))
        for buy, thing in zip(LINES["buy"], LINES["thing"], strict=True):
            if new_only and day[buy] < start:
                found[who[buy] - 10, moment].discard("abc".index(thing))
    return {key: things for key, things in found.items() if things}


def tasks(
    store: DatasetStore, number: Callable[[str], int] = lambda who: int(who) - 10
) -> dict[tuple[int, str], set[int]]:
    """The same of what was written; `number`: of an entity's name."""
    ids = [one.split("@") for one in store.read("ids/task")["original_id"].to_pylist()]
    found: dict[tuple[int, str], set[int]] = defaultdict(set)
    for task, thing, time in edges(store, "task__links__things"):
        person, moment = ids[task]
        assert time == seconds(moment)
        found[number(person), moment].add(thing)
    label = store.column("nodes/task", "label").reshape(-1)
    for place, (who, moment) in enumerate(ids):
        assert label[place] == len(found[number(who), moment])
    return dict(found)


@pytest.mark.parametrize("new_only", [False, True])
def test_links_within_the_horizon_are_what_is_right(ingest: Ingest, folder: Path, new_only: bool) -> None:
    write(folder, **CHANGED)
    store = ingest(**recommending(predict={"new_only": new_only}))
    assert tasks(store) == plain(AT, new_only=new_only)
    assert (new_only, len(plain(AT, new_only=new_only))) in ((False, 4), (True, 4))
    assert sum(map(len, plain(AT, new_only=new_only).values())) == (4 if new_only else 5)
    manifest = store.manifest
    assert (manifest.task, manifest.task_type, manifest.metric) == ("node", "ranking", "map@10")
    assert manifest.ranking.candidates == "things"
    assert (manifest.ranking.horizon, manifest.ranking.new_only) == (90 * DAY, new_only)
    # All links of all times lie between people and things, since the youngest of the rows that make one up.
    assert manifest.ranking.history == "people__lines__things"
    day = [seconds(one) for one in ROWS["buys"]["day"]]
    rows = [
        (WHO[buy] - 10, "abc".index(thing), day[buy]) for buy, thing in zip(LINES["buy"], LINES["thing"], strict=True)
    ]
    since = [seconds(one) for one in ROWS["people"]["since"]]
    assert sorted(edges(store, "people__lines__things")) == sorted((p, t, max(at, since[p])) for p, t, at in rows)


def test_a_link_table_of_both_has_its_own_edges(ingest: Ingest, folder: Path) -> None:
    """Its rows are the links; which end comes first decides which way they lead."""
    likes = {"files": "likes.csv", "time": "on", "foreign": {"thing": "things", "who": "people"}}
    at = {"target": {"links": "likes.thing"}, "at": ["2022-02-05", "2022-03-07", "2022-04-06"], "horizon": "30d"}
    likes_again = [f"2022-0{month}-{10 + i}" for month in (2, 3, 4) for i in range(2)]
    write(
        folder,
        **CHANGED,
        likes={"thing": ["a", "b", "c", "a", "b", "c"], "who": [10, 10, 11, 12, 11, 10], "on": likes_again},
    )
    store = ingest(**database(likes=likes, predict={**at, "data_end": "2022-06-01"}))
    ranking = store.manifest.ranking
    assert (ranking.history, ranking.history_is_reversed) == ("things__likes__people", True)
    assert [one.name for one in store.manifest.edge_types if "likes" in one.name] == ["things__likes__people"]
    assert tasks(store) == {
        (0, "2022-02-05"): {0, 1},
        (1, "2022-03-07"): {2},
        (2, "2022-03-07"): {0},
        (1, "2022-04-06"): {1},
        (0, "2022-04-06"): {2},
    }


def test_who_is_linked_to_nothing_is_left_out_and_counted(ingest: Ingest, folder: Path) -> None:
    write(folder, **CHANGED)
    store = ingest(**recommending(predict={"unlabelled": ["2024-01-01"]}))
    [count] = [n for what, n in store.manifest.adjusted.items() if "without a link" in what]
    assert count == 3 * len(AT) - len(plain(AT))
    ids = store.read("ids/task")["original_id"].to_pylist()
    assert ids[-4:] == ["10@2024-01-01", "11@2024-01-01", "12@2024-01-01", "13@2024-01-01"]
    assert np.isnan(store.column("nodes/task", "label")[-4:]).all()
    assert sum(store.manifest.splits.values()) == len(plain(AT))


def test_what_is_not_there_yet_is_not_right(ingest: Ingest, folder: Path) -> None:
    write(folder, **CHANGED, things={"made": ["2020-01-01", "2020-01-01", "2023-01-15"]})
    at = ["2022-04-01", "2022-10-01", "2023-01-01"]
    store = ingest(**recommending(things={"time": "made"}, predict={"at": at}))
    assert 2 in plain(at)[2, "2023-01-01"]
    assert tasks(store) == {key: things - {2} for key, things in plain(at).items()}
    with pytest.raises(DataError, match=r"at 2022-07-01 there is no row of people to be predicted: none has a row"):
        ingest(**recommending(things={"time": "made"}))


def test_tables_that_are_a_columns_values(ingest: Ingest, folder: Path) -> None:
    """With one table of who had what when there is enough to recommend by."""
    import pyarrow as pa

    from tests.ingest.small_tables import save

    rng = np.random.default_rng(0)
    who = [None if i == 5 else f"u{i}" for i in rng.integers(0, 9, 60)]
    days = [f"2022-{1 + i // 5:02d}-{1 + i % 5:02d}" for i in range(60)]
    save("seen.csv", pa.table({"user": who, "film": rng.integers(100, 107, 60), "day": days}))
    store = ingest(
        name="database",
        tables={
            "users": {"values_of": "seen.user"},
            "films": {"values_of": "seen.film"},
            "seen": {"files": "seen.csv", "time": "day", "foreign": {"user": "users", "film": "films"}},
        },
        predict={
            "table": "users",
            "target": {"links": "seen.film"},
            "at": {"first": "2022-06-01", "last": "2022-10-01", "every": "30d"},
            "horizon": "30d",
        },
    )
    users = list(dict.fromkeys(one for one in who if one is not None))
    assert store.read("ids/users")["original_id"].to_pylist() == users
    assert {one.name: len(one.features) for one in store.manifest.node_types} == {"users": 0, "films": 0, "task": 0}
    assert len(edges(store, "users__seen__films")) == sum(one is not None for one in who)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"predict": {"target": {"links": "lines"}}}, r"links: lines names no column; write links: lines\.COLUMN"),
    ({"predict": {"target": {"links": "linse.thing"}}}, r"no table 'linse' \(did you mean 'lines'\?\)"),
    ({"predict": {"target": {"links": "lines.thng"}}}, r"thng is no foreign key of lines \(did you mean 'thing'\?\)"),
    ({"predict": {"target": {"links": "lines.number"}}}, r"number is no foreign key of lines; its own are buy, thing"),
    ({"predict": {"via": "who"}}, r"predict\.via: 'who' does not lead from lines to people.*what does: buy\.who"),
    ({"predict": {"table": "things"}}, r"no foreign keys lead from lines to things"),
    ({"predict": {"metric": "rocauc"}}, r"metric: rocauc does not measure this target; take map@K"),
    ({"predict": {"metric": "map@0"}}, r"unknown metric 'map@0'"),
    ({"predict": {"metric": "map@1001"}}, r"unknown metric 'map@1001'"),
    ({"predict": {"target": {"count": "buys"}, "new_only": True}}, r"new_only is for target: \{links"),
    ({"predict": {"target": {"count": "buys"}, "metric": "recall@5"}}, r"recall@5 does not measure this target; take"),
    ({"buys": {"time": None}, "people": {"time": None}}, r"neither lines nor buys has a time"),
    ({"things": {"values_of": "lines.thing"}}, r"values_of: rows that are a column's values have nothing else; leave"),
    ({"words": {"values_of": "lines.thing"}}, r"values_of: say that lines\.thing names these rows: tables\.lines"),
    ({"words": {"values_of": "lnes.thing"}}, r"values_of: write TABLE\.COLUMN of a table with files, not lnes\.thing"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_mistakes_are_told_with_a_way_out(ingest: Ingest, folder: Path, change: dict[str, Any], message: str) -> None:
    write(folder, **CHANGED)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        ingest(**recommending(**change))


def test_several_ways_to_the_entities_want_to_be_chosen(ingest: Ingest, folder: Path) -> None:
    """A line leads to people by its buy, and by who gave it, and the buy's person to a boss, whom nobody meant."""
    write(folder, lines=CHANGED["lines"], buys={"who": WHO, "giver": [11, 12, 12, 10, 11, 11, 10, None]})
    section = recommending(buys={"foreign": {"who": "people", "giver": "people"}})
    with pytest.raises(ValueError, match=r"lines leads to people by buy\.who, buy\.giver; say which counts"):
        ingest(**section)
    section["predict"]["via"] = "buy.giver"
    store = ingest(**section)
    assert len(edges(store, "people__lines__things")) == 9  # one line's buy has no giver


BUYS = {"buy": [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 6, 7, 7], "thing": list("abacbcabcabbccca"), "number": [1] * 16}


def plain_together(by: str, days: int) -> dict[tuple[int, str], set[int]]:
    """Thing and moment to the things that go with it, by loops over pairs of rows."""
    found: dict[tuple[int, str], set[int]] = defaultdict(set)
    rows = [
        (buy if by == "buy" else WHO[buy], "abc".index(thing), seconds(ROWS["buys"]["day"][buy]))
        for buy, thing in zip(BUYS["buy"], BUYS["thing"], strict=True)
    ]
    for moment in AT:
        start = seconds(moment)
        within = [row for row in rows if start <= row[2] < start + days * DAY]
        for one in within:
            for other in within:
                if one[0] == other[0] and one[1] != other[1]:
                    found[one[1], moment].add(other[1])
    return dict(found)


def together(by: str, **changes: Any) -> dict[str, Any]:
    predict = {"table": "things", "target": {"together": "lines.thing", "by": by}, "at": AT, **changes}
    return database(predict=predict)


@pytest.mark.parametrize(("by", "history"), [("buy", "buys__lines__things"), ("buy.who", "people__lines__things")])
def test_what_is_together_within_the_horizon_is_right(ingest: Ingest, folder: Path, by: str, history: str) -> None:
    write(folder, **(CHANGED | {"lines": BUYS}))
    store = ingest(**together(by))
    expected = plain_together(by, 90)
    assert expected
    assert tasks(store, "abc".index) == expected
    [count] = [n for what, n in store.manifest.adjusted.items() if "without a link" in what]
    assert count == 3 * len(AT) - len(expected) > 0
    ranking = store.manifest.ranking
    assert (ranking.candidates, ranking.together, ranking.history) == ("things", True, history)
    # Since when: the buy's day, which lines have no time of their own besides.
    days = sorted(time for _, _, time in edges(store, history))
    people = {10 + i: seconds(day) for i, day in enumerate(ROWS["people"]["since"])}
    at = [seconds(ROWS["buys"]["day"][buy]) for buy in BUYS["buy"]]
    assert days == sorted(max(time, people[WHO[buy]]) for time, buy in zip(at, BUYS["buy"], strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": {"together": "lines.thing"}}, "together and by go together"),
        ({"target": {"none": "lines", "by": "buy"}}, "together and by go together"),
        ({"target": {"together": "lines", "by": "buy"}}, "names no column; write together: lines.COLUMN"),
        ({"target": {"together": "lines.thing", "by": "buys"}}, r"'buys' is no foreign key.*\(did you mean 'buy'\?\)"),
        ({"target": {"together": "lines.thing", "by": "thing"}}, "'thing' is no foreign key of lines by which"),
        ({"target": {"together": "lines.thing", "by": "buy.whom"}}, r"'whom' is no foreign key of buys.*'who'"),
        ({"target": {"together": "lines.buy", "by": "thing"}}, "set predict.table: buys"),
        ({"target": {"together": "line.thing", "by": "buy"}}, r"no table 'line' \(did you mean 'lines'\?\)"),
        ({"via": "buy"}, "via is for links"),
        ({"new_only": True}, "new_only is for target: {links: TABLE.COLUMN}"),
        ({"metric": "rmse"}, "does not measure this target"),
    ],
)
def test_mistakes_in_what_is_together_are_named(folder: Path, changes: dict[str, Any], message: str) -> None:
    write(folder, **CHANGED)
    given = together("buy", **changes)
    with pytest.raises(RecipeError, match=message):
        build_recipe({"name": "x", "dataset": given, "model": "pinsage"})


def test_the_shop_asks_what_is_ordered_together(tmp_path: Path) -> None:
    from tasks.ingest.synthetic.configs import SyntheticShopConfig
    from tasks.ingest.synthetic.shop import shop_database

    found = shop_database(SyntheticShopConfig(name="synthetic_shop", predict="together"), tmp_path)
    assert found.predict.table == "products"
    assert (found.predict.target.together, found.predict.target.by) == ("items.product_id", "order_id")
