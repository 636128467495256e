"""Services on PostgreSQL: a cluster of our own on a free port; many partitions at once."""

from __future__ import annotations

import json
import os
import pwd
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import graphmill
from tests.operations.conftest import Installation, bring_up
from tests.operations.test_deployments import deploy

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not BINARIES, reason="no PostgreSQL here: sudo bash scripts/debian.sh --developer"),
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an empty database. PostgreSQL refuses to run as root."""
    folder = tmp_path_factory.mktemp("postgres")
    port = _free_port()
    user = "postgres" if os.geteuid() == 0 else None
    if user is not None:
        _open_to_others(folder)
        account = pwd.getpwnam(user)
        os.chown(folder, account.pw_uid, account.pw_gid)
    data, tools = folder / "data", BINARIES[-1]
    subprocess.run(
        [tools / "initdb", "-D", data, "-U", "me", "-A", "trust"], user=user, check=True, capture_output=True
    )
    options = f"-p {port} -k '' -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=100"
    start = [tools / "pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start"]
    subprocess.run(start, user=user, check=True, capture_output=True)
    address = ["-h", "127.0.0.1", "-p", str(port), "-U", "me"]
    subprocess.run([tools / "createdb", *address, "graphmill"], check=True, capture_output=True)
    yield f"postgresql+asyncpg://me:secret@127.0.0.1:{port}/graphmill"
    subprocess.run([tools / "pg_ctl", "-D", data, "-m", "immediate", "stop"], user=user, capture_output=True)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _open_to_others(folder: Path) -> None:
    """Let another user reach the folder: pytest's temporary folders are their owner's alone."""
    for parent in (folder, *folder.parents):
        if parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(0o755)


@pytest.fixture(scope="module")
def on_postgres(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    found = bring_up(tmp_path_factory.mktemp("on-postgres"), "--database", database, "--limit", "4")
    yield found
    graphmill(found.home, "down")


def test_both_servers_live_in_one_database(on_postgres: Installation, database: str) -> None:
    import psycopg

    url = database.replace("postgresql+asyncpg", "postgresql")
    with psycopg.connect(url) as connection:
        rows = connection.execute("select table_schema, table_name from information_schema.tables").fetchall()
    tables = set(rows)
    assert ("public", "flow_run") in tables
    assert ("mlflow", "registered_models") in tables
    assert not list((on_postgres.home / "mlflow").glob("*.db"))
    assert "secret" not in on_postgres.run("status").stdout


def test_a_backfill_goes_through(on_postgres: Installation) -> None:
    _go_through(on_postgres, "few", 2)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("number", [300])
def test_many_partitions_on_postgres(on_postgres: Installation, number: int) -> None:
    """They differ in the model's name, so that the training is shared: the queue is what is tried."""
    _go_through(on_postgres, "many", number, "tracking.model_name", "publish")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fifty_partitions_on_sqlite(installation: Installation) -> None:
    _go_through(installation, "fifty", 50)


def _go_through(installation: Installation, name: str, number: int, key: str = "seed", stage: str = "train") -> None:
    """No run is lost, none is doubled, and no database complains. `stage` is made anew for each value of `key`."""
    deploy(installation, name, "--set", "train.epochs=1")
    values = ",".join(str(value) if key == "seed" else f"{name}-{value}" for value in range(number))
    asked = ["backfill", "create", name, "--grid", f"{key}={values}", "--id", name, "--max-active", "4"]
    installation.run(*asked)
    installation.run(*asked)  # again: it must add nothing
    installation.run("backfill", "watch", name)
    status = installation.json("backfill", "status", name)
    assert status["counts"] == {"completed": number}
    assert Counter(row["attempts"] for row in status["partitions"]) == {1: number}
    runs = installation.api("flow_runs/count", {"flow_runs": {"tags": {"all_": [f"backfill:{name}"]}}})
    assert runs == number
    made = [json.loads(path.read_text()) for path in installation.home.glob(f"artifacts/{stage}/*/manifest.json")]
    assert len({json.dumps(manifest["config"]) + str(manifest["seed"]) for manifest in made}) >= number
    for path in (installation.home / "services" / "logs").glob("*.log"):
        text = path.read_text()
        assert "database is locked" not in text, path
        assert "OperationalError" not in text, path
