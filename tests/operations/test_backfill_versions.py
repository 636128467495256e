"""`graphmill backfill create --every version`: a partition for each time that tables were written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from configs.errors import RecipeError
from flows.backfill import actions
from flows.backfill.spec import Backfill
from flows.backfill.versions import over_versions, settled
from tasks.readers.table_formats.opened import OPENED
from tests.ingest.versioned_tables import append_delta, set_moment, write_delta

HOUR = 3_600_000


def test_writes_that_lie_close_together_are_one() -> None:
    assert settled([0, 1000, 2 * HOUR, 5 * HOUR, 5 * HOUR + 1, 5 * HOUR + 1001]) == (
        "1970-01-01T00:00:01+00:00",
        "1970-01-01T02:00:00+00:00",
        "1970-01-01T05:00:01+00:00",
    )


@pytest.fixture
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment of a recipe over two tables, one of which was written three times."""
    OPENED.clear()
    write_delta(tmp_path / "nodes", [("2025-01-10", {"id": [1, 2], "kind": ["a", "b"]})])
    write_delta(tmp_path / "edges", [("2025-01-10T00:20:00", {"src": [1], "dst": [2]})])
    append_delta(tmp_path / "edges", "2025-02-10", {"src": [2], "dst": [1]})
    append_delta(tmp_path / "edges", "2025-03-10", {"src": [2], "dst": [1]})
    dataset = {
        "name": "tables",
        "nodes": {"files": f"delta:{tmp_path}/nodes", "label": "kind"},
        "edges": {"files": f"delta:{tmp_path}/edges"},
    }
    recipe = tmp_path / "lake.yaml"
    recipe.write_text(yaml.safe_dump({"name": "lake", "dataset": dataset, "model": {"name": "gcn"}}))
    deployment = SimpleNamespace(parameters={"recipe": str(recipe), "snapshot": "scheduled"})
    monkeypatch.setattr("flows.deploy.deployments.find_deployment", lambda client, name, **options: deployment)
    monkeypatch.setattr(actions, "find_deployment", lambda client, name, **options: deployment)
    return recipe


def test_a_partition_for_each_version(nightly: Path) -> None:
    def partitions(**options: Any) -> list[str | None]:
        asked = Backfill(id="x", deployment="nightly", every="version", **options)
        asked.partitions()  # refuses nothing before the tables are known
        return [one.snapshot for one in over_versions(None, asked).partitions()]

    months = [f"2025-{month}-10T00:{minute}:00+00:00" for month, minute in (("01", 20), ("02", "00"), ("03", "00"))]
    assert partitions() == months
    assert partitions(reverse=True) == months[::-1]
    assert partitions(first="2025-02", last="2025-02") == months[1:2]
    recipe = actions.partition_recipe(
        SimpleNamespace(parameters={"recipe": str(nightly)}),
        over_versions(None, Backfill(id="x", deployment="nightly", every="version")).partitions()[0],
    )
    assert recipe.version_moment == months[0]
    with pytest.raises(RecipeError, match="no version in that time"):
        partitions(first="2024", last="2024")


def test_they_begin_when_every_table_is_there(nightly: Path) -> None:
    set_moment(nightly.parent / "edges", 0, "2024-11-10")  # the nodes came two months later
    partitions = over_versions(None, Backfill(id="x", deployment="nightly", every="version")).partitions()
    assert [one.snapshot for one in partitions] == [f"2025-{month}-10T00:00:00+00:00" for month in ("01", "02", "03")]


def test_files_have_no_versions(nightly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = SimpleNamespace(parameters={"recipe": str(nightly)})
    monkeypatch.setattr("flows.deploy.deployments.find_deployment", lambda client, name, **options: deployment)
    nightly.write_text(nightly.read_text().replace("delta:", ""))
    with pytest.raises(RecipeError, match="--every version: no table is one that keeps its versions"):
        over_versions(None, Backfill(id="x", deployment="nightly", every="version"))
