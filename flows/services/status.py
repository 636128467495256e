"""What `graphmill status` and `logs` show of the services."""

from __future__ import annotations

import datetime
import json
import os
import subprocess

from configs.errors import RecipeError
from configs.matching import did_you_mean
from flows.services.settings import SERVICES, log_path, read_settings
from flows.services.state import is_same, is_up, read_state
from flows.terminal.console import format_seconds, out, print_facts, table
from tasks.storage.home import Home


def show_status(home: Home, *, as_json: bool) -> bool:
    """Print the services; return whether all are healthy."""
    settings, state, up = read_settings(home), read_state(home), is_up(home)
    healthy = up and state.healthy
    if as_json:
        addresses = {name: getattr(settings, name, None) for name in ("prefect_url", "mlflow_url", "pool")}
        services = {
            name: {**service.model_dump(exclude={"name", "born"}), "log": str(log_path(home, name))}
            for name, service in state.services.items()
        }
        print(json.dumps({"up": up, "healthy": healthy, **addresses, "services": services}))
        return healthy
    if settings is None or not (up or any(is_same(service) for service in state.services.values())):
        out().print("graphmill is not up; start it with: graphmill up")
        return False
    pool = f"pool {settings.pool}, limit {settings.limit}"
    places = {"prefect": settings.prefect_url, "mlflow": settings.mlflow_url, "worker": pool, "recovery": "dead runs"}
    rows = table("service", "", "where", "for", "restarts", right=("restarts",))
    for service in state.services.values():
        lives = is_same(service)
        word = "healthy" if service.healthy and lives else (service.trouble or "ended") if lives or up else "ended"
        began = datetime.datetime.fromisoformat(service.since) if lives else datetime.datetime.now(datetime.UTC)
        age = format_seconds((datetime.datetime.now(datetime.UTC) - began).total_seconds()) if lives else ""
        rows.add_row(service.name, word, places[service.name], age, str(service.restarts))
    out().print(rows)
    if not up:
        out().print("the supervisor is gone: nothing restarts these; take over with: graphmill up", style="yellow")
    database = f"SQLite in {home.prefect} and {home.mlflow}"
    if settings.database is not None:
        scheme, _, rest = settings.database.partition("://")
        database = f"{scheme}://{rest.rpartition('@')[2]}"
    print_facts(out(), [("database", database), ("logs", str(log_path(home, "worker").parent))])
    return healthy


def show_log(home: Home, service: str, lines: int, *, follow: bool) -> None:
    """Print the end of a service's log. Raises RecipeError for a service that there is not."""
    names = (*SERVICES, "supervisor")
    if service not in names:
        raise RecipeError(f"no service {service!r}{did_you_mean(service, names)}; there are {', '.join(names)}")
    path = log_path(home, service)
    if not path.exists():
        raise RecipeError(f"{service} has no log yet ({path}); start the services with: graphmill up")
    command = ["tail", "-n", str(lines), *(["-F"] if follow else []), str(path)]
    if follow:
        os.execvp(command[0], command)
    subprocess.run(command, check=True)
