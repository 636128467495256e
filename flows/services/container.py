"""What a container starts: the services of `graphmill up`, each by itself, with secrets that it reads from files.

    python -m flows.services.container serve-prefect    Prefect's server
    python -m flows.services.container serve-mlflow     MLflow's server
    python -m flows.services.container upgrade-mlflow   bring MLflow's tables to this version, then end
    python -m flows.services.container work             a worker, and recovery beside it
    python -m flows.services.container COMMAND ...      any other command, as a client of both servers (if any)

Servers in containers listen on all interfaces: nothing starts without credentials. What is read from the environment:

    GRAPHMILL_PREFECT_URL, GRAPHMILL_MLFLOW_URL   where the servers are; their ports are those that they listen on
    GRAPHMILL_PUBLIC_NAMES                        host names that browsers and clients use, with commas between
    GRAPHMILL_PREFECT_PAGES, GRAPHMILL_MLFLOW_PAGES   addresses for links that people open; default: as above
    GRAPHMILL_PASSWORD_FILE                       password of the user `graphmill` on both servers
    GRAPHMILL_DATABASE, GRAPHMILL_DATABASE_PASSWORD_FILE   postgresql://USER@HOST/NAME and its password (servers)
    GRAPHMILL_MLFLOW_SECRET_FILE                  signs MLflow's sessions (its server)
    GRAPHMILL_ARTIFACTS                           where MLflow keeps artifacts: file:///... or s3://... (its server)
    GRAPHMILL_POOL, GRAPHMILL_LIMIT               work pool and how many runs at a time (worker)
    GRAPHMILL_KEEP_EVENTS, GRAPHMILL_KEEP_RUNS    how long Prefect keeps them: 7d and 90d, or `forever` (its server)
    GRAPHMILL_RECOVERY                            `off` for all workers of an installation but one
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote, urlsplit

from configs.errors import GraphmillError, RecipeError, StageError, UserError
from configs.matching import did_you_mean
from flows.environment.quiet import QUIET
from flows.services.commands import (
    Service,
    client_environment,
    mlflow_service,
    prefect_service,
    recovery_service,
    service_environment,
    worker_service,
)
from flows.services.health import health_file
from flows.services.settings import ServiceSettings, checked_names, kept_seconds
from flows.services.supervisor import keep_running
from tasks.processes.children import ROOT
from tasks.storage.home import Home

ROLES = ("serve-prefect", "serve-mlflow", "upgrade-mlflow", "work")
HELP = "docker/README.md says how the secrets are made"
_SHORTEST = {"GRAPHMILL_PASSWORD_FILE": 12, "GRAPHMILL_MLFLOW_SECRET_FILE": 32, "GRAPHMILL_DATABASE_PASSWORD_FILE": 12}
_BOOTSTRAP_SECONDS = 300


def main(arguments: list[str]) -> int:
    """Do what the first argument says; return the exit code where there is something to return from."""
    if not arguments:
        raise RecipeError(f"say what to start: {', '.join(ROLES)} or a command")
    role, home = arguments[0], Home.open()
    if role == "serve-prefect":
        _serve(prefect_service(home, server_settings(os.environ)))
    if role == "serve-mlflow":
        _serve(mlflow_service(home, server_settings(os.environ, mlflow=True)))
    if role == "upgrade-mlflow":
        # `mlflow db upgrade URL`, but everybody sees a command line, and the URL holds the password.
        code = "import os; from mlflow.db import commands; commands(['upgrade', os.environ['STORE']])"
        environment = {**os.environ, **QUIET, "STORE": server_settings(os.environ).mlflow_database or ""}
        return subprocess.run([sys.executable, "-c", code], env=environment).returncode
    if role == "work":
        return _work(home)
    # Without servers a command works by itself, as it does outside of containers.
    servers = client(home, os.environ) if os.environ.get("GRAPHMILL_PREFECT_URL") else {}
    try:
        os.execvpe(role, arguments, {**os.environ, **QUIET, **servers})
    except FileNotFoundError:
        raise RecipeError(f"no command {role!r}{did_you_mean(role, ROLES)}; services: {', '.join(ROLES)}") from None


def server_settings(environment: Mapping[str, str], *, mlflow: bool = False) -> ServiceSettings:
    """Return the settings of a server, and prepare its database. Raises RecipeError for what is missing or unfit."""
    from flows.services.settings import check_database

    settings = read_settings(environment).model_copy(
        update={
            "database": _database(environment),
            "artifacts": _required(environment, "GRAPHMILL_ARTIFACTS") if mlflow else None,
            "mlflow_secret": read_secret(environment, "GRAPHMILL_MLFLOW_SECRET_FILE") if mlflow else "",
        }
    )
    check_database(settings)
    return settings


def read_settings(environment: Mapping[str, str]) -> ServiceSettings:
    """Return what servers and their clients both need. Raises RecipeError for what is missing or unfit."""
    names = environment.get("GRAPHMILL_PUBLIC_NAMES", "")
    limit = environment.get("GRAPHMILL_LIMIT", "2")
    if not limit.isdecimal() or int(limit) < 1:
        raise RecipeError(f"GRAPHMILL_LIMIT={limit!r}: how many runs at a time, 1 or more")
    return ServiceSettings(
        host="0.0.0.0",
        public_names=checked_names((name for name in names.split(",") if name.strip()), "GRAPHMILL_PUBLIC_NAMES"),
        prefect_port=_port(environment, "GRAPHMILL_PREFECT_URL"),
        mlflow_port=_port(environment, "GRAPHMILL_MLFLOW_URL"),
        pool=environment.get("GRAPHMILL_POOL", "graphmill"),
        limit=int(limit),
        keep_events=kept_seconds(environment.get("GRAPHMILL_KEEP_EVENTS") or "7d", "GRAPHMILL_KEEP_EVENTS"),
        keep_runs=kept_seconds(environment.get("GRAPHMILL_KEEP_RUNS") or "90d", "GRAPHMILL_KEEP_RUNS"),
        password=read_secret(environment, "GRAPHMILL_PASSWORD_FILE"),
    )


def read_secret(environment: Mapping[str, str], variable: str) -> str:
    """Return the content of the file that a variable names. Raises RecipeError where there is none worth the name."""
    path = Path(_required(environment, variable))
    try:
        secret = path.read_text().strip()
    except OSError as error:
        raise RecipeError(f"{variable}={path}: {error.strerror}; {HELP}") from error
    if len(secret) < _SHORTEST[variable] or not secret.isascii() or not secret.isprintable() or set(secret) & set(" %"):
        raise RecipeError(
            f"{variable}={path}: {_SHORTEST[variable]} letters, digits and signs or more are wanted, "
            f"without spaces and per-cent signs; {HELP}"
        )
    return secret


def client(home: Home, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment by which a process finds the servers and is let in."""
    prefect, mlflow = (_required(environment, f"GRAPHMILL_{name}_URL").rstrip("/") for name in ("PREFECT", "MLFLOW"))
    return {
        **client_environment(home, read_settings(environment)),
        "PREFECT_API_URL": f"{prefect}/api",
        "PREFECT_UI_URL": environment.get("GRAPHMILL_PREFECT_PAGES") or prefect,
        "MLFLOW_TRACKING_URI": mlflow,
        "GRAPHMILL_TRACKING": mlflow,
    }


def _serve(service: Service) -> NoReturn:
    health_file().write_text(service.health_url)
    os.chdir(ROOT)
    os.execve(service.command[0], service.command, service_environment(service))


def _work(home: Home) -> int:
    settings, servers = read_settings(os.environ), client(home, os.environ)
    port = os.environ.get("PREFECT_WORKER_WEBSERVER_PORT", "8080")
    prepare = [sys.executable, "-m", "flows.services.bootstrap", settings.pool]
    environment = {**os.environ, **QUIET, **servers}
    done = subprocess.run(prepare, cwd=ROOT, env=environment, timeout=_BOOTSTRAP_SECONDS)
    if done.returncode:
        raise StageError(f"the Prefect server at {servers['PREFECT_API_URL']} could not be prepared (see above)")
    worker = worker_service(home, settings)
    services = [Service("worker", [*worker.command, "--with-healthcheck"], {**worker.environment, **servers})]
    if os.environ.get("GRAPHMILL_RECOVERY", "on") != "off":
        recovery = recovery_service(home, settings)
        services.append(Service("recovery", recovery.command, {**recovery.environment, **servers}))
    health_file().write_text(f"http://127.0.0.1:{port}/health")
    os.chdir(ROOT)
    return keep_running(services)


def _database(environment: Mapping[str, str]) -> str:
    url = _required(environment, "GRAPHMILL_DATABASE")
    parts = urlsplit(url)
    if not parts.scheme.startswith("postgresql") or not (parts.username and parts.hostname and parts.path.strip("/")):
        raise RecipeError(
            f"GRAPHMILL_DATABASE={parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()}: "
            "postgresql://USER@HOST:PORT/NAME is wanted"
        )
    if parts.password is not None:
        raise RecipeError(
            "GRAPHMILL_DATABASE holds a password; put it into the file of GRAPHMILL_DATABASE_PASSWORD_FILE"
        )
    password = quote(read_secret(environment, "GRAPHMILL_DATABASE_PASSWORD_FILE"), safe="")
    user, _, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{password}@{place}").geturl()


def _port(environment: Mapping[str, str], variable: str) -> int:
    url = _required(environment, variable).rstrip("/")
    parts = urlsplit(url)
    try:
        return parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        raise RecipeError(f"{variable}={url}: http://HOST:PORT is wanted") from None


def _required(environment: Mapping[str, str], variable: str) -> str:
    value = environment.get(variable, "").strip()
    if not value:
        raise RecipeError(f"{variable} is not set; {HELP}")
    return value


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except GraphmillError as error:
        print(f"graphmill: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
