"""`graphmill predict --keep-layers`: outputs of layers as artifacts, found for a newer graph."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from configs.errors import RecipeError
from models.base import GraphModel
from tasks.apply.layers import check_keeps, describe_kept, keeping
from tasks.apply.model.files import write_model
from tasks.apply.worker import ServeJob, Serving
from tasks.stage import Listener, Parent
from tasks.storage.artifacts import ArtifactStore, describe_files
from tasks.storage.home import Home
from tasks.storage.outcomes import LayersManifest
from tests.finished import trained
from tests.inference.two_nights import World, first_night, second_night, write


class Nights:
    """A home with the graphs of some nights, and a model of the first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, Home.open(str(folder / "home"))
        self.store = ArtifactStore(self.home)
        world = first_night(400, 0)
        self.parents = {"first": self.add("first", world, 1), "second": self.add("second", second_night(world, 1), 2)}
        self.publish("graphsage")

    def add(self, key: str, world: World, seed: int) -> dict[str, Parent]:
        graph, data = write(self.folder / key, world, seed=seed, typed=False)
        placed = {}
        for name, parent in (("partition", graph), ("ingest", data)):
            folder = self.store.folder(name, key)
            shutil.copytree(parent.folder, folder)
            manifest = parent.manifest.model_copy(update={"key": key, "stage": name})
            (folder / "manifest.json").write_text(manifest.model_dump_json())
            placed[name] = Parent(manifest, folder)
        return placed

    def publish(self, name: str) -> None:
        model = self.folder / name
        checkpoint = trained(self.folder / f"train-{name}", self.parents["first"]["partition"], name).folder / "best.pt"
        write_model(model, checkpoint, "demo", {"name": "demo"}, {})
        self.published: Any = SimpleNamespace(folder=model, name="demo@1", task="node")

    def predict(self, night: str, nodes: Path | None = None) -> tuple[Any, dict[str, Any], list[str]]:
        parents, warnings = self.parents[night], []
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        with keeping(self.home, Listener(), self.published, parents, night) as kept:
            job = ServeJob(
                what="predictions", format="parquet", model=self.published.folder, graph=parents["partition"].folder,
                dataset=parents["ingest"].folder, work=work, own_graph=night == "first",
                given={} if nodes is None else {"nodes": nodes}, node_type=None, classes=None, batch_size=64,
                device="cpu", threads=1, keep=kept.job,
            )  # fmt: skip
            kept.finish(Serving(job).run()["kept"], warnings.append)
        return pq.read_table(work / "predictions.parquet"), kept.written, warnings


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def test_the_newer_night_takes_what_is_the_same(nights: Nights, tmp_path: Path) -> None:
    _, first, _ = nights.predict("first")
    assert (first["former"], first["computed"]) == (None, [400, 400])
    table, second, warnings = nights.predict("second")
    assert second["former"] == Path(first["folder"]).name
    assert max(second["computed"]) < 300
    assert not warnings
    assert "as of first" in describe_kept(second)
    again, third, _ = nights.predict("second")
    assert (third["computed"], again.equals(table)) == ([0, 0], True)
    for folder in (nights.home.artifacts / "layers").glob("*"):
        shutil.rmtree(folder)
    full, alone, _ = nights.predict("second")
    assert (alone["former"], full.equals(table)) == (None, True)
    assert not list(nights.home.work.glob("layers-*"))


def test_some_nodes_asked_for_keep_all(nights: Nights, tmp_path: Path) -> None:
    whole, *_ = nights.predict("first")
    asked = tmp_path / "asked.csv"
    asked.write_text("id\nn7\nn3\n")
    some, kept, _ = nights.predict("first", asked)
    assert kept["computed"] == [0, 0]
    assert some.column("score").to_pylist() == whole.take([7, 3]).column("score").to_pylist()


def test_another_model_another_code_or_a_graph_that_is_gone_begins_anew(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.predict("first")
    with monkeypatch.context() as patch:
        patch.setattr("tasks.apply.layers.code_digest", lambda: "other")
        assert nights.predict("second")[1]["former"] is None
    shutil.rmtree(nights.home.artifacts / "layers")
    nights.predict("first")
    with monkeypatch.context() as patch:
        patch.setenv("MKL_CBWR", "COMPATIBLE")  # the libraries of another processor
        assert nights.predict("second")[1]["former"] is None
    shutil.rmtree(nights.home.artifacts / "layers")
    nights.predict("first")
    shutil.rmtree(nights.store.folder("partition", "first"))
    assert nights.predict("second")[1]["former"] is None


def test_damaged_layers_are_made_again(nights: Nights) -> None:
    folder = Path(nights.predict("first")[1]["folder"])
    (folder / "layer0.npy").write_bytes(b"x")
    assert nights.predict("second")[1]["former"] is None


@pytest.mark.parametrize("night", ["first", "second"])
def test_one_number_that_the_disk_lost_is_noticed(nights: Nights, night: str) -> None:
    folder = Path(nights.predict("first")[1]["folder"])
    rows = np.load(folder / "layer1.npy", mmap_mode="r+")
    rows[17, 3] += 1  # of the same size, and hardly among the rows that are compared
    rows.flush()
    table, kept, _ = nights.predict(night)
    assert kept["former"] is None
    shutil.rmtree(nights.home.artifacts / "layers")
    assert nights.predict(night)[0].equals(table)


def test_rows_that_are_wrong_are_noticed_and_nothing_is_taken(nights: Nights) -> None:
    folder = Path(nights.predict("first")[1]["folder"])
    rows = np.load(folder / "layer0.npy", mmap_mode="r+")
    rows += 1
    rows.flush()
    manifest = LayersManifest.model_validate_json((folder / "manifest.json").read_text())
    written = manifest.model_copy(update={"files": describe_files(folder)})  # as if they had been computed so
    (folder / "manifest.json").write_text(written.model_dump_json())
    _, kept, [warning] = nights.predict("second")
    assert (kept["former"], kept["computed"]) == (None, [405, 405])
    assert "nothing was taken over" in warning


def test_what_has_no_layers_of_all_nodes_is_refused(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match="computes on the CPU"):
        check_keeps(nights.published, "cuda")
    nights.published.task = "graph"
    with pytest.raises(RecipeError, match="model of graphs"):
        check_keeps(nights.published, "auto")
    monkeypatch.setattr(GraphModel, "is_layered", property(lambda _: False))
    with pytest.raises(RecipeError, match="graphsage has no layers"):
        nights.predict("first")
