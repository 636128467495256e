"""What tables of Delta Lake and Iceberg and catalogs' servers may not choose: code, endpoints, credentials, files."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from configs.errors import DataError
from tasks.ingest.tables.files import TableFiles
from tasks.readers.table_formats.opened import OPENED
from tests.ingest.versioned_tables import change_column, change_log, iceberg_catalog, write_delta

NAME = "iceberg:lake.shop.orders"
ROWS = {"id": [1, 2, 3]}


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    OPENED.clear()
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_", "GRAPHMILL_MACHINE")):
            monkeypatch.delenv(name)
    yield
    OPENED.clear()


def read(name: str) -> dict[str, list[Any]]:
    OPENED.clear()
    return pa.Table.from_batches([batch.data for batch in TableFiles((name,)).batches(["id"])]).to_pydict()


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `chosen` that can be imported; returns the file that it writes when it is."""
    ran = tmp_path / "ran"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "chosen.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass Class: pass\n")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    return ran


def change_metadata(catalog: Any, change: Callable[[dict[str, Any]], Any]) -> None:
    path = Path(catalog.load_table("shop.orders").metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))


def make_table(catalog: Any, **options: Any) -> Any:
    rows = pa.table(ROWS)
    table = catalog.create_table("shop.orders", schema=rows.schema, **options)
    table.append(rows)
    return table


@pytest.mark.parametrize(
    ("property", "value"),
    [
        ("py-io-impl", "chosen.Class"),
        ("s3.retry-strategy-impl", "chosen.Class"),
        ("write.py-location-provider.impl", "chosen.Class"),
        ("s3.endpoint", "http://127.0.0.1:9"),
        ("s3.access-key-id", "theirs"),
        ("s3.region", "evil.example/"),
        ("gcs.service.host", "http://127.0.0.1:9"),
        ("adls.connection-string", "theirs"),
        ("client.role-arn", "theirs"),
        ("hdfs.host", "127.0.0.1"),
    ],
)
def test_properties_of_a_table_choose_nothing(
    property: str, value: str, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = iceberg_catalog(tmp_path, monkeypatch)
    make_table(catalog)
    change_metadata(catalog, lambda metadata: metadata["properties"].update({property: value}))
    with pytest.raises(
        DataError, match=rf"set {property}, which chooses .*; nothing in data may choose that"
    ) as caught:
        read(NAME)
    assert value not in str(caught.value)
    assert not code.exists()
    assert "chosen" not in sys.modules


def test_properties_that_choose_nothing_or_what_the_configuration_says_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = iceberg_catalog(tmp_path, monkeypatch)
    make_table(catalog, properties={"write.location-provider.impl": "com.example.Java", "owner": "me"})
    change_metadata(catalog, lambda metadata: metadata["properties"].update({"s3.region": "eu-west-1"}))
    assert read(NAME) == ROWS
    change_metadata(catalog, lambda metadata: metadata["properties"].update({"s3.endpoint": "http://ours:9"}))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__ENDPOINT", "http://ours:9")
    assert read(NAME) == ROWS


def test_a_configuration_that_names_code_is_refused(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(iceberg_catalog(tmp_path, monkeypatch))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__PY_IO_IMPL", "chosen.Class")
    with pytest.raises(DataError, match="sets py-io-impl, which names code"):
        read(NAME)
    assert not code.exists()


def test_a_configuration_in_the_current_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  lake:\n    uri: sqlite:///{tmp_path}/catalog.db\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"in the current folder .* is not read"):
        read(NAME)


def test_files_outside_of_the_table_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").mkdir()
    catalog = iceberg_catalog(tmp_path / "lake", monkeypatch)
    elsewhere = make_table(catalog, location=f"file://{tmp_path}/secret")
    make = pa.table(ROWS)
    [data] = (tmp_path / "secret" / "data").glob("*.parquet")
    theirs = catalog.create_table("shop.theirs", schema=make.schema)
    theirs.add_files([f"file://{data}"])
    assert read(NAME) == ROWS
    with pytest.raises(DataError, match=r"names a file outside of its folder .*/theirs/: file://.*/secret/data/"):
        read("iceberg:lake.shop.theirs")
    inside = tmp_path / "lake" / "shop" / "theirs" / "data"
    inside.mkdir(parents=True, exist_ok=True)
    (inside / "link.parquet").symlink_to(data)
    linked = catalog.create_table("shop.linked", schema=make.schema, location=f"file://{tmp_path}/lake/shop/theirs2")
    linked.add_files([f"file://{inside}/link.parquet"])
    with pytest.raises(DataError, match="names a file outside of its folder"):
        read("iceberg:lake.shop.linked")
    assert elsewhere.location().endswith("secret")


def test_reading_makes_no_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(iceberg_catalog(tmp_path, monkeypatch))
    (tmp_path / "catalog.db").unlink()
    with pytest.raises(DataError, match=rf"the database of the catalog lake, {tmp_path}/catalog\.db, is not there"):
        read("iceberg:lake.shop.orders")
    assert not (tmp_path / "catalog.db").exists()
    (tmp_path / "catalog.db").touch()
    with pytest.raises(DataError, match="no such table"):
        read("iceberg:lake.shop.orders")
    assert (tmp_path / "catalog.db").stat().st_size == 0


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/metadata/x.json", "s3://bucket/metadata/x.json", "hf://a/b/c"])
def test_a_catalog_that_names_metadata_elsewhere(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    make_table(iceberg_catalog(tmp_path, monkeypatch))
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", (place,))
    database.close()
    with pytest.raises(DataError, match=r"needs credentials, and this machine is not asked|is read from files"):
        read(NAME)


class Answers(http.server.BaseHTTPRequestHandler):
    """A catalog's server with a configuration and one table."""

    config: dict[str, Any]
    table: dict[str, Any]
    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("X-Iceberg-Access-Delegation")))
        body = json.dumps(self.config if self.path.startswith("/v1/config") else self.table).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Answers]]:
    """Serve the table as the catalog `far`."""
    location = make_table(iceberg_catalog(tmp_path, monkeypatch)).metadata_location
    answers = type("Now", (Answers,), {"config": {"defaults": {}, "overrides": {}}, "asked": []})
    answers.table = {"metadata-location": location, "config": {}}
    answers.table["metadata"] = json.loads(Path(location.removeprefix("file://")).read_text())
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        monkeypatch.setenv("PYICEBERG_CATALOG__FAR__URI", f"http://127.0.0.1:{made.server_port}")
        yield answers
        made.shutdown()
        thread.join()


def test_answers_of_a_catalogs_server(server: type[Answers], code: Path) -> None:
    name = "iceberg:far.shop.orders"
    assert read(name) == ROWS
    assert {delegation for _, delegation in server.asked} == {""}  # no credentials are asked for
    chosen = {"py-io-impl": "chosen.Class"}, {"rest.sigv4-enabled": "true"}, {"uri": "http://127.0.0.1:9"}
    for part in ("defaults", "overrides"):
        for options in chosen:
            server.config = {part: options}
            if part == "overrides" or "uri" not in options:  # the configuration wins over a default
                with pytest.raises(DataError, match=rf"the server of the catalog far sets {next(iter(options))}"):
                    read(name)
    server.config = {"defaults": {"io-impl": "org.example.Java", "client.region": "eu-west-1"}}
    assert read(name) == ROWS
    for options in ({"py-io-impl": "chosen.Class"}, {"s3.access-key-id": "theirs"}, {"token": "theirs"}):
        server.table["config"] = options
        with pytest.raises(DataError, match=rf"the catalog's answer, set {next(iter(options))}"):
            read(name)
    server.table["config"] = {}
    server.table["metadata-location"] = "http://127.0.0.1:9/a/metadata/x.json"
    with pytest.raises(DataError, match=r"http:/+127\.0\.0\.1:9/a/"):
        read(name)
    assert not code.exists()


# ---- addresses and credentials


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9/t", "https://h/t", "opendal+fs:///etc", "hdfs://h/t", "uc://a.b"]
)
def test_addresses_that_are_not_read(address: str) -> None:
    with pytest.raises(DataError, match="tables are read from folders of this machine and from s3"):
        read(f"delta:{address}")


LISTEN = """
import http.server, os, subprocess, sys, threading
asked = []
class Metadata(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_PUT = do_GET
    def log_message(self, *args): pass
for command in ("ip link set lo up", "ip addr add 169.254.169.254/32 dev lo"):
    subprocess.run(command.split(), check=True)
server = http.server.ThreadingHTTPServer(("169.254.169.254", 80), Metadata)
threading.Thread(target=server.serve_forever, daemon=True).start()
from configs.errors import DataError
from tasks.ingest.tables.files import TableFiles
try:
    TableFiles((sys.argv[1],)).column_names()
except DataError as error:
    print(error)
print("ASKED", len(asked), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("address", "keys"),
    [
        ("s3://bucket/t", {}),
        ("s3://bucket/t", {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_MAX_ATTEMPTS": "1"}),
        ("gs://bucket/t", {}),
        ("abfss://c@account.dfs.core.windows.net/t", {}),
        ("abfss://c@account.dfs.core.windows.net/t", {"AZURE_CLIENT_ID": "a", "AZURE_CLIENT_SECRET": "b"}),
    ],
)
def test_the_machine_is_not_asked_for_credentials(address: str, keys: dict[str, str], tmp_path: Path) -> None:
    run = ["unshare", "--user", "--map-root-user", "--net", "true"]
    if shutil.which("ip") is None or shutil.which("unshare") is None or subprocess.run(run, check=False).returncode:
        pytest.skip("no network namespaces here")
    command = [*run[:-1], sys.executable, "-c", LISTEN, f"delta:{address}"]
    bare = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), **keys}

    def asked(**more: str) -> int:
        text = subprocess.run(command, env=bare | more, capture_output=True, text=True, check=True).stdout
        return int(text.partition("ASKED")[2])

    assert asked() == 0
    assert asked(GRAPHMILL_MACHINE_CREDENTIALS="1") > 0


# ---- what the log says of files


def change_add(folder: Path, **changes: Any) -> None:
    change_log(folder, lambda action: action.get("add", {}).update(changes))


def needing(*features: str) -> Callable[[dict[str, Any]], Any]:
    """Say that readers need features."""
    versions = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    return lambda action: action.update(protocol=versions) if "protocol" in action else None


def renamed(action: dict[str, Any]) -> None:
    physical = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "x"}
    change_column(action, "id", metadata=physical)


VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
LOGS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (needing("deletionVectors"), "deletion vectors.*DROP FEATURE deletionVectors"),
    (lambda action: action.get("add", {}).update(deletionVector={**VECTOR, "cardinality": 2}),
     "may be deleted by deletion vectors.*DROP FEATURE deletionVectors"),
    (needing("columnMapping"), "columns were renamed or dropped.*copy the table"),
    (renamed, "columns were renamed or dropped"),
    (needing("typeWidening"), "needs the features typeWidening of readers.*copy the table"),
    (lambda action: "commitInfo" not in action, "does not say when a version was made"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), LOGS)
def test_what_a_log_may_not_say(change: Callable[[dict[str, Any]], Any], message: str, tmp_path: Path) -> None:
    """Actions and columns count, whatever the protocol says."""
    name = write_delta(tmp_path / "t", [("2025-01-10", ROWS)])
    assert read(name) == ROWS
    change_log(tmp_path / "t", change)
    with pytest.raises(DataError, match=message):
        read(name)


@pytest.mark.parametrize(
    "where", ["../secret.parquet", "..%2Fsecret.parquet", "file:///{0}/secret.parquet", "s3://b/x"]
)
def test_files_outside_of_a_delta_table(where: str, tmp_path: Path) -> None:
    name = write_delta(tmp_path / "t", [("2025-01-10", ROWS)])
    [data] = (tmp_path / "t").glob("*.parquet")
    data.rename(tmp_path / "secret.parquet")
    change_add(tmp_path / "t", path=where.format(tmp_path))
    with pytest.raises(DataError, match="its log names a file outside of its folder"):
        read(name)


@pytest.mark.parametrize("is_folder", [False, True])
def test_links_out_of_a_delta_table(is_folder: bool, tmp_path: Path) -> None:
    name = write_delta(tmp_path / "t", [("2025-01-10", ROWS)])
    [data] = (tmp_path / "t").glob("*.parquet")
    (tmp_path / "elsewhere").mkdir()
    target = data.rename(tmp_path / "elsewhere" / "secret.parquet")
    if is_folder:
        (tmp_path / "t" / "sub").symlink_to(tmp_path / "elsewhere")
        change_add(tmp_path / "t", path="sub/secret.parquet")
    else:
        data.symlink_to(target)
    with pytest.raises(DataError, match="its log names a file outside of its folder"):
        read(name)
    (tmp_path / "whole").symlink_to(tmp_path / "t")
    if not is_folder:  # a link to the table is a name of it
        data.unlink()
        target.rename(data)
        assert read(f"delta:{tmp_path}/whole") == ROWS


def test_an_address_of_a_file_is_no_delta_table(tmp_path: Path) -> None:
    write_delta(tmp_path / "t", [("2025-01-10", ROWS)])
    with pytest.raises(DataError, match="is an address, and graphmill reads and writes files: name the path alone"):
        read(f"delta:file://{tmp_path}/t")


def test_moments_are_those_that_the_log_commits_to(tmp_path: Path) -> None:
    name = write_delta(tmp_path / "t", [("2025-01-10", ROWS)])
    change_log(tmp_path / "t", lambda action: action.get("commitInfo", {}).update(inCommitTimestamp=0))
    assert read(f"{name}@1970-01") == ROWS


# ---- deletions of Iceberg


def position_deletes(table: Any, content: Any, count: int) -> None:
    """Add a file of deletions to a table's newest snapshot, as another engine would."""
    from pyiceberg.manifest import DataFile, FileFormat

    [task] = table.scan().plan_files()
    path = f"{table.location()}/data/deletes.parquet"
    import pyarrow.parquet as pq

    rows = pa.table({"file_path": [task.file.file_path] * count, "pos": pa.array(range(count), pa.int64())})
    fields = [pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
              pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"})]  # fmt: skip
    pq.write_table(rows.cast(pa.schema(fields)), path.removeprefix("file://"))
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        update.append_data_file(
            DataFile.from_args(
                content=content, file_path=path, file_format=FileFormat.PARQUET, partition=task.file.partition,
                record_count=count, file_size_in_bytes=1000, equality_ids=[1],
            )
        )  # fmt: skip


def test_deletions_by_equality_are_refused_and_by_position_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.manifest import DataFileContent

    table = make_table(iceberg_catalog(tmp_path, monkeypatch), properties={"format-version": "2"})
    position_deletes(table, DataFileContent.POSITION_DELETES, 2)
    assert read(NAME) == {"id": [3]}
    position_deletes(table, DataFileContent.EQUALITY_DELETES, 1)
    with pytest.raises(DataError, match=r"equality deletes.*rewrite_data_files"):
        read(NAME)


def test_rows_that_the_manifests_do_not_count_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    make_table(iceberg_catalog(tmp_path, monkeypatch))
    [data] = tmp_path.glob("shop/orders/data/*.parquet")
    pq.write_table(pq.read_table(data).slice(0, 2), data)
    with pytest.raises(DataError, match="say that there are 3 rows, and 2 were read"):
        read(NAME)
