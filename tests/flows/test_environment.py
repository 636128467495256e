"""Neither proxies nor files of the current folder say anything to Prefect and to clients of this machine's servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path

import pytest

from flows.environment.prefect_files import startup_path
from flows.environment.proxies import reach_directly
from flows.services.commands import worker_service
from flows.services.settings import ServiceSettings
from tasks.storage.home import Home
from tests.flows.conftest import called, command, environment, write_recipe
from tests.ports import Fine

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


def without_proxies(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.lower().endswith("_proxy")}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = HTTPServer(("", 0), Fine)
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
    variables = {**without_proxies(environment()), "PREFECT_API_URL": url, **proxies}
    done = called([sys.executable, "-c", _ASK, url], env=variables)
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


FILES = {
    "prefect.toml": 'profiles_path = "{folder}/profiles.toml"\n[logging]\nconfig_path = "{folder}/evil.yml"\n',
    "pyproject.toml": '[tool.prefect]\nprofiles_path = "{folder}/profiles.toml"\n'
    '[tool.prefect.logging]\nconfig_path = "{folder}/evil.yml"\n',
    ".env": "PREFECT_PROFILES_PATH={folder}/profiles.toml\nPREFECT_LOGGING_CONFIG_PATH={folder}/evil.yml\n",
}
# Prefect's own logging.yml with one more filter, whose making is a command of the shell.
EVIL = "version: 1\nfilters:\n  f:\n    (): os.system\n    command: 'touch {folder}/ran.$$'\n"
PROFILES = 'active = "evil"\n[profiles.evil]\nPREFECT_LOGGING_CONFIG_PATH = "{folder}/evil.yml"\n'


def cloned(folder: Path, *names: str) -> Path:
    place = folder / "cloned"
    place.mkdir()
    texts = {name: FILES[name] for name in names}
    for name, text in {**texts, "evil.yml": EVIL, "profiles.toml": PROFILES}.items():
        (place / name).write_text(text.format(folder=place))
    return place


@pytest.fixture(params=sorted(FILES))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return cloned(tmp_path, request.param)


def _python(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    values = {**environment(), "PYTHONSAFEPATH": "1", "PREFECT_HOME": str(folder.parent / "prefect"), **variables}
    return called([sys.executable, *arguments], cwd=folder, env=values)


def test_a_command_and_its_server(tmp_path: Path) -> None:
    folder = cloned(tmp_path, *FILES)
    words = command(tmp_path / "home", "run", str(write_recipe(tmp_path)), "--only", "ingest")
    done = _python(folder, *words[1:])
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("ran.*"))


_NAMES = (
    "import prefect.settings as s; v = s.get_current_settings(); "
    "print(v.logging.config_path, v.profiles_path, s.Settings().logging.config_path, s.temporary_settings)"
)


def test_settings_of_a_process_of_ours(folder: Path) -> None:
    done = _python(folder, "-c", f"import flows; {_NAMES}")
    assert done.returncode == 0, done.stderr
    assert str(folder) not in done.stdout
    assert str(folder.parent / "prefect" / "logging.yml") in done.stdout


def test_what_a_worker_starts(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    path = worker_service(Home.open(tmp_path / "home"), ServiceSettings()).environment["PYTHONPATH"]
    done = _python(folder, "-c", _NAMES, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert str(folder) not in done.stdout
    assert "sitecustomize" not in done.stderr


def test_the_files_would_be_read_otherwise(folder: Path) -> None:
    assert str(folder) in _python(folder, "-c", _NAMES).stdout


def test_the_environment_still_counts(folder: Path) -> None:
    done = _python(folder, "-c", f"import flows; {_NAMES}", PREFECT_LOGGING_CONFIG_PATH="/mine.yml")
    assert "/mine.yml" in done.stdout


def test_a_path_of_the_user_s_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/one:/two")
    assert startup_path().split(os.pathsep)[1:] == ["/one", "/two"]
