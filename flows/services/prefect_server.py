"""Prefect's server behind a doorkeeper: only its own names, only its own pages.

`python -m flows.services.prefect_server --host H --port P` serves what `prefect server start` serves. Prefect itself
answers under every Host and lets foreign pages send what browsers call simple requests; so a page that a user of this
machine has open could talk to a server on loopback (DNS rebinding, forms). Here such requests get 400 and 403.

`GRAPHMILL_ALLOWED_HOSTS` and `GRAPHMILL_ALLOWED_ORIGINS` hold the names, with commas between.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
HOSTS = "GRAPHMILL_ALLOWED_HOSTS"
ORIGINS = "GRAPHMILL_ALLOWED_ORIGINS"


class Doorkeeper:
    """ASGI middleware: refuses requests with a foreign Host (400) or a foreign Origin (403)."""

    def __init__(self, app: App, hosts: frozenset[str], origins: frozenset[str]) -> None:
        """`hosts` are names without port; `origins` are whole, `http://host:port`."""
        self._app = app
        self._hosts = hosts
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(dict(scope["headers"]))
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            status, text = refusal
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": text.encode()})

    def _refusal(self, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if without_port(host) not in self._hosts:
            return 400, "unknown host: start graphmill up with --public-name to allow it\n"
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        if origin and origin not in self._origins:
            return 403, "requests from this page are refused\n"
        return None


def without_port(host: str) -> str:
    """Return `host` of `host:port`, also of `[::1]:port`."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if ":" in host else host


_writing: ContextVar[bool] = ContextVar("graphmill_writing", default=False)


def write_lock_first() -> None:
    """Let every transaction on SQLite take the write lock when it begins.

    Prefect begins most of them as readers that become writers later. When another one has written in between, SQLite
    can but refuse ("database is locked"), at once, whatever the time-out says; one that begins as a writer waits.
    Inside of such a transaction Prefect opens other sessions, some with a transaction and some without: as writers they
    would wait for themselves, and so they begin as Prefect has it.
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

    from flows.notifications import blocks

    assert blocks  # the automations that send e-mail run in this process
    write_lock_first()
    return Doorkeeper(create(final=True), _words(HOSTS), _words(ORIGINS))


def _words(variable: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in os.environ.get(variable, "").split(",") if word.strip())


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=4200)
    given = parser.parse_args()
    import uvicorn

    uvicorn.run(
        "flows.services.prefect_server:create_app",
        factory=True,
        host=given.host,
        port=given.port,
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()
