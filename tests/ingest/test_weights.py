"""Weights of edges that are none, in tables; other sources' tests are with theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from configs.errors import DataError
from tasks.ingest.edges import WeightCheck
from tests.ingest.conftest import Ingest

SPLIT = {"train": 0.4, "valid": 0.3, "test": 0.3}

# The weight of the third row, what is said.
WRONG = [
    ("-1", r"e\.csv \(row 2, column w\): the weight -1 is below 0: weights are 0 or more; .*feature.* \(2 such rows\)"),
    ("1e-60", r"e\.csv \(row 2, column w\): the weight 1e-60 is not 0, and is in float32.*scale.* \(2 such rows\)"),
]


@pytest.mark.parametrize(("weight", "message"), WRONG)
def test_wrong_weights_of_tables(ingest: Ingest, folder: Path, weight: str, message: str) -> None:
    rows = [f"{i},{i + 1},{weight if i in (2, 5) else 1}" for i in range(20)]
    Path("e.csv").write_text("src,dst,w\n" + "\n".join(rows) + "\n")
    with pytest.raises(DataError, match=message):
        ingest(name="tables", task="link", edges={"files": "e.csv", "weight": "w"}, split=SPLIT)
    store = ingest(name="tables", task="link", edges={"files": "e.csv", "features": "w"}, split=SPLIT)
    assert len(store.column("edges/node__to__node", "w"))


def test_weights_that_are_all_zero(ingest: Ingest, folder: Path) -> None:
    Path("e.csv").write_text("src,dst,w\n" + "".join(f"{i},{i + 1},0\n" for i in range(20)))
    with pytest.raises(DataError, match=r"e\.csv \(column w\): all weights are 0.*leave the weights out"):
        ingest(name="tables", task="link", edges={"files": "e.csv", "weight": "w"}, split=SPLIT)


def test_weights_in_chunks() -> None:
    check = WeightCheck("w.csv.gz")
    assert check.add(np.array([0.0, 0.0])).dtype == np.float32
    with pytest.raises(
        DataError, match=r"w\.csv\.gz \(row 3, column 0\): the weight -2 is below 0.*\(2 such weights\)"
    ):
        check.add(np.array([1.0, -2.0, -3.0]))
    with pytest.raises(DataError, match="all weights are 0"):
        check.finish()
    with pytest.raises(DataError, match=r"\(row 2, column 0\): the weight 1e\+39 is more than float32 can hold"):
        check.add(np.array([1e39]))
    check.add(np.array([1e-30]))
    check.finish()
