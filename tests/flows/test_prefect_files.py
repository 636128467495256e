"""Files of the current folder say nothing to Prefect, in the process of a command, its server's and a worker's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.environment.prefect_files import startup_path
from flows.services.commands import worker_service
from flows.services.settings import ServiceSettings
from tasks.storage.home import Home
from tests.flows.conftest import command, environment, write_recipe

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
    """Return a folder with some of the files, all of which name what runs code."""
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
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=values, capture_output=True, text=True, timeout=120)


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
