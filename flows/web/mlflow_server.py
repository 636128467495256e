"""MLflow's server behind the doorkeeper.

`mlflow server --app-name graphmill ...` serves what `mlflow server` serves: pyproject.toml names `create_app` as an app
of that name. Where there is a password (`MLFLOW_AUTH_CONFIG_PATH`), MLflow's users and permissions are on, and nobody
sees anything before MLflow knows them.
"""

from __future__ import annotations

import os

from flows.web.doorkeeper import HOSTS, ORIGINS, SAME_USER, Access, App, Doorkeeper, words_of

APP_NAME = "graphmill"


def create_app() -> App:
    """Return MLflow's app behind the doorkeeper."""
    hosts, origins = words_of(HOSTS), words_of(ORIGINS)
    if not os.environ.get("MLFLOW_AUTH_CONFIG_PATH"):
        from mlflow.server.fastapi_app import app

        return Doorkeeper(app, Access(hosts, origins, same_user=SAME_USER in os.environ))
    from mlflow.server import auth

    def accepts(user: str, password: str) -> bool:
        return auth._authenticate_cached(user, password) is not None

    return Doorkeeper(auth.create_app(), Access(hosts, origins, accepts))
