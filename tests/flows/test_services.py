"""Servers that are starting or have gone down, `graphmill down`, and what `up` remembers."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import HTTPServer

import pytest

from configs.errors import RecipeError, StageError
from flows.services import addresses, operation
from flows.services.commands import prefect_service
from flows.services.operation import bring_down, checked_options, with_named_servers
from flows.services.settings import ServiceSettings, resolve, write_settings
from flows.services.state import SupervisorState, born, lock_path, write_state
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home
from tests.ports import Fine, free_port


@pytest.fixture
def url(home: Home) -> Iterator[str]:
    """The address of a home's Prefect server that does not listen yet, while its supervisor lives."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PREFECT_", "MLFLOW_", "GRAPHMILL_"))]:
            patch.delenv(name)
        kept = dict(os.environ)
        port = free_port()
        write_settings(home, ServiceSettings(prefect_port=port, mlflow_port=free_port()))
        with file_lock(lock_path(home)):
            addresses.connect(home)
        yield os.environ["PREFECT_API_URL"]
        for name in set(os.environ) - set(kept):
            del os.environ[name]


def test_a_server_that_is_starting_is_waited_for(home: Home, url: str) -> None:
    def start() -> None:
        time.sleep(1.0)
        with HTTPServer(("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])), Fine) as server:
            server.handle_request()

    starting = threading.Thread(target=start)
    with file_lock(lock_path(home)):
        starting.start()
        addresses.check_answers(url)
    starting.join()


def test_one_that_has_gone_down_is_named_as_graphmill_s_own(home: Home, url: str) -> None:
    lock = contextlib.ExitStack()
    lock.enter_context(file_lock(lock_path(home)))
    threading.Timer(0.5, lock.close).start()
    with pytest.raises(StageError, match=r"graphmill up's .* has just stopped; run again") as raised:
        addresses.check_answers(url)
    assert "PREFECT_API_URL" not in str(raised.value)


def test_one_that_never_starts_leads_to_its_log(home: Home, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_START_SECONDS", 0.5)
    with file_lock(lock_path(home)), pytest.raises(StageError, match="graphmill status"):
        addresses.check_answers(url)


def test_the_user_s_own_server_is_not_waited_for(home: Home) -> None:
    with file_lock(lock_path(home)), pytest.raises(StageError, match="unset PREFECT_API_URL"):
        addresses.check_answers(f"http://127.0.0.1:{free_port()}/api")


@pytest.fixture
def _own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


@pytest.mark.usefixtures("_own_store")
def test_a_store_of_runs_that_nobody_reaches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{free_port()}")
    with pytest.raises(
        StageError, match=r"URI=127\.0\.0\.1:\d+ does not answer .* unset MLFLOW_TRACKING_URI"
    ) as raised:
        addresses.check_tracking_store()
    assert "secret" not in str(raised.value)


@pytest.mark.usefixtures("_own_store")
@pytest.mark.parametrize("store", ["", "sqlite:///x.db", "/tmp/runs"])
def test_stores_that_are_no_servers_pass(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    addresses.check_tracking_store()


@pytest.mark.usefixtures("_own_store")
def test_a_server_without_a_page_of_health_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Fine):
        def do_GET(self) -> None:  # noqa: N802
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        addresses.check_tracking_store()
        answering.join()


SUPERVISOR = """
import sys, time
from flows.services.state import lock_path
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home
with file_lock(lock_path(Home.open(sys.argv[1]))):
    print("up", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("mark", ["", "boot:1"])
def test_another_process_of_its_number_is_spared(
    home: Home, victim: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    write_state(home, SupervisorState(process=victim.pid, born=mark))
    monkeypatch.setattr(operation, "_DOWN_SECONDS", 1.0)
    with file_lock(lock_path(home)), pytest.raises(StageError, match="does not say which process it is"):
        bring_down(home)  # the lock is that of a supervisor that has not written its state yet
    assert victim.poll() is None


def test_one_that_says_who_it_is_a_little_later_is_ended(home: Home, victim: subprocess.Popen[bytes]) -> None:
    write_state(home, SupervisorState(process=victim.pid, born="boot:1"))
    command = [sys.executable, "-c", SUPERVISOR, str(home.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout.readline() == b"up\n"
        down = threading.Thread(target=bring_down, args=(home,))
        down.start()
        time.sleep(0.5)
        assert supervisor.poll() is None
        write_state(home, SupervisorState(process=supervisor.pid, born=born(supervisor.pid)))
        down.join(30)
        assert not down.is_alive()
        assert supervisor.wait(10) < 0
    assert victim.poll() is None


def test_a_password_outlives_a_while_on_loopback() -> None:
    """MLflow's users keep the first one: another would lock everybody out."""
    open_to_all = resolve(ServiceSettings(host="0.0.0.0"))
    back = resolve(open_to_all.model_copy(update={"host": "127.0.0.1"}))
    assert open_to_all.password
    assert back.password is None
    assert resolve(back).former_password == open_to_all.password
    assert resolve(back.model_copy(update={"host": "0.0.0.0"})).password == open_to_all.password


def test_a_port_that_was_named_once_is_not_exchanged() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert resolve(ServiceSettings(prefect_port=port)).prefect_port != port
        with pytest.raises(RecipeError, match=f"--prefect-port {port}.*0 for any"):
            resolve(ServiceSettings(prefect_port=port, named_ports=("prefect",)))
    assert resolve(ServiceSettings(prefect_port=port, named_ports=("prefect",))).named_ports == ("prefect",)


@pytest.mark.parametrize("host", ["", " "])
def test_an_empty_host_is_not_every_interface(host: str) -> None:
    with pytest.raises(RecipeError, match="--host is empty"):
        resolve(ServiceSettings(host=host))


@pytest.mark.parametrize("pool", ["", " ", "a/b", "a%b", "<a>", "a\nb"])
def test_a_pool_is_called_as_prefect_wants_it(pool: str) -> None:
    with pytest.raises(RecipeError, match=r"--pool .*: a name without any of"):
        resolve(ServiceSettings(pool=pool))


def test_links_for_people_have_the_public_name() -> None:
    assert ServiceSettings(host="0.0.0.0", prefect_port=4200).prefect_pages == "http://127.0.0.1:4200"
    named = ServiceSettings(host="0.0.0.0", prefect_port=4200, public_names=("graphs.example.org",))
    assert named.prefect_pages == "http://graphs.example.org:4200"
    assert named.prefect_url == "http://127.0.0.1:4200"


@pytest.mark.parametrize("password", ["with[bracket", "with/slash", "℀"])
def test_a_password_is_never_told(password: str) -> None:
    with pytest.raises(RecipeError, match="names no database") as caught:
        resolve(ServiceSettings(database=f"postgresql+asyncpg://me:{password}@localhost/"))
    assert password not in str(caught.value)
    assert resolve(ServiceSettings(database=f"postgresql://me:{password}@localhost/x")).database


@pytest.mark.parametrize(
    ("options", "events", "runs"),
    [
        ({}, datetime.timedelta(days=7), datetime.timedelta(days=90)),
        ({"keep_events": "30d", "keep_runs": "52w"}, datetime.timedelta(days=30), datetime.timedelta(weeks=52)),
        ({"keep_events": "forever", "keep_runs": "forever"}, datetime.timedelta(100 * 365), datetime.timedelta(36500)),
    ],
)
def test_prefect_keeps_its_history_for_as_long_as_up_was_told(
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    events: datetime.timedelta,
    runs: datetime.timedelta,
) -> None:
    from prefect.settings.models.server.events import ServerEventsSettings
    from prefect.settings.models.server.services import ServerServicesDBVacuumSettings

    settings = ServiceSettings(prefect_port=1, mlflow_port=2).model_copy(update=checked_options(dict(options)))
    for name, value in prefect_service(home, settings).environment.items():
        monkeypatch.setenv(name, value)
    assert ServerEventsSettings().retention_period == events
    vacuum = ServerServicesDBVacuumSettings()
    assert vacuum.retention_period == runs
    assert {"events", "flow_runs"} <= vacuum.enabled_vacuum_types


@pytest.mark.parametrize("text", ["soon", "7", "1h", "0d", "-3d", "99999999w", ""])
def test_history_is_kept_a_day_at_least(text: str) -> None:
    with pytest.raises(RecipeError, match=r"^--keep-runs .*(is not an age|at least a day)"):
        checked_options({"keep_runs": text})


def test_named_servers_stand_for_those_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_AUTH_STRING", "PREFECT_UI_URL", "GRAPHMILL_TRACKING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_API_URL", "http://other:4200/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://other:5000")
    own = {"PREFECT_API_URL": "http://127.0.0.1:0/api", "GRAPHMILL_TRACKING": "home", "HOME": "/"}
    # Another machine's MLflow is no store of this home: its name must not stand in cache keys.
    assert with_named_servers(own) == {
        "HOME": "/",
        "PREFECT_API_URL": "http://other:4200/api",
        "MLFLOW_TRACKING_URI": "http://other:5000",
    }
