"""Knowledge graphs that begin with the rows of an earlier snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe
from tasks.stage import Parent
from tasks.storage.artifacts import MANIFEST_NAME
from tasks.storage.home import Home
from tasks.storage.ids import relation_names
from tasks.train.job import BEST, Job, WarmStart
from tasks.train.knowledge.engine import TripleEngine
from tasks.train.knowledge.entities import GridEntities
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tests.preprocess.snapshot_tables import runner
from tests.preprocess.test_snapshot_triples import rows_of, write
from tests.support import as_partition
from tests.train.in_process import own_settings, run_engine

MODEL = {"name": "complex", "dim": 8, "inverse_relations": True}


@pytest.fixture
def snapshots(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """Two moments of the same triples."""
    monkeypatch.chdir(tmp_path)
    section, run = write(rows_of(4)), runner(home)
    found = {year: run(section, f"snapshot.as_of={year}", symmetrize=False) for year in (5, 10)}
    for snapshot in found.values():
        made = as_partition(Parent(snapshot.manifest, snapshot.graph.folder))
        (made.folder / MANIFEST_NAME).chmod(0o644)
        (made.folder / MANIFEST_NAME).write_text(made.manifest.model_dump_json())
    return found


def engine(found: Any, work: Path, warm: WarmStart | None = None, **changes: Any) -> TripleEngine:
    work.mkdir()
    train = {"epochs": 3, "eval_every": 1, "threads": 1, "loader": {"batch_size": 32, "negatives": 8}, **changes}
    asked = build_recipe({"name": "demo", "dataset": "synthetic_triples", "model": MODEL, "train": train})
    with own_settings():
        return TripleEngine(Job.make(asked, found.graph.folder, "x", work, warm), Ranks())


def finished(found: Any, work: Path) -> Path:
    made = engine(found, work)
    with own_settings():
        run_engine(made)
        made.finish()
    return work / BEST


def earlier(found: Any, best: Path) -> WarmStart:
    return WarmStart("then", "key", best, found.graph.folder, found.dataset.folder, found.dataset.folder)


def rows_by_name(found: Any, made: TripleEngine) -> dict[str, Any]:
    rows = np.empty((len(found.names), 8), np.float32)
    GridEntities(made.grid).copy_to(rows)
    return dict(zip(found.names, rows, strict=True))


@pytest.mark.parametrize("blocks", [1, 3])
def test_what_was_known_keeps_its_rows(snapshots: dict[int, Any], tmp_path: Path, blocks: int) -> None:
    best = finished(snapshots[5], tmp_path / "then")
    state = checkpoint.load(best)["model"]
    (name,) = (name for name in state if name.startswith("encoder."))
    known = dict(zip(snapshots[5].names, state[name].numpy(), strict=True))
    strategy = {"name": "block_grid", "blocks": blocks}
    made = engine(snapshots[10], tmp_path / "now", earlier(snapshots[5], best), strategy=strategy)
    now, cold = (
        rows_by_name(snapshots[10], one) for one in (made, engine(snapshots[10], tmp_path / "cold", strategy=strategy))
    )
    assert made.progress.cold_because == ""
    assert 0 < len(known) < len(now)
    for entity, row in now.items():
        assert np.array_equal(row, known.get(entity, cold[entity])), entity
    assert np.array_equal(made.relations.rows(), state["relations"])
    assert len(state["relations"]) == 2 * len(relation_names(snapshots[10].dataset))


def test_rows_that_learnt_what_is_held_out_now_are_not_taken(snapshots: dict[int, Any], tmp_path: Path) -> None:
    best = finished(snapshots[10], tmp_path / "later")
    made = engine(snapshots[5], tmp_path / "now", earlier(snapshots[10], best))
    assert "triples that it learnt from are in the valid split now" in str(made.progress.cold_because)
    cold = rows_by_name(snapshots[5], engine(snapshots[5], tmp_path / "cold"))
    assert all(np.array_equal(row, cold[name]) for name, row in rows_by_name(snapshots[5], made).items())


def test_rows_of_another_width_do_not_fit(
    snapshots: dict[int, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = finished(snapshots[5], tmp_path / "then")
    monkeypatch.setitem(MODEL, "dim", 12)
    made = engine(snapshots[10], tmp_path / "now", earlier(snapshots[5], best))
    assert made.progress.cold_because == "rows of entities have 8 numbers and those of relations 8, here 12 and 12"


def test_vectors_of_nodes_begin_afresh_and_say_so() -> None:
    with pytest.raises(RecipeError, match="learnt afresh in every snapshot"):
        build_recipe({"name": "demo", "dataset": "synthetic", "model": "skipgram", "snapshot": {"warm_start": True}})
