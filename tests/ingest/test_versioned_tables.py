"""Tables of Delta Lake and Iceberg as files of recipes: versions, moments, keys, and what may be wrong with them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from configs.errors import DataError, RecipeError
from configs.load import build_recipe
from configs.values.versioned_tables import as_of, check_files, parse_reference
from tasks.ingest.stage import STAGE, open_dataset
from tasks.ingest.tables.files import TableFiles
from tasks.readers.table_formats.opened import OPENED, open_versioned
from tasks.stage import Listener, run_stage, stage_key
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.home import Home
from tasks.storage.snapshots import check_snapshot
from tests.ingest.small_databases import ROWS, database
from tests.ingest.versioned_tables import append_delta, change_column, change_log, iceberg_catalog, write_delta

NODES = {"id": list(range(30)), "x": [0.5 * i for i in range(30)], "kind": ["a", "b"] * 15}
EDGES = {"src": list(range(29)), "dst": list(range(1, 30))}


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    OPENED.clear()
    yield
    OPENED.clear()


def rows(files: str, *columns: str) -> dict[str, list[Any]]:
    OPENED.clear()
    batches = list(TableFiles((files,)).batches(columns))
    return pa.Table.from_batches([batch.data for batch in batches]).select(columns).to_pydict()


def recipe(files: str, **changes: Any) -> Any:
    nodes = {"files": f"{files}/nodes", "features": ["x"], "label": "kind"}
    edges = {"files": f"{files}/edges"}
    dataset = {"name": "tables", "task": "node", "nodes": nodes, "edges": edges}
    values = {"name": "lake", "dataset": dataset, "model": {"name": "gcn"}}
    return build_recipe({**values, **changes})


# ---- what a recipe says


def test_references() -> None:
    plain = parse_reference("delta:data/orders")
    assert (plain.format, plain.table, plain.is_fixed) == ("delta", "data/orders", False)
    assert parse_reference("delta:data/orders@12").version == "12"
    assert parse_reference("delta:s3://user@host/orders").table == "s3://user@host/orders"
    assert parse_reference("delta:orders@2025-06-30").as_of == "2025-06-30"
    assert parse_reference("delta:orders@2025-06-30T12:00:00").as_of == "2025-06-30T12:00:00+00:00"
    assert parse_reference("iceberg:lake.shop.orders@nightly").version == "nightly"
    files = as_of(("delta:orders", "orders.csv", "delta:x@3"), "2025")
    assert files == ("delta:orders@2025-12", "orders.csv", "delta:x@3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delta:", "names no table"),
        ("delta:@3", "names no table"),
        ("delta:orders@", "ends with @ and names no version"),
        ("delta:orders@latest", "is no version; give its number"),
        ("delta:orders@-1", "is no version"),
        ("delta:orders@2025-13", "is no moment"),
        ("iceberg:orders", "names no catalog, namespace and table"),
    ],
)
def test_references_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_reference(text)


def test_a_versioned_table_stands_alone() -> None:
    with pytest.raises(ValueError, match="is a table by itself"):
        check_files(["delta:orders", "more.csv"])


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("deltalake", "pyiceberg", "pyiceberg.catalog", "pyiceberg.exceptions", "pyiceberg.io.pyarrow"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    for text, extra in (("delta:orders", "delta"), ("iceberg:lake.shop.orders", "iceberg")):
        with pytest.raises(DataError, match=rf"pip install 'graphmill\[{extra}\]'"):
            TableFiles((text,)).column_names()


# ---- Delta Lake


def test_versions_and_moments_of_delta_lake(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    name = write_delta(folder, [("2025-01-10", {"id": [1]}), ("2025-02-10", {"id": [1, 2]})])
    append_delta(folder, "2025-03-10", {"id": [3]})
    assert sorted(rows(name, "id")["id"]) == [1, 2, 3]
    assert rows(f"{name}@0", "id") == {"id": [1]}
    assert rows(f"{name}@2025-01", "id") == {"id": [1]}
    assert rows(f"{name}@2025-02-10", "id") == {"id": [1, 2]}
    assert rows(f"{name}@2025-02-09", "id") == {"id": [1]}
    assert sorted(rows(f"{name}@2030-01", "id")["id"]) == [1, 2, 3]
    assert rows(name, "id") == rows(name, "id")


def test_partitions_and_texts(tmp_path: Path) -> None:
    columns = {"id": [1, 2, 3], "land": ["de", "fr", "de"], "day": pa.array([1, 2, 3], pa.date32())}
    name = write_delta(tmp_path / "t", [("2025-01-10", columns)], partition_by=["land"])
    found = rows(name, "land", "id")
    assert sorted(zip(found["id"], found["land"], strict=True)) == [(1, "de"), (2, "fr"), (3, "de")]


def test_mistakes_with_delta_lake(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    old, new = {"id": [1]}, {"id": [1], "price": [2.0]}
    name = write_delta(folder, [("2025-01-10", old), ("2025-02-10", new)])
    (tmp_path / "plain").mkdir()
    for files, column, message in (
        (f"{name}@7", "id", "there is no version 7: known are 0 of 2025-01-10.* to 1 of"),
        (f"{name}@2024-12", "id", "has no version as of 2024-12: the oldest that is known is 0 of 2025-01-10"),
        (f"{name}@0", "price", "has no column 'price' in version 0; the newest, 1 of .*: the columns changed"),
        (f"{name}@1", "prize", "has no column 'prize'.*price"),
        (f"delta:{tmp_path}/plain", "id", "there is no table of Delta Lake"),
        (f"delta:{tmp_path}/nowhere", "id", "Delta Lake"),
    ):
        with pytest.raises(DataError, match=message):
            rows(files, column)


def test_columns_renamed_in_the_log_alone_are_refused_not_empty(tmp_path: Path) -> None:
    name = write_delta(tmp_path / "t", [("2025-01-10", {"id": [1, 2]})])

    def rename(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
        physical = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"}
        change_column(action, "id", name="person", metadata=physical)

    change_log(tmp_path / "t", rename)
    with pytest.raises(DataError, match=r"columns were renamed or dropped.*copy the table"):
        rows(name, "person")


def test_a_damaged_file_of_a_version_is_not_called_vacuumed(tmp_path: Path) -> None:
    name = write_delta(tmp_path / "t", [("2025-01-10", {"id": [1, 2]})])
    for path in (tmp_path / "t").glob("*.parquet"):
        path.write_bytes(b"x" * 100)
    with pytest.raises(DataError, match=r"cannot be read .*magic bytes") as caught:
        rows(name, "id")
    assert "vacuumed" not in str(caught.value)
    assert rows(f"{write_delta(tmp_path / 'u', [('2025-01-10', {'id': [1]})])}@00", "id") == {"id": [1]}


def test_a_version_that_was_vacuumed_away(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    name = write_delta(folder, [("2025-01-10", {"id": [1]}), ("2025-02-10", {"id": [2]})])
    import deltalake

    table = deltalake.DeltaTable(str(folder))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert rows(f"{name}@1", "id") == {"id": [2]}
    with pytest.raises(DataError, match="vacuumed away"):
        rows(f"{name}@0", "id")


# ---- Iceberg


def test_snapshots_tags_and_moments_of_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = iceberg_catalog(tmp_path, monkeypatch)
    first = pa.table({"id": [1, 2], "land": ["de", "fr"]})
    table = catalog.create_table("shop.orders", schema=first.schema)
    table.append(first)
    table.append(pa.table({"id": [3], "land": ["it"]}))
    one, two = (snapshot.snapshot_id for snapshot in table.snapshots())
    table.manage_snapshots().create_tag(one, "nightly").commit()
    name = "iceberg:lake.shop.orders"
    assert sorted(rows(name, "id")["id"]) == [1, 2, 3]
    assert rows(name, "id") == rows(f"{name}@{two}", "id")
    assert rows(f"{name}@{one}", "land", "id") == {"land": ["de", "fr"], "id": [1, 2]}
    assert rows(f"{name}@nightly", "id") == {"id": [1, 2]}
    with table.update_schema() as update:
        update.add_column("price", __import__("pyiceberg.types").types.DoubleType())
    table.append(pa.table({"id": [4], "land": ["es"], "price": [1.0]}))
    for files, column, message in (
        (f"{name}@77", "id", "there is no snapshot or tag 77.*and the tags nightly"),
        (f"{name}@2020-01", "id", "has no version as of 2020-01: the oldest that is known is"),
        (f"{name}@{one}", "price", "the columns changed in between"),
        ("iceberg:lake.shop.other", "id", "the catalog lake has no table shop.other"),
        ("iceberg:nowhere.shop.orders", "id", "there is no catalog nowhere"),
    ):
        with pytest.raises(DataError, match=message):
            rows(files, column)


@pytest.mark.parametrize("spoilt", ["catalog.db", "*.metadata.json", "*-m0.avro", "snap-*.avro", "*.parquet"])
@pytest.mark.parametrize("content", [b"", b"x" * 9000, b"{}", b"[1]", b"Obj\x01\x02"])
def test_damaged_files_of_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: str, content: bytes) -> None:
    first = pa.table({"id": [1, 2]})
    iceberg_catalog(tmp_path, monkeypatch).create_table("shop.t", schema=first.schema).append(first)
    for path in tmp_path.rglob(spoilt):
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"iceberg:lake\.shop\.t: "):
        rows("iceberg:lake.shop.t", "id")


# ---- ingest


class Heard(Listener):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, stage: str, text: str) -> None:
        self.texts.append(text)


def test_columns_of_iceberg_that_changed_without_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg import types

    catalog = iceberg_catalog(tmp_path, monkeypatch)
    table = catalog.create_table("shop.t", schema=pa.schema([("id", pa.int64()), ("x", pa.float64())]))
    table.append(pa.table({"id": [1, 2], "x": [1.0, 2.0]}))
    snapshot, present = table.current_snapshot().snapshot_id, parse_reference("iceberg:lake.shop.t")
    before = open_versioned(present).facts
    with table.update_schema() as change:
        change.rename_column("x", "y")
    with table.update_schema() as change:
        change.add_column("x", types.DoubleType())
    assert rows("iceberg:lake.shop.t", "id", "y", "x") == {"id": [1, 2], "y": [1.0, 2.0], "x": [None, None]}
    assert rows(f"iceberg:lake.shop.t@{snapshot}", "x") == {"x": [1.0, 2.0]}  # as it was
    OPENED.clear()
    assert open_versioned(present).facts != before  # x is another column in the same snapshot
    table.append(pa.table({"id": [3], "y": [3.0], "x": [9.0]}))
    assert sorted(rows("iceberg:lake.shop.t", "y")["y"]) == [1.0, 2.0, 3.0]


def test_the_key_comes_from_the_version(tmp_path: Path) -> None:
    home = Home.open(str(tmp_path / "home"))
    write_delta(tmp_path / "nodes", [("2025-01-10", NODES)])
    write_delta(tmp_path / "edges", [("2025-01-10", EDGES)])
    wanted = recipe(f"delta:{tmp_path}")
    heard = Heard()
    made = run_stage(STAGE, wanted, {}, home, listener=heard)
    assert made.manifest.num_nodes == 30
    assert any("version 0 of 2025-01-10T00:00:00+00:00, the newest" in text for text in heard.texts)
    source = made.manifest.config["source"]["nodes node"]
    assert (source["format"], source["version"]) == ("delta", "0")
    assert run_stage(STAGE, wanted, {}, home).cached
    append_delta(tmp_path / "edges", "2025-02-10", {"src": [6], "dst": [1]})
    assert run_stage(STAGE, wanted, {}, home).cached  # one version in one process
    OPENED.clear()
    assert stage_key(STAGE, wanted, {}, home) != made.manifest.key
    earlier = recipe(f"delta:{tmp_path}", snapshot={"as_of": "2025-01-31"})
    assert open_dataset(earlier).config.edges[0].files == (f"delta:{tmp_path}/edges@2025-01-31",)
    OPENED.clear()
    assert stage_key(STAGE, earlier, {}, home) == made.manifest.key
    copied = tmp_path / "copy"
    shutil.copytree(tmp_path / "nodes", copied / "nodes")
    shutil.copytree(tmp_path / "edges", copied / "edges")
    OPENED.clear()
    assert stage_key(STAGE, recipe(f"delta:{copied}"), {}, home) == stage_key(STAGE, wanted, {}, home)


def test_snapshots_by_versions_are_for_versioned_tables(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no table is one that keeps its versions"):
        recipe(str(tmp_path), snapshot={"as_of": "2025", "by": "versions"})
    wanted = recipe(f"delta:{tmp_path}", snapshot={"as_of": "2025-06", "by": "auto"})
    assert (wanted.version_moment, wanted.time_moment) == ("2025-06", None)
    wanted = recipe(f"delta:{tmp_path}", snapshot={"as_of": "2025-06", "by": "times"})
    assert (wanted.version_moment, wanted.time_moment) == (None, "2025-06")


def database_recipe(folder: Path, **changes: Any) -> Any:
    section = database(
        **{name: {"files": f"delta:{folder}/{name}"} for name in ROWS},
        predict={"at": {"first": "2022-01-05", "last": "newest", "every": "90d"}, "unlabelled": ["newest"]},
    )
    return build_recipe({"name": "shop", "dataset": section, "model": {"name": "heterosage"}, **changes})


def test_a_database_as_it_was_and_moments_that_move_with_it(tmp_path: Path) -> None:
    for name, columns in ROWS.items():
        known = range(4, len(columns["buy"]) + 1) if name == "buys" else [None]
        dates = ["2022-11-02", "2023-02-02", "2023-04-02", "2023-08-02", "2024-01-01"]
        parts = [{key: cells[:count] for key, cells in columns.items()} for count in known]
        if name == "lines":
            parts = [{key: cells[:5] for key, cells in columns.items()}, columns]
            dates = ["2022-11-02", "2024-01-01"]
        typed = [{key: pa.array(cells) for key, cells in part.items()} for part in parts]
        write_delta(tmp_path / name, list(zip(dates, typed, strict=False)))
    home = Home.open(str(tmp_path / "home"))

    def moments(as_of: str | None) -> tuple[Any, list[str]]:
        OPENED.clear()
        changes = {} if as_of is None else {"snapshot": {"as_of": as_of}}
        made = run_stage(STAGE, database_recipe(tmp_path, **changes), {}, home)
        ids = DatasetStore(made.folder, made.manifest).read("ids/task", ["original_id"]).column(0).to_pylist()
        return made, sorted({text.partition("@")[2] for text in ids})

    now, dates_now = moments(None)
    # The newest row is of 2023-12-31: the last moment whose horizon is over, and the end of the data.
    assert dates_now[-2:] == ["2023-09-27", "2024-01-01"]
    then, dates_then = moments("2022-12")
    assert dates_then == ["2022-01-05", "2022-04-05", "2022-07-04", "2022-11-02"]
    assert {one.name: one.num_nodes for one in then.manifest.node_types}["buys"] == 4
    assert {one.name: one.num_nodes for one in now.manifest.node_types}["buys"] == 8
    assert moments("2022-11-30")[0].cached  # nothing was written in between
    assert database_recipe(tmp_path, snapshot={"as_of": "2022-12"}).time_moment is None


def test_a_database_without_versions_has_no_snapshots(tmp_path: Path) -> None:
    section = database()
    values = {"name": "shop", "dataset": section, "model": {"name": "heterosage"}, "snapshot": {"as_of": "2022-12"}}
    with pytest.raises(RecipeError, match=r"moments of its own \(dataset.predict.at\), and no table is one that keeps"):
        build_recipe(values)
    section["tables"]["buys"]["files"] = "delta:buys@3"
    with pytest.raises(RecipeError, match="of which none is named"):
        build_recipe(values)
    section["tables"]["buys"]["files"] = "delta:buys"
    with pytest.raises(RecipeError, match="leave it out"):
        build_recipe({**values, "snapshot": {"as_of": "2022-12", "by": "times"}})
    with pytest.raises(RecipeError, match="warm_start is for snapshots by times"):
        build_recipe({**values, "snapshot": {"as_of": "2022-12", "warm_start": True}})
    with pytest.raises(RecipeError, match="versions of tables are made at dates"):
        check_snapshot(build_recipe({**values, "snapshot": {"as_of": 1718000000}}))
