"""Every source is known by its content: a change of any file is seen, a move is not, and no change slips in between."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from configs.load import build_recipe
from configs.registry import DATASETS
from flows.commands.recipes.plan import make_plan
from flows.terminal.selection import select_stages
from tasks.ingest.graph_tables import ingest as table_ingest
from tasks.ingest.stage import STAGE
from tasks.stage import run_stage
from tasks.storage.home import Home
from tasks.storage.home_files.source_digests import SourceDigests
from tests.flows.conftest import TINY
from tests.ingest.conftest import Ingest
from tests.ingest.ogb_folders import link_folder, node_folder
from tests.test_source_digests import SlowReading

OLD = 10**18  # ns: some day in 2001
NUM = 30


def lines(*rows: object) -> str:
    return "".join(f"{row}\n" for row in rows)


def make_tables(folder: Path) -> dict[str, Any]:
    """Files of every kind that the data set `tables` reads."""
    (folder / "edges").mkdir(parents=True)
    (folder / "nodes.csv").write_text(lines("id,x", *(f"{i},{i % 9}" for i in range(NUM))))
    np.save(folder / "vectors.npy", np.ones((NUM, 2), np.float32))
    (folder / "edges/1.csv").write_text(lines("src,dst", *(f"{i},{(i + 1) % NUM}" for i in range(NUM))))
    (folder / "edges/2.csv").write_text(lines("src,dst", "0,7", "3,9"))
    (folder / "labels.csv").write_text(lines("id,label", *(f"{i},{i % 2}" for i in range(NUM))))
    for at, split in enumerate(("train", "valid", "test")):
        (folder / f"{split}.csv").write_text(lines(*range(10 * at, 10 * at + 10)))
    return {
        "name": "tables",
        "nodes": {"files": str(folder / "nodes.csv"), "features": "x", "feature_file": str(folder / "vectors.npy")},
        "edges": {"files": str(folder / "edges")},
        "labels": {"files": str(folder / "labels.csv")},
        "split": {"by": "files", "files": {name: str(folder / f"{name}.csv") for name in ("train", "valid", "test")}},
    }


def make_npz(folder: Path) -> dict[str, Any]:
    """A graph in one archive."""
    folder.mkdir(parents=True)
    arrays: dict[str, Any] = dict(zip(("train", "valid", "test"), np.split(np.arange(NUM), 3), strict=True))
    edges = np.random.default_rng(0).integers(0, NUM, (2, 60))
    np.savez(folder / "g.npz", edge_index=edges, y=np.arange(NUM) % 3, x=np.ones((NUM, 2)), **arrays)
    return {"name": "npz", "path": str(folder / "g.npz")}


def make_ogb(folder: Path) -> dict[str, Any]:
    """A folder in OGB's layout."""
    node_folder(folder / "mine")
    return {"name": "ogb", "dataset": "mine", "root": str(folder), "task": "node", "num_classes": 3}


def make_links(folder: Path) -> dict[str, Any]:
    """A folder in OGB's layout with splits in torch's format."""
    link_folder(folder / "mine")
    return {"name": "ogb", "dataset": "mine", "root": str(folder), "task": "link"}


def flip(path: Path) -> None:
    """Change the last byte but one in place: inode, size and time of change stay as they are."""
    os.utime(path, ns=(OLD, OLD))
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-2, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(OLD, OLD))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, OLD)


def key(home: Home, section: dict[str, Any]) -> str:
    recipe: Any = SimpleNamespace(dataset=DATASETS.config(section), version_moment=None)
    return json.dumps(STAGE.key_content(recipe, SourceDigests(home)), sort_keys=True)


Maker = Callable[[Path], dict[str, Any]]
MAKERS = [make_tables, make_npz, make_ogb, make_links]
TABLES = ["nodes.csv", "vectors.npy", "edges/1.csv", "edges/2.csv", "labels.csv", "train.csv", "valid.csv", "test.csv"]
CASES: list[tuple[Maker, str]] = [(make_tables, name) for name in TABLES]
CASES += [(make_npz, "g.npz"), (make_ogb, "mine/raw/edge.csv.gz"), (make_ogb, "mine/mapping/nodeidx2name.csv.gz")]
CASES += [(make_ogb, "mine/split/time/test.csv.gz"), (make_links, "mine/split/time/valid.pt")]


@pytest.mark.parametrize(("make", "name"), CASES, ids=[f"{make.__name__}-{name}" for make, name in CASES])
def test_other_content_of_the_same_size_and_time_is_another_source(
    home: Home, tmp_path: Path, make: Maker, name: str
) -> None:
    section = make(tmp_path / "data")
    os.utime(tmp_path / "data" / name, ns=(OLD, OLD))
    before = key(home, section)
    assert key(home, section) == before
    flip(tmp_path / "data" / name)
    assert key(home, section) != before
    flip(tmp_path / "data" / name)
    assert key(home, section) == before


@pytest.mark.parametrize("make", MAKERS)
def test_a_moved_source_is_the_same_and_another_folder_with_the_same_names_is_not(
    home: Home, tmp_path: Path, make: Maker
) -> None:
    first = key(home, make(tmp_path / "one"))
    (tmp_path / "one").rename(tmp_path / "two")
    moved = json.loads(json.dumps(make(tmp_path / "again")).replace("/again", "/two"))
    assert key(home, moved) == first
    other = next(path for path in sorted((tmp_path / "again").rglob("*")) if path.is_file())
    flip(other)
    assert key(home, json.loads(json.dumps(moved).replace("/two", "/again"))) != first


def test_options_that_name_no_file_still_count(home: Home, tmp_path: Path) -> None:
    section = make_tables(tmp_path / "data")
    for change in (
        {"directed": True},
        {"nodes": {**section["nodes"], "header": False}},
        {"nodes": {**section["nodes"], "feature_file": None}},
        {"split": {"by": "ratio"}},
    ):
        assert key(home, {**section, **change}) != key(home, section)


@pytest.mark.parametrize("how", ["changed", "gone", "more"])
def test_a_source_that_changes_while_it_is_read_is_not_kept(
    home: Home, ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    section, write = make_tables(tmp_path / "data"), table_ingest.write_nodes
    path = tmp_path / "data" / ("edges/3.csv" if how == "more" else "nodes.csv")

    def write_late(*arguments: Any) -> Any:
        done = write(*arguments)
        if how == "changed":
            flip(path)
        elif how == "gone":
            path.unlink()
        else:
            path.write_text("src,dst\n0,1\n")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(table_ingest, "write_nodes", write_late)
        with pytest.raises(DataError, match=rf"{path.name}: changed while it was read; nothing of it is kept"):
            ingest(**section)
    assert not home.artifacts.exists()
    assert not list(home.work.iterdir())
    if how == "more":
        assert ingest(**section).manifest.num_edges == NUM + 3


def test_what_a_folder_says_of_itself_is_not_believed(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder under OGB's name, from wherever: only the home that downloaded it knows that it is OGB's."""
    node_folder(tmp_path / "ogbn_arxiv", num_nodes=40, num_classes=40)
    section = {"name": "ogb", "dataset": "ogbn-arxiv", "root": str(tmp_path)}
    absent = key(home, {**section, "root": str(tmp_path / "nowhere")})
    files = {path.relative_to(tmp_path / "ogbn_arxiv").as_posix(): path.stat() for path in tmp_path.rglob("*.gz")}
    marker = {name: [found.st_size, found.st_mtime_ns] for name, found in files.items()}
    (tmp_path / "ogbn_arxiv/.graphmill.json").write_text(json.dumps(marker))
    assert key(home, section) != absent


def test_a_plan_tells_that_it_reads_and_finds_what_has_the_same_content(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = build_recipe({**json.loads(json.dumps(TINY)), "dataset": make_npz(tmp_path / "data")})
    reading = SlowReading(monkeypatch)

    def status() -> str:
        (step,) = make_plan(home, recipe, select_stages(["ingest"]), reading.tell)
        return step.status

    assert status() == "runs"
    assert reading.told[0][0] == "ingest"
    assert reading.told[0][3] == "bytes"
    run_stage(STAGE, recipe, {}, home)
    assert status() == "cached"
    flip(tmp_path / "data/g.npz")
    assert status() == "runs"
