"""A proxy in the environment is for other machines: every client that we use asks this one's servers directly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from flows.environment.proxies import reach_directly
from tests.flows.conftest import ROOT, environment

NOWHERE = "http://127.0.0.1:9"
_ASK = """
import flows, json, os, sys, urllib.request
import httpx, requests
url = sys.argv[1]
said = [
    httpx.get(url).status_code,
    requests.get(url).status_code,
    urllib.request.urlopen(url).status,
]
print(json.dumps([said, os.environ.get("NO_PROXY"), os.environ.get("no_proxy")]))
"""


class _Fine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def without_proxies(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.lower().endswith("_proxy")}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = HTTPServer(("", 0), _Fine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.5"])
@pytest.mark.parametrize(
    ("proxies", "kept"),
    [
        ({"http_proxy": NOWHERE, "https_proxy": NOWHERE}, ""),
        (
            {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "ALL_PROXY": NOWHERE, "NO_PROXY": "a.org, .b.org"},
            "a.org,.b.org,",
        ),
        ({"all_proxy": "socks5h://127.0.0.1:9", "no_proxy": ""}, ""),
        ({"http_proxy": NOWHERE, "no_proxy": "[::1]:4200,fd00::/8,10.0.0.0/8"}, "10.0.0.0/8,"),
    ],
    ids=["http", "all", "socks", "brackets"],
)
def test_servers_of_this_machine_are_asked_directly(port: int, host: str, proxies: dict[str, str], kept: str) -> None:
    url = f"http://{host}:{port}/api"
    done = subprocess.run(
        [sys.executable, "-c", _ASK, url],
        env={**without_proxies(environment()), "PREFECT_API_URL": url, **proxies},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    codes, *said = json.loads(done.stdout)
    assert codes == [200, 200, 200]
    for text in said:
        assert text.startswith(f"{kept}localhost,127.0.0.1")


def test_what_no_proxy_says_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ.keys() - without_proxies({**os.environ}).keys()]:
        monkeypatch.delenv(name)
    assert reach_directly("10.1.2.3") == {}
    monkeypatch.setenv("NO_PROXY", "*")
    assert reach_directly() == {"NO_PROXY": "*", "no_proxy": "*"}
    monkeypatch.setenv("http_proxy", NOWHERE)
    monkeypatch.setenv("NO_PROXY", "A.org,127.0.0.1")
    monkeypatch.setenv("no_proxy", "b.org")
    assert reach_directly("10.1.2.3", "[fd00::5]") == {
        "NO_PROXY": "A.org,127.0.0.1,localhost,::1,10.1.2.3,fd00::5",
        "no_proxy": "b.org,localhost,127.0.0.1,::1,10.1.2.3,fd00::5",
    }
