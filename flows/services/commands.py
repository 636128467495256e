"""How each service is started: its command line and its environment. `docker/` starts the same commands."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass, field

from flows.environment.prefect_files import startup_path
from flows.environment.proxies import reach_directly
from flows.environment.quiet import QUIET
from flows.services.settings import FOR_EVER, USER, ServiceSettings, folder, has_port
from flows.web.doorkeeper import HOSTS, ORIGINS, SAME_USER
from flows.web.mlflow_server import APP_NAME
from tasks.storage.artifacts import write_atomic
from tasks.storage.home import Home


@dataclass(frozen=True)
class Service:
    """A process to start."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    health_url: str = ""
    """Answers 200 when the service does its work; empty: the process lives."""


def services(home: Home, settings: ServiceSettings) -> list[Service]:
    """Return the services in the order in which they start."""
    return [make(home, settings) for make in (prefect_service, mlflow_service, worker_service, recovery_service)]


def client_environment(home: Home, settings: ServiceSettings) -> dict[str, str]:
    """Return what a process needs to talk to these servers."""
    values = {
        "PREFECT_API_URL": f"{settings.prefect_url}/api",
        "PREFECT_UI_URL": settings.prefect_pages,
        "MLFLOW_TRACKING_URI": settings.mlflow_url,
        # Which store keeps runs, as cache keys name it. The server over the home's SQLite file has the same runs:
        # what was published without one need not be published again. PostgreSQL is another store.
        "GRAPHMILL_TRACKING": "home" if settings.database is None else "home's PostgreSQL",
        "GRAPHMILL_HOME": str(home.root),
        "PREFECT_HOME": str(home.prefect),
        # What a killed server's clients wait for its successor: 10 tries, up to about two minutes in all.
        "PREFECT_CLIENT_MAX_RETRIES": "10",
        # What the server says while its database restarts.
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
        # Says that a run lives, wherever it was started; the watch in `bootstrap.py` marks it as crashed when it stops.
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # the least
    }
    values |= reach_directly(settings.reachable_host)
    if settings.password is not None:
        values |= {
            "PREFECT_API_AUTH_STRING": f"{USER}:{settings.password}",
            "MLFLOW_TRACKING_USERNAME": USER,
            "MLFLOW_TRACKING_PASSWORD": settings.password,
        }
    return values


def prefect_service(home: Home, settings: ServiceSettings) -> Service:
    """Prefect's server: API, pages, scheduler, automations."""
    environment = {
        **QUIET,
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_UI_API_URL": "/api",  # relative: the pages work under every name of this host
        "PREFECT_UI_URL": settings.prefect_pages,  # what notifications link to
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(origins(settings, settings.prefect_port)),
        "PREFECT_API_URL": "",
        **_allowed_environment(settings, settings.prefect_port),
        # In memory, the default, a restart forgets who holds a slot of a limit: it would be held for ever.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
        # A worker that died is noticed after this; so is a run that nobody picked up.
        "PREFECT_SERVER_SERVICES_FOREMAN_LOOP_SECONDS": "10",
        "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "true",
        "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": f"PT{settings.keep_events or FOR_EVER:.0f}S",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": f"{settings.keep_runs or FOR_EVER:.0f}",
    }
    if settings.prefect_database is not None:
        environment["PREFECT_API_DATABASE_CONNECTION_URL"] = settings.prefect_database
    else:  # marking every waiting partition of a backfill as late is a write each, and says nothing
        environment["PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED"] = "false"
    if settings.password is not None:
        environment["PREFECT_SERVER_API_AUTH_STRING"] = f"{USER}:{settings.password}"
        environment["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] = "true"
    command = [sys.executable, "-m", "flows.web.prefect_server"]
    address = ["--host", settings.host, "--port", str(settings.prefect_port)]
    return Service("prefect", [*command, *address], environment, f"{settings.prefect_url}/api/health")


def mlflow_service(home: Home, settings: ServiceSettings) -> Service:
    """MLflow's server: runs, artifacts, model registry."""
    store = settings.mlflow_database or f"sqlite:///{home.mlflow / 'mlflow.db'}"
    port = settings.mlflow_port
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--app-name", APP_NAME]
    command += ["--artifacts-destination", settings.artifacts or (home.mlflow / "artifacts").as_uri()]
    command += ["--host", settings.host, "--port", str(port)]
    # Without the first every look at its health is a line, for months; for h11 see prefect_server.py.
    forwarded = " --no-proxy-headers" if _is_for_same_user(settings) else ""
    command += ["--uvicorn-opts", f"--no-access-log --http h11{forwarded}"]
    command += ["--allowed-hosts", ",".join(hosts(settings, port))]
    command += ["--cors-allowed-origins", ",".join(origins(settings, port))]
    environment = {
        **QUIET,
        **_allowed_environment(settings, port),
        "MLFLOW_BACKEND_STORE_URI": store,  # not on the command line: everybody sees that, and it may hold a password
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_TRACKING_URI": "",
    }
    if settings.password is not None:
        environment["MLFLOW_AUTH_CONFIG_PATH"] = str(_write_mlflow_users(home, settings))
        environment["MLFLOW_FLASK_SERVER_SECRET_KEY"] = settings.mlflow_secret
    return Service("mlflow", command, environment, f"{settings.mlflow_url}/health")


def worker_service(home: Home, settings: ServiceSettings) -> Service:
    """A worker that starts runs as processes of this machine."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--type", "process", "--pool", settings.pool]
    command += ["--name", f"{socket.gethostname()}", "--limit", str(settings.limit), "--install-policy", "never"]
    environment = {
        **QUIET,
        **client_environment(home, settings),
        "PREFECT_WORKER_QUERY_SECONDS": "5",
        # Its runs start in the folder that a deployment was made in, and import Prefect before anything of ours.
        "PYTHONPATH": startup_path(),
    }
    return Service("worker", command, environment)


def recovery_service(home: Home, settings: ServiceSettings) -> Service:
    """Looks after runs whose process, worker or machine went away."""
    command = [sys.executable, "-m", "flows.recovery", str(home.root)]
    return Service("recovery", command, {**QUIET, **client_environment(home, settings)})


def hosts(settings: ServiceSettings, port: int) -> list[str]:
    """Return all that a request's Host may be, for a server on this port."""
    return [*_with_port(settings, port), *_alone(settings, port)]


def origins(settings: ServiceSettings, port: int) -> list[str]:
    """Return where pages may come from that talk to a server on this port."""
    direct = [f"{scheme}://{host}" for scheme in ("http", "https") for host in _with_port(settings, port)]
    alone = _alone(settings, port)
    return direct + [f"https://{name}" for name in alone] + ([f"http://{name}" for name in alone] if port == 80 else [])


def _with_port(settings: ServiceSettings, port: int) -> list[str]:
    return [name if has_port(name) else f"{name}:{port}" for name in settings.names]


def _alone(settings: ServiceSettings, port: int) -> list[str]:
    """Names without a port: browsers name none on port 80, nor to a proxy that ends TLS before a public name."""
    names = settings.names if port == 80 else settings.public_names
    return [name for name in names if not has_port(name)]


def _allowed_environment(settings: ServiceSettings, port: int) -> dict[str, str]:
    same_user = "1" if _is_for_same_user(settings) else ""
    return {HOSTS: ",".join(hosts(settings, port)), ORIGINS: ",".join(origins(settings, port)), SAME_USER: same_user}


def _is_for_same_user(settings: ServiceSettings) -> bool:
    """Whether servers let in their own user alone; a proxy in front, which has a public name, may run as another."""
    return settings.password is None and not settings.public_names


def service_environment(service: Service) -> dict[str, str]:
    """Return this process's environment with the service's own values; an empty value takes a variable away."""
    merged = {**os.environ, **service.environment}
    return {name: value for name, value in merged.items() if value}


def _write_mlflow_users(home: Home, settings: ServiceSettings) -> str:
    path = folder(home) / "mlflow-auth.ini"
    database = settings.mlflow_database or f"sqlite:///{home.mlflow / 'users.db'}"
    lines = [
        "[mlflow]",
        "default_permission = READ",
        f"database_uri = {database.replace('%', '%%')}",
        f"admin_username = {USER}",
        f"admin_password = {settings.password}",
        # Each request is looked at twice, and a look at the stored hash takes tens of milliseconds. MLflow forgets at
        # once whom it changes.
        "auth_cache_ttl_seconds = 300",
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth",
        "",
    ]
    write_atomic(path, "\n".join(lines).encode(), mode=0o600)
    return str(path)
