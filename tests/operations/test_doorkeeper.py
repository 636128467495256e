"""The doorkeeper before our servers, with any app behind it."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from configs.errors import RecipeError
from flows.services.commands import hosts, origins
from flows.services.settings import ServiceSettings, checked_names
from flows.web.doorkeeper import Access, Doorkeeper, one_user

HOUSE = Access(frozenset({"localhost:4200", "[::1]:4200"}), frozenset({"http://localhost:4200"}))
LOCKED = Access(HOUSE.hosts, HOUSE.origins, one_user("graphmill:pass:word"), open_path="/api/health")
OWN = ("Host", "localhost:4200")


def _ask(house: Access, *headers: tuple[str, str], kind: str = "http", **scope: str) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    whole = {"type": kind, "method": "GET", "path": "/", "headers": raw, **scope}
    asyncio.run(Doorkeeper(app, house)(whole, None, send))
    return sent


def _status(house: Access, *headers: tuple[str, str], **scope: str) -> int:
    return _ask(house, *headers, **scope)[0]["status"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Host", "LOCALHOST:4200")], 200),
        ([("Host", "[::1]:4200")], 200),
        ([("Host", "localhost.evil.example")], 400),
        ([("Host", "localhost:4200@evil.example")], 400),
        ([("Host", "localhost")], 400),
        ([OWN, OWN], 400),
        ([], 400),
        ([OWN, ("Origin", "HTTP://localhost:4200")], 200),
        ([OWN, ("Origin", "null")], 403),
        ([OWN, ("Origin", "http://localhost:4200"), ("Origin", "http://localhost:4200")], 403),
    ],
)
def test_only_own_names_and_own_pages(headers: list[tuple[str, str]], status: int) -> None:
    assert _status(HOUSE, *headers) == status


def test_a_socket_of_a_foreign_page_is_closed() -> None:
    sent = _ask(HOUSE, OWN, ("Origin", "https://evil.example"), kind="websocket")
    assert sent == [{"type": "websocket.close", "code": 1008}]


def _basic(text: str, scheme: str = "Basic") -> tuple[str, str]:
    return "Authorization", f"{scheme} {base64.b64encode(text.encode()).decode()}"


RIGHT = _basic("graphmill:pass:word")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([RIGHT], 200),
        ([_basic("graphmill:pass:word", "basic")], 200),
        ([], 401),
        ([RIGHT, RIGHT], 401),
        ([_basic("graphmill:pass")], 401),
        ([_basic("graphmill:pässword")], 401),
        ([("Authorization", "Basic ***")], 401),
        ([("Authorization", "Bearer graphmill:pass:word")], 401),
    ],
)
def test_strangers_see_nothing(headers: list[tuple[str, str]], status: int) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "POST"):
        for path in ("/", "/docs", "/api/healthy", "/api/health/", "//api/health"):
            assert _status(LOCKED, OWN, *headers, method=method, path=path) == status
    sent = _ask(LOCKED, OWN, *headers, kind="websocket")
    assert (sent == [{"type": "websocket.close", "code": 1008}]) == (status == 401)


def test_probes_need_no_password_but_a_name() -> None:
    assert _status(LOCKED, OWN, path="/api/health") == 200
    assert _status(LOCKED, OWN, path="/api/health", method="POST") == 401
    assert _status(LOCKED, ("Host", "evil.example"), path="/api/health") == 400
    assert dict(_ask(LOCKED, OWN)[0]["headers"])[b"www-authenticate"].startswith(b"Basic")


@pytest.mark.parametrize("credentials", ["", "graphmill", "graphmill:"])
def test_an_empty_password_is_none(credentials: str) -> None:
    with pytest.raises(ValueError, match="needs a password"):
        one_user(credentials)


def test_which_names_are_allowed() -> None:
    settings = ServiceSettings(host="0.0.0.0", public_names=("graphs.example", "near:8443"))
    own = ["localhost:4200", "127.0.0.1:4200", "[::1]:4200"]
    assert hosts(settings, 4200) == [*own, "graphs.example:4200", "near:8443", "graphs.example"]
    pages = origins(settings, 4200)
    assert {"http://localhost:4200", "https://graphs.example", "https://near:8443"} < set(pages)
    assert not {"http://graphs.example", "http://localhost", "http://near"} & set(pages)
    assert "localhost" in hosts(settings, 80), "browsers name no port where it is 80"
    assert "http://localhost" in origins(settings, 80)
    assert ServiceSettings(public_names=("near:8443",)).prefect_pages == "http://near:8443"


@pytest.mark.parametrize("name", ["", "*", "a,b", "http://a", "a/b", "a b", "a:x", "me@a", ".a", "a.", "*.example"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(RecipeError, match="--public-name"):
        checked_names([name], "--public-name")
    assert checked_names(["A.example", "a.example", "[::1]:80"], "--public-name") == ("a.example", "[::1]:80")
