"""What graphmill has stored, altered by chance or malice: read as it was, refused in words, or taken for absent.

Never another exception, and never a file outside of the home.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from configs.errors import GraphmillError, RecipeError
from configs.load import build_recipe, dump_recipe, load_recipe
from configs.registry import MODELS
from flows.commands.installation.clean import clean_home
from flows.commands.runs.runs import RunFilter, list_runs, show_runs
from flows.records.run_record import RunRecord, now_text
from tasks.apply.model.files import load_published, read_tensors, tensor_shapes, write_model
from tasks.apply.model.needs import DataNeeds
from tasks.apply.model.published import read_published
from tasks.publish.gate.rules import read_history
from tasks.publish.tracking.version_tags import ModelVersion
from tasks.storage.artifacts import MANIFEST_NAME, ArtifactStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.storage.snapshots import earlier_snapshots
from tasks.train.state import checkpoint
from tests.configs.test_recipes import tiny
from tests.fuzz.budget import SECONDS, examine, examine_for
from tests.fuzz.mutations import as_text, broken, spoilt_json
from tests.support import as_partition, node_graph, stage_entry

EXAMPLES = 60
"""Of each kind, in every run."""


@dataclass(frozen=True)
class Stored:
    """One file of a kind, and what reads it."""

    path: Path
    read: Callable[[], object]

    @property
    def inputs(self) -> st.SearchStrategy[bytes]:
        content = self.path.read_bytes()
        spoilt = broken(content)
        if self.path.suffix == ".json":
            spoilt |= spoilt_json(json.loads(content)).map(as_text)
        return spoilt

    def check(self, content: bytes) -> str:
        """Read it with another content; returns what came of it."""
        self.path.write_bytes(content)
        try:
            self.read()
        except GraphmillError as error:
            return type(error).__name__
        return "read"


def manifest_of(folder: Path) -> Stored:
    parent = as_partition(node_graph(folder / "graph"))
    key = parent.manifest.key
    home = Home.open(folder / "home")
    store = ArtifactStore(home)
    place = store.folder("partition", key)
    shutil.copytree(parent.folder, place)
    (place / MANIFEST_NAME).write_text(parent.manifest.model_dump_json())
    return Stored(place / MANIFEST_NAME, lambda: store.load("partition", key, PartitionManifest, deep=True))


def record_of(folder: Path) -> Stored:
    home = Home.open(folder / "home")
    recipe = tiny("snapshot.as_of=2023")
    stages = {"train": stage_entry("train", key="a" * 24, digest="b")}
    record = RunRecord(id="one", recipe="tiny", started_at=now_text(), config=dump_recipe(recipe), stages=stages)
    record.write(home)
    later = tiny("snapshot.as_of=2024")

    def read() -> None:
        show_runs(list_runs(home, RunFilter()), None)
        clean_home(home, 1.0, dry_run=True)
        earlier_snapshots(home, later, "train")

    return Stored(home.runs / "one.json", read)


def model_folder(folder: Path) -> Path:
    graph = as_partition(node_graph(folder / "graph"))
    recipe = tiny()
    model = MODELS.create(recipe.model, graph_facts(graph.manifest))
    checkpoint.save_atomic(checkpoint.best_state(model, "digest", 1, 0.5), folder / "best.pt")
    write_model(folder / "model", folder / "best.pt", "tiny", dump_recipe(recipe), {"preprocess": {"key": "k"}})
    DataNeeds("node", "node", (), (), 2, None, {}, ()).write(folder / "model")
    return folder / "model"


def file_of_a_model(name: str) -> Callable[[Path], Stored]:
    def make(folder: Path) -> Stored:
        place = model_folder(folder)

        def read() -> None:
            read_published(place, "tiny@1")
            tensor_shapes(place / "model.safetensors")
            read_tensors(place / "model.safetensors")
            load_published(place)

        return Stored(place / name, read)

    return make


def checkpoint_of(folder: Path) -> Stored:
    model_folder(folder)
    return Stored(folder / "best.pt", lambda: checkpoint.load_model(folder / "best.pt"))


def recipe_of(folder: Path) -> Stored:
    path = folder / "recipe.json"  # JSON is YAML
    path.write_bytes(as_text(dump_recipe(tiny())))
    return Stored(path, lambda: load_recipe(str(path)))


KINDS: dict[str, Callable[[Path], Stored]] = {
    "manifest": manifest_of,
    "record": record_of,
    "checkpoint": checkpoint_of,
    "recipe": recipe_of,
    **{name: file_of_a_model(name) for name in ("model.safetensors", "model.json", "recipe.json", "lineage.json")},
    **{name: file_of_a_model(name) for name in ("data.json", "data.npz")},
}


@pytest.fixture
def _nothing_escapes(tmp_path: Path) -> Iterator[None]:
    inside = tmp_path / "a" / "b" / "c"
    inside.mkdir(parents=True)
    yield
    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"b"}
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {"c"}


@pytest.mark.usefixtures("_nothing_escapes")
@pytest.mark.parametrize("kind", list(KINDS))
def test_spoilt_files_are_refused_in_words(tmp_path: Path, kind: str) -> None:
    stored = KINDS[kind](tmp_path / "a" / "b" / "c")
    stored.read()  # whole, it is read
    outcomes = examine(stored.check, stored.inputs, examples=EXAMPLES)
    assert sum(outcomes.values()) >= EXAMPLES
    assert len(outcomes) > 1 or kind == "record", outcomes


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.usefixtures("_nothing_escapes")
@pytest.mark.parametrize("kind", list(KINDS))
def test_spoilt_files_for_long(tmp_path: Path, kind: str) -> None:
    stored = KINDS[kind](tmp_path / "a" / "b" / "c")
    outcomes = examine_for(stored.check, stored.inputs, seconds=SECONDS / 2 / len(KINDS))
    print(f"{kind}: {sum(outcomes.values()):,} inputs, no finding: {dict(outcomes)}")


def test_odd_recipes_from_a_server_are_refused_in_words() -> None:
    def check(values: Any) -> str:
        try:
            build_recipe(values if isinstance(values, dict) else {"name": values})
        except RecipeError:
            return "refused"
        return "read"

    outcomes = examine(check, spoilt_json(dump_recipe(tiny())), examples=300)
    assert set(outcomes) == {"refused", "read"}


def test_odd_tags_of_a_registry_are_no_crash() -> None:
    text = json.dumps([{"version": "1", "before": None, "how": "gate", "at": "2026-01-01"}])

    def check(content: bytes) -> str:
        read_history(content.decode("latin-1"))
        tags = ("graphmill.gate_value", "graphmill.gate_metric", "graphmill.gate_higher_is_better", "graphmill.dataset")
        assert ModelVersion("m", "1", "", "", 0, dict.fromkeys(tags, content.decode("latin-1"))).gate
        return "read"

    spoilt = broken(text.encode()) | spoilt_json(json.loads(text)).map(as_text)
    assert examine(check, spoilt, examples=300)["read"] >= 300
