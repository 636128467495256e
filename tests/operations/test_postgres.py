"""Services on PostgreSQL: a cluster of our own on a free port; many partitions at once."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.records.run_record import all_runs
from tasks.storage.home import Home
from tests.flows.conftest import command, environment, graphmill
from tests.operations.conftest import Installation, bring_up
from tests.operations.test_deployments import deploy
from tests.ports import free_port
from tests.postgres import BINARIES, USER, cluster_folder, needs_postgres

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), needs_postgres]


class Cluster:
    def __init__(self) -> None:
        self._tools, self._folder, port = BINARIES[-1], cluster_folder(), free_port()
        self._data = self._folder / "data"
        self._run("initdb", "-D", self._data, "-U", "me", "-A", "trust", "-E", "UTF8")
        self._options = f"-p {port} -k '' -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=100"
        self.start()
        self._port = port
        self.make("graphmill")
        self.url = f"postgresql+asyncpg://me:secret@127.0.0.1:{port}/graphmill"

    def make(self, name: str, *options: str) -> None:
        """Make a database."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self._port), "-U", "me", *options, name)

    def start(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-o", self._options, "-l", self._folder / "log", "-w", "start")

    def stop(self) -> None:
        """End it at once, and with it all connections."""
        self._run("pg_ctl", "-D", self._data, "-m", "fast", "-w", "stop")

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def _run(self, program: str, *arguments: str | Path) -> None:
        subprocess.run([self._tools / program, *arguments], user=USER, check=True, capture_output=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.remove()


@pytest.fixture
def shaky_cluster() -> Iterator[Cluster]:
    """One of the test's own: what it does to it is told in the logs."""
    made = Cluster()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def on_postgres(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    found = bring_up(tmp_path_factory.mktemp("on-postgres"), "--database", cluster.url, "--limit", "4")
    yield found
    graphmill(found.home, "down")


def test_both_servers_live_in_one_database(on_postgres: Installation, cluster: Cluster) -> None:
    import psycopg

    url = cluster.url.replace("postgresql+asyncpg", "postgresql")
    with psycopg.connect(url) as connection:
        rows = connection.execute("select table_schema, table_name from information_schema.tables").fetchall()
    tables = set(rows)
    assert ("public", "flow_run") in tables
    assert ("mlflow", "registered_models") in tables
    assert not list((on_postgres.home / "mlflow").glob("*.db"))
    assert "secret" not in on_postgres.run("status").stdout


def test_a_database_without_an_encoding_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    cluster.make("ascii", "--encoding=SQL_ASCII", "--template=template0", "--locale=C")
    refused = graphmill(tmp_path, "up", "--database", cluster.url.replace("/graphmill", "/ascii"))
    assert refused.returncode == 1
    assert "keeps texts as SQL_ASCII" in refused.stderr
    assert "createdb --encoding=UTF8" in refused.stderr


def test_a_backfill_goes_through(on_postgres: Installation) -> None:
    _go_through(on_postgres, "few", 2)


def test_restarts_of_the_database_cost_nothing(shaky_cluster: Cluster, tmp_path: Path) -> None:
    installation = bring_up(tmp_path, "--database", shaky_cluster.url, "--limit", "4")
    deploy(installation, "restarts", "--set", "train.epochs=1")
    asked = ["create", "restarts", "--grid", "seed=0..5", "--id", "restarts", "--max-active", "4"]
    installation.run("backfill", *asked)
    watching = subprocess.Popen(command(installation.home, "backfill", "watch", "restarts"), env=environment())
    restarts = 0
    try:
        while watching.poll() is None:
            time.sleep(random.uniform(2, 10))
            shaky_cluster.stop()
            time.sleep(3)
            shaky_cluster.start()
            restarts += 1
        status = installation.json("backfill", "status", "restarts")
    finally:
        watching.kill()
        graphmill(installation.home, "down")
    assert watching.returncode == 0
    assert restarts > 2
    assert status["counts"] == {"completed": 6}
    assert Counter(row["attempts"] for row in status["partitions"]) == {1: 6}


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
    records = [record for record in all_runs(Home(installation.home)) if f"backfill:{name}" in record.tags]
    assert Counter(record.status for record in records) == {"completed": number}
    assert len({record.stages[stage].key for record in records}) == number
    for path in (installation.home / "services" / "logs").glob("*.log"):
        text = path.read_text()
        assert "database is locked" not in text, path
        assert "sqlalchemy.exc" not in text, path
