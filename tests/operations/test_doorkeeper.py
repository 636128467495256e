"""The doorkeeper before Prefect's server, with any app behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flows.services.prefect_server import Doorkeeper, without_port


async def _ask(kind: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    keeper = Doorkeeper(app, frozenset({"localhost", "[::1]"}), frozenset({"http://localhost:4200"}))
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await keeper({"type": kind, "headers": raw}, None, send)
    return sent


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:4200"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "[::1]:4200"}, 200),
        ({"Host": "localhost.evil.example"}, 400),
        ({"Host": "evil.example:4200"}, 400),
        ({}, 400),
        ({"Host": "localhost:4200", "Origin": "http://localhost:4200"}, 200),
        ({"Host": "localhost:4200", "Origin": "http://localhost:8000"}, 403),
        ({"Host": "localhost:4200", "Origin": "null"}, 403),
        ({"Host": "localhost:4200", "Origin": "https://evil.example"}, 403),
    ],
)
def test_only_own_names_and_own_pages(headers: dict[str, str], status: int) -> None:
    assert asyncio.run(_ask("http", headers))[0]["status"] == status


def test_a_socket_of_a_foreign_page_is_closed() -> None:
    sent = asyncio.run(_ask("websocket", {"Host": "localhost", "Origin": "https://evil.example"}))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_without_port() -> None:
    assert [without_port(host) for host in ("a:1", "a", "[::1]:1", "[::1]")] == ["a", "a", "[::1]", "[::1]"]
