"""A new file each day, with the same categories, new ones and fewer: the champion is compared and predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from configs.schema import Recipe
from flows.commands.runs.versions import champion_history
from tasks.storage.home import Home
from tests.publish.line import customers
from tests.publish.test_same_rows import publish_both

pytestmark = pytest.mark.usefixtures("whole_line_in_this_process")

KINDS = ("card", "cash", "sepa")
DAYS = {"same": KINDS, "new": ("atm", *KINDS, "wire"), "fewer": KINDS[1:]}


def write_day(folder: Path, seed: int, kinds: tuple[str, ...], cities: tuple[str, ...] = ("bonn", "kiel")) -> Path:
    """Accounts and transfers; a label can be told from the number and from what kinds of transfers come in."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    count, transfers = 300, 1500
    label = rng.integers(0, 2, count)
    ids = np.array([f"acc{i}" for i in range(count)])
    x = label + rng.standard_normal(count)
    rows = {"id": ids, "x": x, "city": rng.choice(cities, count), "kind": np.array(["good", "bad"])[label]}
    pq.write_table(pa.table(rows), folder / "customers.parquet")
    src, dst = rng.integers(0, count, (2, transfers))
    tells = np.array(kinds)[np.where(rng.random(transfers) < 0.8, label[dst], rng.integers(0, len(kinds), transfers))]
    pc.write_csv(pa.table({"src": ids[src], "dst": ids[dst], "how": tells}), folder / "transfers.csv")
    return folder


def recipe_of(folder: Path, model: str, **nodes: Any) -> Recipe:
    edges = {"files": str(folder / "transfers.csv"), "categorical": ["how"]}
    table = {"files": str(folder / "customers.parquet"), "features": ["x"], "label": ["kind"], **nodes}
    return customers(folder, f"model.name={model}", "train.epochs=5", edges=edges, nodes=table)


@pytest.mark.parametrize("model", ["gin", "graphsage"])
@pytest.mark.parametrize("day", DAYS)
def test_the_champion_is_compared(tracked_home: Home, tmp_path: Path, day: str, model: str) -> None:
    columns = {"categorical": ["city"]} if day == "new" else {}
    cities = ("aachen", "bonn", "kiel") if day == "new" else ("bonn", "kiel")
    first = recipe_of(write_day(tmp_path / "first", 1, KINDS), model, **columns)
    second = recipe_of(write_day(tmp_path / "second", 2, DAYS[day], cities), model, **columns)
    case = publish_both(tracked_home, first, second)
    gate = case.gate
    assert gate.why_not == ""
    assert gate.champion is not None
    assert "both measured on the same" in gate.reason
    table = case.served(tmp_path).to_pandas()
    rows = table[table.split == "valid"]
    known = case.parents[0]["ingest"].manifest.splits["train"]
    assert 0 < gate.rows + gate.trained_on == len(rows) < known
    assert np.isfinite(table.score).all()


def test_the_history_says_what_happened(tracked_home: Home, tmp_path: Path) -> None:
    first = recipe_of(write_day(tmp_path / "first", 1, KINDS), "gin")
    second = recipe_of(write_day(tmp_path / "second", 2, KINDS), "gin", features=["x"], categorical=["city"])
    publish_both(tracked_home, first, second)
    moves = champion_history(tracked_home, "customers")
    assert [move["how"] for move in moves] == ["gate", "gate"]
    assert moves[0]["reason"].startswith("the first version with valid/accuracy 0.")
    assert moves[1]["reason"].startswith(
        "nothing was compared, because version 1, champion so far, cannot score the data of customers: tables has "
        "other feature columns of node than the model was trained on: with city (categorical"
    )
