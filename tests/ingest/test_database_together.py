"""What goes with what: tasks and their links compared with loops over the same rows, and mistakes in the options."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe
from tests.ingest.conftest import Ingest
from tests.ingest.small_databases import ROWS, database, write
from tests.ingest.test_database import DAY, edges, seconds
from tests.ingest.test_database_links import CHANGED, WHO

AT = ["2022-04-01", "2022-07-01", "2022-10-01", "2023-01-01"]
BUYS = {"buy": [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 6, 7, 7], "thing": list("abacbcabcabbccca"), "number": [1] * 16}


def plain(by: str, days: int) -> dict[tuple[int, str], set[int]]:
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


def tasks(store: Any) -> dict[tuple[int, str], set[int]]:
    ids = [one.split("@") for one in store.read("ids/task")["original_id"].to_pylist()]
    found: dict[tuple[int, str], set[int]] = defaultdict(set)
    for task, thing, time in edges(store, "task__links__things"):
        name, moment = ids[task]
        assert time == seconds(moment)
        found["abc".index(name), moment].add(thing)
    return dict(found)


def together(by: str, **changes: Any) -> dict[str, Any]:
    predict = {"table": "things", "target": {"together": "lines.thing", "by": by}, "at": AT, **changes}
    return database(predict=predict)


@pytest.mark.parametrize(("by", "history"), [("buy", "buys__lines__things"), ("buy.who", "people__lines__things")])
def test_what_is_together_within_the_horizon_is_right(ingest: Ingest, folder: Path, by: str, history: str) -> None:
    write(folder, **(CHANGED | {"lines": BUYS}))
    store = ingest(**together(by))
    wanted = plain(by, 90)
    assert wanted
    assert tasks(store) == wanted
    ranking = store.manifest.ranking
    assert ranking is not None
    assert (ranking.candidates, ranking.together, ranking.history) == ("things", True, history)
    label = store.column("nodes/task", "label").reshape(-1)
    assert sorted(label.tolist()) == sorted(float(len(one)) for one in wanted.values())
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
def test_mistakes_in_the_options_are_named(folder: Path, changes: dict[str, Any], message: str) -> None:
    write(folder, **CHANGED)
    given = together("buy", **changes)
    with pytest.raises(RecipeError, match=message):
        build_recipe({"name": "x", "dataset": given, "model": "pinsage"})


def test_what_nothing_goes_with_is_left_out(ingest: Ingest, folder: Path) -> None:
    write(folder, **(CHANGED | {"lines": BUYS}))
    store = ingest(**together("buy"))
    [count] = [n for what, n in store.manifest.adjusted.items() if "without a link" in what]
    assert count == 3 * len(AT) - len(tasks(store))
    assert count > 0
    assert np.isfinite(store.column("nodes/task", "label")).all()


def test_the_shop_asks_what_is_ordered_together(tmp_path: Path) -> None:
    from tasks.ingest.synthetic.configs import SyntheticShopConfig
    from tasks.ingest.synthetic.shop import shop_database

    found = shop_database(SyntheticShopConfig(name="synthetic_shop", predict="together"), tmp_path)
    assert found.predict.table == "products"
    assert found.predict.target is not None
    assert (found.predict.target.together, found.predict.target.by) == ("items.product_id", "order_id")
