"""PostgreSQL under both servers: reachable, and with a schema for MLflow beside Prefect's tables."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from configs.errors import RecipeError
from flows.services.settings import ServiceSettings

_WAIT_SECONDS = 10
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


def check_database(settings: ServiceSettings) -> None:
    """Make MLflow's schema if there is none. Raises RecipeError where the database cannot be used, and says why."""
    import psycopg

    assert settings.database is not None
    url = f"postgresql://{settings.database.partition('://')[2]}"
    place = database_place(url)
    try:
        with psycopg.connect(url, connect_timeout=_WAIT_SECONDS, autocommit=True) as connection:
            # Two that do this at once get in each other's way, IF NOT EXISTS or not; the lock goes with the connection.
            connection.execute("SELECT pg_advisory_lock(hashtext('graphmill'))")
            connection.execute("CREATE SCHEMA IF NOT EXISTS mlflow")
            # Prefect's migrations index texts by trigrams.
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except psycopg.Error as error:
        reason, password = str(error).strip().splitlines()[-1], urlsplit(url).password or ""
        for secret in filter(None, (password, unquote(password))):
            reason = reason.replace(secret, "***")
        raise RecipeError(f"--database: PostgreSQL at {place} cannot be used: {reason}") from None


def database_place(url: str) -> str:
    """Return host, port and database of an address. Raises RecipeError, without the password, where it cannot be read.

    A password with / ? # or @ as it is ends its part of the address too early, and libpq prints what it cannot decode.
    """
    credentials, _, rest = url.partition("://")[2].rpartition("@")
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname}:{parts.port or 5432}{parts.path}"
        clear = "@" not in credentials + parts.path + parts.query + parts.fragment
    except ValueError:
        place, clear = "", False
    if not clear or _BARE_PERCENT.search(credentials):
        raise RecipeError(
            f"--database: the address of {rest.partition('?')[0]} cannot be read; percent-encode the characters "
            "/ ? # @ : [ ] % of its user and password (%2F for /, %25 for %), and look whether the port is a number"
        )
    return place
