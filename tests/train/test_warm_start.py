"""A snapshot's training begins where the newest earlier snapshot's ended."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from configs.load import build_recipe, dump_recipe
from configs.schema import Recipe
from flows.commands.installation.clean import needed_artifacts
from flows.records.run_record import RunRecord, now_text
from tasks.calls import call_stage, expected_key, load_parents, load_stage
from tasks.stage import Parent, stage_key
from tasks.storage.artifacts import ArtifactStore, file_digest
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import IdMap
from tasks.storage.outcomes import RunResult
from tasks.storage.snapshots import earlier_snapshots
from tasks.train.job import BEST, LAST, Job, WarmStart
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tasks.train.warm.earlier import DoesNotFitError, begin_warm, refuse_held_out_knowledge
from tasks.train.warm.start import PARENT, earlier_training, warm_start
from tests.ranked_shop import store_of
from tests.support import link_graph
from tests.train.in_process import make_engine, own_settings, run_engine, run_job

STILL = "train.learning_rate=1e-12"  # what training begins with is what it ends with
EARLIER = ("ingest", "preprocess", "components", "partition", "train")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data()


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of its own spends seconds on imports; one test has real ones."""
    monkeypatch.setattr("tasks.train.stage.run_training", run_job)


def write_data(first: int = 0, last: int = 120) -> None:
    """People of the years 0 to 3, and who knows whom since when; of the rows those from `first` to `last`."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 120)
    x = np.eye(3)[label] + rng.standard_normal((120, 3))
    names = [f"p{i}" for i in range(120)]
    people = pa.table({"id": names, "x": x.tolist(), "label": label, "time": np.arange(120) // 30})
    pq.write_table(people.slice(first, last - first), "people.parquet")
    src, dst = rng.integers(first, last, (2, 800))
    knows = {"src": [names[i] for i in src], "dst": [names[i] for i in dst], "time": np.maximum(src, dst) // 30}
    pq.write_table(pa.table(knows), "knows.parquet")


def recipe(as_of: int, *overrides: str, features: bool = True) -> Recipe:
    nodes: dict[str, Any] = {"files": "people.parquet", "label": ["label"], "time": "time"}
    sections = {
        "name": "people",
        "dataset": {
            "name": "tables",
            "num_classes": 3,
            "nodes": {**nodes, **({"features": ["x"]} if features else {})},
            "edges": {"files": "knows.parquet", "time": "time"},
        },
        "snapshot": {"as_of": str(as_of), "warm_start": True},
        "partition": {"name": "metis", "num_parts": 2},
        "model": {"name": "graphsage", "hidden_dim": 8, "num_layers": 2, "norm": "none"},
        "train": {"loader": "full", "epochs": 3, "threads": 1, "learning_rate": 0.05},
    }
    return build_recipe(sections, overrides)


def keys_of(stages: dict[str, Any], name: str) -> dict[str, str]:
    return {parent: stages[parent].key for parent in load_stage(name).parents}


def run(home: Home, chosen: Recipe, *names: str) -> SimpleNamespace:
    """Run the stages up to training and leave a run's record, as the flow does."""
    stages: dict[str, Any] = {}
    for name in names or EARLIER:
        stages[name] = call_stage(name, chosen, home, keys_of(stages, name))
    place = ArtifactStore(home)
    run_id = f"run-{chosen.snapshot.as_of}-{len(list(home.runs.glob('*')))}"
    config = dump_recipe(chosen)
    started = now_text()
    RunRecord(
        id=run_id, recipe=chosen.name, config=config, started_at=started, stages=stages, status="completed"
    ).write(home)
    if "train" not in stages:
        return SimpleNamespace(stages=stages)
    key = stages["train"].key
    manifest = place.load("train", key, RunResult)
    folder = place.folder("train", key)
    return SimpleNamespace(stages=stages, manifest=manifest, folder=folder, key=key, weights=weights(folder))


def graph_of(home: Home, found: SimpleNamespace) -> dict[str, Parent]:
    """What a training reads."""
    return load_parents(load_stage("train"), home, keys_of(found.stages, "train"))


def earlier_of(chosen: Recipe, home: Home, found: SimpleNamespace | None = None) -> str | None:
    """Key of the training that one begins with; its graph is a run's, or one that never was."""
    other: Any = SimpleNamespace(manifest=SimpleNamespace(digest="other"))
    parent = earlier_training(chosen, home, {"partition": other} if found is None else graph_of(home, found))
    return parent and parent.manifest.key


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(folder / BEST)["model"]


def test_a_snapshot_begins_with_the_newest_earlier_ones_weights(home: Home) -> None:
    cold = run(home, recipe(1))
    assert cold.manifest.warm_start is None
    assert set(cold.manifest.parents) == {"partition"}

    warm = run(home, recipe(2, STILL))
    assert warm.manifest.parents[PARENT] == cold.manifest.digest
    assert warm.manifest.warm_start == {"as_of": "1", "key": cold.key, "used": True, "why_not": ""}
    for name, tensor in warm.weights.items():
        torch.testing.assert_close(tensor, cold.weights[name], rtol=0, atol=1e-6)
    again = run(home, recipe(2, STILL))
    assert again.stages["train"].status == "cached"

    # Without the option nothing of it is in the key, whatever ran before.
    plain = recipe(2, STILL, "snapshot.warm_start=false")
    keys = keys_of(warm.stages, "train")
    bare = stage_key(load_stage("train"), plain, load_parents(load_stage("train"), home, keys), home)
    assert expected_key("train", plain, keys, home) == bare != warm.key
    assert earlier_of(plain, home, warm) is None

    # The newest earlier one counts, not the newest run; other recipes, kinds of model and later moments do not.
    assert [earlier_of(recipe(t), home) for t in (0, 1, 2, 3)] == [None, None, cold.key, warm.key]
    assert earlier_of(recipe(3, "name=others"), home) is None
    assert earlier_of(recipe(3, "model=gcn"), home) is None
    # Nor does one that was split otherwise, and may have learnt from what is tested now.
    assert earlier_of(recipe(3, "snapshot.train=0.7", "snapshot.test=0.2"), home) is None
    assert earlier_of(recipe(3, "snapshot.seed=1"), home) is None
    # Nor does one in which nothing is other than here: a later night without news is the same training.
    assert earlier_of(recipe(3), home, warm) == cold.key
    # Of two trainings as of one moment the one with the same options counts, though it is older.
    other = run(home, recipe(1, "model.hidden_dim=4"))
    assert earlier_of(recipe(2), home) == cold.key
    assert earlier_of(recipe(2, "model.hidden_dim=4"), home) == other.key

    # What a kept run began with is kept too.
    record = next(r for r in (RunRecord.model_validate_json(p.read_bytes()) for p in home.runs.glob("run-1-0.json")))
    (home.runs / "run-1-0.json").write_text(
        record.model_copy(update={"started_at": "2000-01-01T00:00:00+00:00"}).model_dump_json()
    )
    limit = next(home.runs.glob("run-2-1.json")).stat().st_mtime - 3600
    assert ("train", cold.key) in needed_artifacts(home, limit)


@pytest.mark.usefixtures("in_this_process")
def test_weights_that_do_not_fit_are_said(home: Home) -> None:
    earlier = run(home, recipe(1))
    wider = run(home, recipe(2, "model.hidden_dim=12"))
    told = wider.manifest.warm_start
    assert (told["key"], told["used"]) == (earlier.key, False)
    assert "has the shape 8x" in told["why_not"]
    assert any("training began afresh" in text for text in wider.manifest.warnings)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("embeddings", ["dense", "sparse", "in parts"])
def test_learnable_rows_follow_their_nodes(home: Home, tmp_path: Path, embeddings: str) -> None:
    """Known nodes keep their rows though parts reorder them, and though data ingested anew numbers them otherwise."""
    options = [f"train.embeddings={embeddings}"]
    if embeddings == "in parts":
        options = ["train.embeddings=sparse", "train.strategy=partitioned", "train.loader=neighbor"]
    earlier = run(home, recipe(1, *options, features=False))
    table = "encoder.embedding.weight"
    before = dict(zip(names_of(home, earlier), earlier.weights[table], strict=True))
    slow = [STILL, *options, *([] if embeddings == "dense" else ["train.embeddings.learning_rate=1e-12"])]
    for first in (0, 5) if embeddings == "dense" else (0,):
        if first:
            write_data(first)  # five people are gone, all others are numbered anew
        later = run(home, recipe(2, *slow, features=False))
        assert later.manifest.warm_start["used"], later.manifest.warm_start
        assert later.manifest.warm_start["key"] == earlier.key
        after = dict(zip(names_of(home, later), later.weights[table], strict=True))
        known = [name for name in after if name in before]
        assert (len(after), len(known)) == (90 - first, 60 - first)
        for name in known:
            torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-6)
        fresh = torch.stack([after[name] for name in after if name not in before])
        assert fresh.std() > 0.01


def names_of(home: Home, found: SimpleNamespace) -> list[str]:
    store = ArtifactStore(home)
    opened = {}
    for name, kind in (("partition", GraphStore), ("ingest", DatasetStore)):
        key = found.stages[name].key
        opened[name] = kind(store.folder(name, key), store.load(name, key, load_stage(name).manifest))
    ids = IdMap(opened["partition"], opened["ingest"])
    return ids.lookup(np.arange(opened["partition"].manifest.num_nodes)).to_pylist()


@pytest.mark.usefixtures("in_this_process")
def test_a_resumed_training_goes_on_with_its_own_weights(home: Home, tmp_path: Path) -> None:
    earlier = run(home, recipe(1))
    chosen = recipe(2)
    made = run(home, chosen, *EARLIER[:-1])
    graph, parent = made.stages["partition"], earlier_training(chosen, home, graph_of(home, made))
    warm = warm_start(chosen, home, parent)
    assert warm.as_of == "1"
    assert warm.weights == file_digest(warm.checkpoint)
    job = Job.make(chosen, Path(graph.folder), graph.digest, tmp_path / "work", warm)
    assert job.digest != Job.make(chosen, Path(graph.folder), graph.digest, tmp_path / "work").digest
    job.work.mkdir()
    assert Job.load(job.save()).warm == warm
    with own_settings():
        engine = make_engine(job)
        for name, tensor in engine.model.state_dict().items():
            assert torch.equal(tensor, earlier.weights[name])
        assert engine.progress.cold_because == ""
        run_engine(engine)
        last = checkpoint.load(job.work / LAST)["model"]
        assert not any(torch.equal(last[name], earlier.weights[name]) for name in last)
        resumed = make_engine(job)
        for name, tensor in resumed.model.state_dict().items():
            assert torch.equal(tensor, last[name])
        assert resumed.progress.cold_because == ""


@pytest.mark.usefixtures("in_this_process")
def test_other_classes_do_not_fit(home: Home, tmp_path: Path) -> None:
    """Data ingested anew whose classes are numbered otherwise: equal shapes would mean other things."""
    chosen = ("dataset.num_classes=null",)
    earlier = run(home, recipe(1, *chosen))
    people = pq.read_table("people.parquet")
    label = pa.array([f"class {9 - value}" for value in people.column("label").to_pylist()])
    pq.write_table(people.set_column(people.column_names.index("label"), "label", label), "people.parquet")
    later = recipe(2, *chosen)
    made = run(home, later, *EARLIER[:-1])
    graph, parent = made.stages["partition"], earlier_training(later, home, graph_of(home, made))
    assert parent.manifest.key == earlier.key
    job = Job.make(later, Path(graph.folder), graph.digest, tmp_path, warm_start(later, home, parent))
    with own_settings():
        engine = make_engine(dataclasses.replace(job, warm=None))
        why = begin_warm(engine.model, job.warm, GraphStore.open(job.graph), Ranks())
    assert why.startswith("classes are other ones")


@pytest.mark.usefixtures("in_this_process")
def test_weights_that_learnt_what_is_held_out_now_are_not_used(home: Home) -> None:
    """History that is loaded later pushes rows that trained into the splits behind."""
    write_data(25, 60)
    earlier = run(home, recipe(1))
    write_data(0, 60)
    later = run(home, recipe(2))
    told = later.manifest.warm_start
    assert (told["key"], told["used"]) == (earlier.key, False)
    assert re.fullmatch(r"[1-9] nodes that it learnt from are in the valid split now", told["why_not"])
    assert any("training began afresh" in text for text in later.manifest.warnings)


def test_a_training_is_the_same_where_it_begins_with_the_same_weights(tmp_path: Path) -> None:
    """Keys of earlier trainings differ from home to home: metrics hold times."""
    first = WarmStart("1", "key", tmp_path / "best.pt", None, tmp_path, tmp_path, "aaaa")
    there, other = dataclasses.replace(first, key="of another home"), dataclasses.replace(first, weights="bbbb")
    jobs = [Job.make(recipe(2), tmp_path, "graph", tmp_path, warm) for warm in (first, there, other)]
    assert jobs[0].digest == jobs[1].digest != jobs[2].digest


def test_pairs_that_an_earlier_model_learnt_from_are_known_both_ways(tmp_path: Path) -> None:
    parent = link_graph(tmp_path)
    store, earlier = (store_of(parent) for _ in range(2))
    warm = WarmStart("1", "key", tmp_path, tmp_path, tmp_path, tmp_path)
    refuse_held_out_knowledge(warm, earlier, store)
    train, valid, test = (np.asarray(store[f"{split}_edges"]) for split in ("train", "valid", "test"))
    earlier._open["valid_edges"] = np.concatenate([valid, train])  # was and is held out, or trains now
    refuse_held_out_knowledge(warm, earlier, store)
    earlier._open["valid_edges"] = np.concatenate([valid, test[:3]])
    with pytest.raises(DoesNotFitError, match="3 edges that it was chosen by are in the test split now"):
        refuse_held_out_knowledge(warm, earlier, store)
    earlier._open["train_edges"] = np.concatenate([train, valid[:2, ::-1]])
    with pytest.raises(DoesNotFitError, match="2 edges that it learnt from are in the valid split now"):
        refuse_held_out_knowledge(warm, earlier, store)


def test_earlier_snapshots_are_listed_newest_first(home: Home) -> None:
    made = [run(home, recipe(t), "ingest") for t in (2, 0, 1)]
    assert len({one.stages["ingest"].key for one in made}) == 1  # ingest runs once for all snapshots
    assert [r.as_of for r in earlier_snapshots(home, recipe(3), "ingest")] == ["2", "1", "0"]
    assert [r.as_of for r in earlier_snapshots(home, recipe(2), "ingest")] == ["1", "0"]
    assert earlier_snapshots(home, recipe(3), "train") == []
    (home.runs / "broken.json").write_text("{")
    (home.runs / "plain.json").write_text('{"recipe": "people", "config": {"snapshot": {"as_of": null}}, "stages": {}}')
    assert len(earlier_snapshots(home, recipe(3), "ingest")) == 3
