"""`graphmill start --watch` where the server goes away meanwhile."""

from __future__ import annotations

import http.server
import threading

import httpx
import pytest

from configs.errors import StageError
from flows.commands.runs import start
from tests.ports import free_port


class _Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


def test_a_server_that_is_away_is_named_at_once_and_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    port, servers = free_port(), []

    def question() -> int:
        if len(servers) < 2:  # the first time nobody listens
            servers.append(http.server.HTTPServer(("127.0.0.1", port), _Ok) if servers else None)
        if servers[-1] is not None:
            threading.Thread(target=servers[-1].handle_request, daemon=True).start()
        with httpx.Client(trust_env=False) as client:
            return client.get(f"http://127.0.0.1:{port}").status_code

    assert start._answer(question) == 200
    servers[-1].server_close()
    (away,) = capsys.readouterr().err.splitlines()
    assert away.startswith("the Prefect server does not answer, waiting for it; it is started by: ")


def test_a_server_that_stays_away_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_AWAY_SECONDS", 0.0)

    def question() -> None:
        raise httpx.ConnectError("refused")

    with pytest.raises(StageError, match=r"has not answered for 0 minutes; .*graphmill.* runs$"):
        start._answer(question)
