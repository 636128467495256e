"""Who may talk to a server: only under its own names, only its own pages, and only who has its password, if it has one.

Prefect by itself answers under every Host, MLflow takes any page of this machine for its own, and both show pages to
anybody: a page that a user has open could talk to a server on loopback (DNS rebinding, forms).
`GRAPHMILL_ALLOWED_HOSTS` and `GRAPHMILL_ALLOWED_ORIGINS` hold what passes, with commas between. Where
`GRAPHMILL_SAME_USER` is set, only processes of the server's own user, and root's, are let in.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from tasks.processes.doors import may_be_ours

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
HOSTS = "GRAPHMILL_ALLOWED_HOSTS"
ORIGINS = "GRAPHMILL_ALLOWED_ORIGINS"
SAME_USER = "GRAPHMILL_SAME_USER"


@dataclass(frozen=True)
class Access:
    """Which requests a doorkeeper lets in."""

    hosts: frozenset[str]
    """All texts that a `Host` header may be: `localhost:4200`. Lower case."""
    origins: frozenset[str] = field(default_factory=frozenset)
    """Where pages may come from: `http://localhost:4200`. Lower case."""
    accepts: Callable[[str, str], bool] | None = None
    """Whether a user and a password are right; None: credentials are not asked for."""
    same_user: bool = False
    """Whether only this user of this machine is let in. The client's address must be the connection's own."""
    open_path: str = "/health"
    """The one path that wants no credentials: probes ask it whether the server lives."""
    app_guards_websockets: bool = False
    """Whether the app itself asks for the password on web sockets: browsers and some clients cannot send it before."""


class Doorkeeper:
    """ASGI middleware: refuses foreign hosts and bad requests (400), foreign pages and users (403), strangers (401)."""

    def __init__(self, app: App, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refuse_place(scope) or await self._refuse_stranger(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            status, text = refusal
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            if status == 401:
                headers.append((b"www-authenticate", b'Basic realm="graphmill"'))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": text.encode()})

    def _refuse_place(self, scope: Scope) -> tuple[int, str] | None:
        """Refuse what is not meant for this server, or comes from a page that is not its own."""
        if not scope["path"].startswith("/"):  # the address of some server, as a proxy is asked
            return 400, "a path is wanted, not an address\n"
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        # Equal to a name that is allowed, as a whole: what is parsed can be parsed in two ways. (Starlette's
        # TrustedHostMiddleware compares without the port, and reads the first of two headers only.)
        if len(hosts) != 1 or hosts[0] not in self._access.hosts:
            return 400, "unknown host: start graphmill up with --public-name NAME[:PORT] to allow it\n"
        if len(origins) > 1 or any(origin not in self._access.origins for origin in origins):
            return 403, "requests from this page are refused\n"
        return None

    async def _refuse_stranger(self, scope: Scope) -> tuple[int, str] | None:
        """Refuse who has not said the password, where there is one, or is another user where only one may come."""
        access = self._access
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and scope["path"] == access.open_path:
            return None
        if access.same_user and not may_be_ours(tuple(scope["client"]), tuple(scope["server"])):
            return 403, "this server is for another user of this machine; graphmill up --host gives it a password\n"
        if access.accepts is None or (scope["type"] == "websocket" and access.app_guards_websockets):
            return None
        given = _basic([value for name, value in scope["headers"] if name.lower() == b"authorization"])
        if given is None or not await asyncio.to_thread(access.accepts, *given):
            return 401, "user and password are wanted\n"
        return None


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1").lower() for key, value in scope["headers"] if key.lower() == name]


def _basic(headers: list[bytes]) -> tuple[str, str] | None:
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(token.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None


def one_user(credentials: str) -> Callable[[str, str], bool]:
    """Return a check for the only pair of `user:password` that is right. Raises ValueError for an empty password."""
    if not credentials.partition(":")[2]:
        raise ValueError("a server that asks for credentials needs a password")

    def accepts(user: str, password: str) -> bool:
        return hmac.compare_digest(f"{user}:{password}".encode(), credentials.encode())

    return accepts


def words_of(variable: str) -> frozenset[str]:
    """Return the words of an environment variable, in lower case."""
    return frozenset(word.strip().lower() for word in os.environ.get(variable, "").split(",") if word.strip())
