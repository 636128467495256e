"""Graphs are prepared and models trained and evaluated where neither servers nor DGL, OGB or METIS are installed.

Images for GPUs have torch and little else; what only orchestrates, tracks or reads OGB must not be needed there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = """\
import sys
ABSENT = {"prefect", "mlflow", "dgl", "ogb", "pymetis"}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
RUN = """\
import sys
from pathlib import Path
from configs.load import load_recipe
from tasks.calls import load_stage
from tasks.stage import run_stage
from tasks.storage.home import Home
try:
    import prefect
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("prefect is there")
recipe, home, made = load_recipe(sys.argv[1], sys.argv[3:]), Home.open(Path(sys.argv[2])), {}
for name in ("ingest", "preprocess", "components", "partition", "train", "evaluate"):
    made[name] = run_stage(load_stage(name), recipe, dict(made), home).parent
print(made["evaluate"].manifest.metrics["test"][made["evaluate"].manifest.metric])
"""


@pytest.mark.parametrize(
    ("recipe", "overrides", "least"),
    [
        (
            "quickstart",
            [
                "dataset.num_nodes=2000",
                "dataset.num_edges=12000",
                "partition={name: none, num_parts: 1}",
                "train.epochs=3",
            ],
            0.3,
        ),
        ("knowledge-graph", ["train.epochs=10"], 0.2),
    ],
)
def test_models_train_without_what_orchestrates(
    tmp_path: Path, recipe: str, overrides: list[str], least: float
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCK)  # workers of the stages read it too
    here = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), here])}
    command = [sys.executable, "-c", RUN, recipe, str(tmp_path / "home"), *overrides]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) > least
