from __future__ import annotations

import os

# Before torch and DGL are loaded: their idle threads spin, and tests share the cores with servers and workers.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import signal
import sys
from pathlib import Path

import pytest

from configs import trust
from tasks.storage.home import Home

# pytest keeps the test files with their assertions rewritten (7 s of a start), if Python may keep anything.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# `nohup` and background jobs have them ignored, and what a test starts inherits that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def _nobody_has_allowed_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a new process does: no file may run but graphmill's own."""
    monkeypatch.delenv(trust.VARIABLE, raising=False)
    monkeypatch.setattr(trust, "_allowed", set())
    trust.remember_in(None)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


@pytest.fixture
def shared_data() -> Path:
    """Real data sets that lie beside a developer's checkout; tests that want them are skipped where they are not."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no ../shared/data here")
    return SHARED_DATA
