"""Graphs are prepared and models trained and evaluated where neither servers nor DGL, OGB or METIS are installed.

Images for GPUs have torch and little else; what only orchestrates, tracks or reads OGB must not be needed there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from configs.schema import STAGES

ROOT = Path(__file__).parents[1]
BLOCK = """\
import sys
ABSENT = {"prefect", "mlflow", "dgl", "ogb", "pymetis", "pytest_timeout", "sqlalchemy"}
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in ABSENT else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""

STARTS = """\
import subprocess
import sys
from tests.train.two_processes import run_program
from tests.warm_python import forked_processes
with forked_processes():
    subprocess.run([sys.executable, "-m", "tests.process_facts", "imports"], stdin=subprocess.DEVNULL, check=True)
run_program("carried", 2)
"""


@pytest.mark.parametrize(
    ("recipe", "overrides", "least"),
    [
        (
            "quickstart",
            ["dataset.num_nodes=2000", "dataset.num_edges=12000", "partition.num_parts=1", "train.epochs=3"],
            0.3,
        ),
        pytest.param("knowledge-graph", ["train.epochs=10"], 0.2, marks=pytest.mark.slow),
    ],
)
def test_models_train_without_what_orchestrates(
    tmp_path: Path, recipe: str, overrides: list[str], least: float
) -> None:
    assert "No module named 'prefect'" in run(tmp_path, "-c", "import prefect").stderr
    command = ["-m", "tasks.stages", recipe, "--home", str(tmp_path / "home"), *overrides]
    done = run(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for line in lines for name in line] == list(STAGES[:-1])
    measured = lines[-1]["evaluate"]
    assert measured["metrics"]["test"][measured["metric"]] > least
    again = run(tmp_path, *command, "--until", "train").stdout.splitlines()
    assert [each["status"] for line in again for each in json.loads(line).values()] == ["cached"] * 5


def test_a_mistake_is_told_in_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "tasks.stages", "quickstart", "train.epoch=3", "--home", str(tmp_path / "home"))
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert "did you mean 'epochs'?" in done.stderr
    assert "Traceback" not in done.stderr


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python without what is absent; so do the workers that it starts."""
    (folder / "sitecustomize.py").write_text(BLOCK)
    paths = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **more},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_tests_of_gpus_can_be_read_there(tmp_path: Path) -> None:
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    done = run(tmp_path, "-m", "tests.gpu", "--collect-only", "-p", "no:cacheprovider", **alone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_ranks.py" in done.stdout
    assert "test_triton.py" in done.stdout


def test_processes_that_tests_start_begin_there(tmp_path: Path) -> None:
    """Not forked, as what they are forked from imports Prefect; and with the folders that PYTHONPATH names."""
    (tmp_path / "carried.py").write_text("print('as a rank')")
    done = run(tmp_path, "-c", STARTS)
    assert done.returncode == 0, done.stderr


def test_the_benchmark_of_gpus_runs_there(tmp_path: Path) -> None:
    sizes = ["--nodes", "800", "--edges", "3000", "--features", "48", "--hidden", "8", "--fanout", "3,2,2"]
    work = ["--batch-size", "4", "--threads", "1", "--steps", "2", "--rounds", "1", "--device", "cpu"]
    folders = ["--out", str(tmp_path), "--home", str(tmp_path / "home")]
    done = run(tmp_path, "-m", "benchmarks.gpu", *sizes, *work, *folders)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["stages"]["float32, 1 sampling thread(s)"]["forward"] > 0
    assert found["operators"]["graphmill, bfloat16"]["ms"] > 0
    assert found["roofs"]["copy, GB/s"] > 0
    assert all(value > 0 for name, value in found["steps"].items() if not name.startswith("PyG"))
