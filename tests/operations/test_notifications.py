"""Notifications arrive: a real HTTP server and a real SMTP server listen."""

from __future__ import annotations

import email
import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.operations.conftest import Installation
from tests.operations.test_deployments import deploy, start

# Slow: each run is a quarter of a minute on an idle machine, ten times that on a loaded one.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def inbox() -> Iterator[tuple[str, list[dict[str, str]]]]:
    messages: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", messages
        server.shutdown()


@pytest.fixture
def mailbox() -> Iterator[tuple[int, list[str]]]:
    """The least of an SMTP server."""
    mails: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 ready")
            while line := self.rfile.readline().decode().strip():
                word = line.partition(" ")[0].upper()
                if word == "DATA":
                    self._say("354 go on")
                    mails.append(self._mail())
                self._say("221 bye" if word == "QUIT" else "250 ok")
                if word == "QUIT":
                    return

        def _mail(self) -> str:
            lines = []
            while (line := self.rfile.readline().decode()) != ".\r\n":
                lines.append(line)
            return "".join(lines)

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], mails
        server.shutdown()


def test_failure_recovery_and_champion_are_told(
    installation: Installation, inbox: tuple[str, list[dict[str, str]]]
) -> None:
    url, messages = inbox
    installation.run("notify", "add", "team", "--webhook", url)
    assert installation.json("notify", "list")["channels"] == [
        {"name": "team", "kind": "Custom Webhook", "on": ["failure", "recovery", "champion"]}
    ]
    installation.run("notify", "test", "team")
    assert messages.pop()["text"].startswith("This is a test")
    deploy(installation, "told", "--set", "tracking.model_name=told")
    assert start(installation, "told", {"options": {"train": {"device": "cuda"}}}).ok
    installation.wait(lambda: any("Failed" in m["title"] for m in messages))
    (failure,) = (m for m in messages if "Failed" in m["title"])
    assert "torch sees no GPU" in failure["text"]
    assert "/runs/flow-run/" in failure["text"]
    assert start(installation, "told", {"options": {"seed": 61}}).ok
    installation.wait(lambda: len(messages) >= 3)
    titles = sorted(message["title"] for message in messages if "Failed" not in message["title"])
    assert titles == ["tiny: new champion", "tiny: well again"]
    (champion,) = (m for m in messages if m["title"].endswith("champion"))
    assert "told version 1 is champion" in champion["text"]
    installation.run("notify", "remove", "team")
    assert installation.json("notify", "list")["channels"] == []
    assert "no channel 'team'" in installation.run("notify", "test", "team", ok=False).stderr


def test_mail_arrives(installation: Installation, mailbox: tuple[int, list[str]]) -> None:
    port, mails = mailbox
    url = f"mailto://127.0.0.1:{port}?from=graphmill@example.org&to=me@example.org&mode=insecure"
    installation.run("notify", "add", "me", "--email", url, "--on", "failure")
    installation.run("notify", "test", "me")
    message = email.message_from_string(mails[0])
    assert message["Subject"] == "graphmill"
    assert "me@example.org" in message["To"]
    installation.run("notify", "remove", "me")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["--webhook", "--slack", "--email"]),
        (["--slack", "hooks.slack.com"], ["--slack", "https://"]),
        (["--email", "me@example.org"], ["mailtos://"]),
        (["--webhook", "http://x/", "--on", "failures"], ["failures", "failure"]),
    ],
)
def test_wrong_channels_are_refused(installation: Installation, options: list[str], words: list[str]) -> None:
    done = installation.run("notify", "add", "wrong", *options, ok=False)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
    assert "wrong" not in installation.run("notify", "list").stdout
