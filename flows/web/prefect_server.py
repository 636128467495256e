"""Prefect's server behind the doorkeeper (`doorkeeper.py`).

`python -m flows.web.prefect_server --host H --port P` serves what `prefect server start` serves.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from flows.web.doorkeeper import HOSTS, ORIGINS, SAME_USER, Access, App, Doorkeeper, one_user, words_of

CREDENTIALS = "PREFECT_SERVER_API_AUTH_STRING"

_writing: ContextVar[bool] = ContextVar("graphmill_writing", default=False)


def write_lock_first() -> None:
    """Let every transaction on SQLite take the write lock when it begins.

    Prefect begins most of them as readers that become writers later, which SQLite refuses at once where another one has
    written in between. Sessions that Prefect opens inside of one would wait for themselves: they begin as Prefect has
    it.
    """
    from prefect.server.database import configurations

    begin = configurations.AioSqliteConfiguration.begin_transaction

    @asynccontextmanager
    async def begin_as_writer(self: Any, session: Any, with_for_update: bool = False) -> AsyncIterator[Any]:
        outermost = not _writing.get()
        token = _writing.set(True)
        try:
            async with begin(self, session, with_for_update=with_for_update or outermost) as transaction:
                if outermost:
                    await session.connection()  # begins now; whatever begins after it is another session's
                    configurations.SQLITE_BEGIN_MODE.set("DEFERRED")  # Prefect puts back what was there before
                yield transaction
        finally:
            _writing.reset(token)

    configurations.AioSqliteConfiguration.begin_transaction = begin_as_writer  # type: ignore[method-assign]


def create_app() -> App:
    """Return Prefect's app behind the doorkeeper."""
    from prefect.server.api.server import create_app as create

    from flows.web import email_block

    assert email_block  # the automations that send e-mail run in this process
    write_lock_first()
    return guarded(create(final=True), words_of(HOSTS), words_of(ORIGINS))


def guarded(app: App, hosts: frozenset[str], origins: frozenset[str] = frozenset()) -> App:
    """Put the doorkeeper before an app of Prefect's; it asks for the credentials that Prefect's settings name."""
    credentials = os.environ.get(CREDENTIALS)
    accepts, same_user = None if credentials is None else one_user(credentials), SAME_USER in os.environ
    access = Access(hosts, origins, accepts, same_user, open_path="/api/health", app_guards_websockets=True)
    return Doorkeeper(app, access)


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=4200)
    given = parser.parse_args()
    import uvicorn

    uvicorn.run(
        "flows.web.prefect_server:create_app",
        factory=True,
        host=given.host,
        port=given.port,
        log_level="warning",
        lifespan="on",
        proxy_headers=SAME_USER not in os.environ,  # a header could say that the client is another
        http="h11",  # refuses malformed and doubled headers, and hides nothing of the request from the doorkeeper
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()
