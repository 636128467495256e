from __future__ import annotations

import os

# Before torch and DGL are loaded: their idle threads spin, and tests share the cores with servers and workers.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# Kernels are compiled once for all clones: see models/kernel_cache.py.
os.environ.setdefault("NUMBA_CACHE_DIR", os.path.expanduser("~/.cache/graphmill/kernels"))  # noqa: PTH111
# `train.device=auto` is the CPU here on every machine: what a GPU changes, `python -m tests.gpu` asks.
if "GRAPHMILL_GPU_TESTS" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
# A test that asks Prefect for a server, and has none, is refused: Prefect would start one that outlives pytest.
os.environ["PREFECT_SERVER_EPHEMERAL_ENABLED"] = "false"

import gc
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from configs import trust
from tasks.storage.home import Home
from tests.needs import count_skips, is_complete
from tests.warm_python import forked_processes

# pytest keeps the test files with their assertions rewritten (7 s of a start), if Python may keep anything.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# `nohup` and background jobs have them ignored, and what a test starts inherits that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# Files that wait for servers come first, so that no worker of xdist begins with them when the others are done.
FIRST = (
    "tests/operations/",
    "tests/cluster/",
    "tests/docker/",
    "tests/flows/",
    "tests/train/",
    "tests/test_bare_image.py",
)
# Folders and files whose tests are about what workers and servers do, not about how processes begin and end.
FORKED = (
    *("tests/apply/", "tests/benchmarks/", "tests/docs/", "tests/evaluate/", "tests/models/", "tests/publish/"),
    *("tests/sampling/", "tests/train/"),
    "tests/flows/test_shards.py",
)
IN_MEMORY, ROOM = Path("/dev/shm"), 6 << 30
SHARED_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest make the folders of tests in memory where there is room, but for long tests, which measure it.

    Databases and checkpoints there are flushed thousands of times; a disk takes milliseconds for each.
    """
    if config.option.markexpr != "not slow" or not os.access(IN_MEMORY, os.W_OK):
        return
    if shutil.disk_usage(IN_MEMORY).free > ROOM and not os.statvfs(IN_MEMORY).f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))  # pytest's own variable


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((i for i, start in enumerate(FIRST) if item.nodeid.startswith(start)), len(FIRST)))


def pytest_collection_finish() -> None:
    """Thousands of tests and all modules stay to the end: no collection of garbage needs to look at them again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal and not is_complete(count_skips(terminal.stats.get("skipped", ()))):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skips = count_skips(terminalreporter.stats.get("skipped", ()))
    if skips:
        terminalreporter.section("skipped tests by reason", red=not is_complete(skips))
    for text, count in sorted(skips.items()):
        terminalreporter.line(f"{count:6}  {text}")
    if not is_complete(skips):
        terminalreporter.line("FAILED: here no test may be skipped because something is lacking", red=True)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With `-n 2` a file's tests stay together, for what they share, and so do those of the services."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return FIRST[0] if nodeid.startswith(FIRST[0]) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return Scheduler(config, log)


@pytest.fixture(scope="session", autouse=True)
def _no_test_leaves_a_file_in_the_current_folder() -> Iterator[None]:
    def listed() -> set[str]:
        return {path.name for path in Path.cwd().iterdir()} - kept

    kept = {".pytest_cache", ".hypothesis", "__pycache__", "build"}
    kept |= {".ruff_cache", ".mypy_cache", ".import_linter_cache"}  # `make check` lints meanwhile

    before = listed()
    yield
    assert listed() <= before


@pytest.fixture(scope="module", autouse=True)
def _forked_workers(request: pytest.FixtureRequest) -> Iterator[None]:
    """The workers of stages begin without waiting for their imports."""
    if not request.node.nodeid.startswith(FORKED):
        yield
        return
    with forked_processes():
        yield


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)
