"""PostgreSQL under both servers: reachable, and with a schema for MLflow beside Prefect's tables."""

from __future__ import annotations

from urllib.parse import urlsplit

from configs.errors import RecipeError
from flows.services.settings import ServiceSettings

_WAIT_SECONDS = 10


def check_database(settings: ServiceSettings) -> None:
    """Make MLflow's schema if there is none. Raises RecipeError where the database cannot be used, and says why."""
    import psycopg

    assert settings.database is not None
    url = f"postgresql://{settings.database.partition('://')[2]}"
    parts = urlsplit(url)
    place = f"{parts.hostname}:{parts.port or 5432}{parts.path}"
    try:
        with psycopg.connect(url, connect_timeout=_WAIT_SECONDS, autocommit=True) as connection:
            # Two that do this at once get in each other's way, IF NOT EXISTS or not; the lock goes with the connection.
            connection.execute("SELECT pg_advisory_lock(hashtext('graphmill'))")
            connection.execute("CREATE SCHEMA IF NOT EXISTS mlflow")
            # Prefect's migrations index texts by trigrams.
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except psycopg.Error as error:
        reason = str(error).strip().splitlines()[-1]
        raise RecipeError(f"--database: PostgreSQL at {place} cannot be used: {reason}") from error
