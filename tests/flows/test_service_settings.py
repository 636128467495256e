"""What `graphmill up` remembers of earlier ones."""

from __future__ import annotations

import datetime
import socket

import pytest

from configs.errors import RecipeError
from flows.services.commands import prefect_service
from flows.services.operation import checked_options, with_named_servers
from flows.services.settings import ServiceSettings, resolve
from tasks.storage.home import Home


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
