"""Who ends champion, over the real stages: from tables to the registry."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from configs.schema import Recipe
from tasks.apply.run import OutputRequest, write_outputs
from tasks.publish import profile
from tasks.publish.champion import comparison
from tasks.publish.tracking.model_registry import ModelRegistry
from tasks.publish.tracking.registered import ModelVersion, find_version
from tasks.publish.tracking.registry import open_tracker
from tasks.storage.home import Home
from tasks.storage.outcomes import PublishManifest
from tests.publish.line import Line, customers, in_this_process, write_customers


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)


@pytest.fixture
def line(tracked_home: Home) -> Line:
    return Line(tracked_home)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("customers")
    write_customers(folder)
    return folder


def publish(line: Line, recipe: Recipe) -> PublishManifest:
    manifest = line.run(recipe)["publish"].manifest
    assert isinstance(manifest, PublishManifest)
    return manifest


def champion(line: Line, name: str = "customers") -> ModelVersion:
    return find_version(open_tracker(line.home), f"{name}@champion")


def moves(line: Line, name: str = "customers") -> list[str]:
    return [move.version for move in ModelRegistry(open_tracker(line.home), name).history()]


def export(line: Line, version: ModelVersion, recipe: Recipe, folder: Path) -> int:
    """Write a model's vectors for the data of its training; returns how many there are."""
    published = comparison.champion_files(open_tracker(line.home), version)
    parents = line.run(recipe, until="partition")
    wanted = OutputRequest("embeddings", str(folder / "vectors.parquet"), "parquet")
    write_outputs(line.home, line.ears, published, wanted, published.recipe, parents)
    return int(pq.read_metadata(folder / "vectors.parquet").num_rows)


def test_the_model_that_is_right_about_today_ends_champion(line: Line, data: Path, tmp_path: Path) -> None:
    """What was true of the first customers is no longer: the first model is best on its own validation rows only."""
    found = {}
    for year in ("2023", "2024", "2025"):
        found[year] = publish(line, customers(data, f"snapshot.as_of={year}"))
    own = [manifest.gate.value for manifest in found.values()]
    assert own[0] > max(own[1:]), "else this test would show nothing"
    assert [manifest.champion for manifest in found.values()] == [True, True, True]
    gate = found["2024"].gate
    assert (gate.against, gate.rows, gate.recorded, gate.trained_on) == ("1", 34, False, 0)
    assert gate.challenger == own[1] > 0.5 > gate.champion
    assert gate.reason == (
        f"valid/accuracy {own[1]:.4f} beats version 1's {gate.champion:.4f}, both measured on the same 34 "
        "validation rows of the data of customers as of 2024"
    )
    version = champion(line)
    assert (version.version, version.reason) == ("3", found["2025"].gate.reason)
    assert export(line, version, customers(data, "snapshot.as_of=2025"), tmp_path) == 600
    growth = found["2025"].gate.drift["growth"]["nodes"]
    assert growth == [345, 600]
    assert profile.text(found["2025"].gate.drift) in line.ears.messages
    older = publish(line, customers(data, "snapshot.as_of=2023", "seed=1")).gate
    assert (older.promoted, older.loud, found["2025"].gate.loud) == (True, True, False)
    assert f"; only {older.rows} rows: chance decides as much as the models" in older.reason
    assert "; version 3's data is newer (as of 2025, this one's 2023)" in older.reason
