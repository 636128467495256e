"""Who asks what kind of task something is: the kinds. A new one is one folder."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from tasks import kinds
from tasks.evaluate.worker import EvaluateJob, evaluate
from tasks.kinds.of import kind_named, kind_of
from tests.finished import dataset
from tests.flows.conftest import ROOT
from tests.support import as_partition, node_graph

KINDS = ("tasks/kinds/", "tasks/preprocess/splits/", "tasks/ingest/")
NAMES = {"task", "task_type", "family"}
ALLOWED = {
    "models/facts.py": 4,  # where names of tasks are given their meaning
    "configs/schema.py": 4,  # families of models, which are no kinds of tasks
    "tasks/train/families.py": 1,
    "tasks/train/stage.py": 3,
    "tasks/train/loaders/configs.py": 1,
    "flows/pipeline/limits.py": 1,
    "flows/commands/recipes/plan.py": 3,  # artifacts of whatever stage: their pictures, their sizes
    "tasks/publish/plots/run_plots.py": 3,
    "tasks/sizes.py": 1,
}
"""Lines, most, by file."""


def asks(node: ast.AST) -> bool:
    """Whether a task, type of task or family is compared with constants, or chooses from a dictionary."""
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
        return any(map(_is_name, parts)) and any(map(_is_constant, parts))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
        return "Manifest" in ast.unparse(node.args[1])
    if isinstance(node, ast.Subscript):
        return _is_name(node.slice)
    return isinstance(node, ast.Match) and _is_name(node.subject)


def _is_name(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id in NAMES) or (isinstance(node, ast.Attribute) and node.attr in NAMES)


def _is_constant(node: ast.AST) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return True
    named = isinstance(node, ast.Name) and node.id.isupper()
    of_class = isinstance(node, ast.Attribute) and ast.unparse(node)[0].isupper()
    return named or of_class or (isinstance(node, ast.Constant) and node.value is not None)


def lines_that_ask() -> Iterator[tuple[str, int]]:
    for top in ("configs", "flows", "models", "tasks"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(KINDS):
                tree = ast.parse(path.read_text())
                narrowing = {id(node.test) for node in ast.walk(tree) if isinstance(node, ast.Assert)}
                for node in ast.walk(tree):
                    if asks(node) and id(node) not in narrowing:
                        yield name, node.lineno  # type: ignore[attr-defined]


def test_only_kinds_ask_for_kinds() -> None:
    """A switch belongs into a kind, which is asked; facts of labels and of splits' rows have names of their own."""
    counts = Counter(name for name, _ in set(lines_that_ask()))
    assert {name: count for name, count in counts.items() if count > ALLOWED.get(name, 0)} == {}
    assert sum(ALLOWED.values()) <= 40
    assert len(ALLOWED) <= 14


def test_what_asks_is_seen() -> None:
    for text in ('x.task == "node"', 'task not in ("a", "b")', "{}[task_type]", "isinstance(x, GraphManifest)"):
        assert any(map(asks, ast.walk(ast.parse(text)))), text
    for text in ("task is None", "task in config.tasks", "a == b", "isinstance(x, Layout)", "tasks[0]"):
        assert not any(map(asks, ast.walk(ast.parse(text)))), text


TOY = '''
"""Nodes whose scores are read as one number: how many nodes their split has."""

from tasks.controls.suite import Controls
from tasks.kinds.node import NodeKind


class Counting(NodeKind):
    """Says of nodes how many there are."""

    words = "nodes to count"

    def controls(self, graph, num_scores):
        return Controls()

    def diagnose(self, opened, split, prediction):
        return {"counted": len(prediction.scores)}


KIND = Counting()
'''


def test_a_new_kind_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found by the name that a data set's manifest has, and evaluated like any other."""
    (tmp_path / "more" / "counting").mkdir(parents=True)
    (tmp_path / "more" / "counting" / "__init__.py").write_text(TOY)
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path / "more")])
    with pytest.raises(DataError, match="no kind of task 'cuonting'"):
        kind_named("cuonting")
    graph: Any = as_partition(node_graph(tmp_path / "graph"))
    manifest = graph.manifest.model_copy(update={"task": "counting"})
    (graph.folder / "manifest.json").write_text(manifest.model_dump_json())
    assert kind_of(manifest).words == "nodes to count"
    data = dataset(tmp_path / "data", graph)
    checkpoint = _trained(tmp_path, graph)
    job = EvaluateJob(
        checkpoint=checkpoint,
        graph=graph.folder,
        dataset=data.folder,
        work=tmp_path,
        evaluator={"name": "accuracy"},
        splits=["valid", "test"],
        predictions=True,
        label_shares=[],
        most_labelled=10,
        batch_size=64,
        device="cpu",
        threads=1,
    )
    fields = evaluate(job)
    assert fields["report"]["counted"] == manifest.splits["test"]
    assert set(fields["metrics"]) == {"valid", "test"}
    assert fields["controls"] == {}
    assert (tmp_path / "predictions.parquet").exists()


def _trained(tmp_path: Path, graph: Any) -> Path:
    from configs.load import build_recipe
    from tests.train.in_process import make_job, train_here

    options = ["train.epochs=1", "train.threads=1", "train.device=cpu", "train.loader=full"]
    job = make_job(build_recipe({"name": "x", "dataset": "synthetic", "model": "gcn"}, options), graph, tmp_path / "t")
    manifest = (graph.folder / "manifest.json").read_text()
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    train_here(job)
    (graph.folder / "manifest.json").write_text(manifest)
    return job.work / "best.pt"


def test_kinds_are_found_without_torch() -> None:
    from tests.test_architecture import _modules_after

    names = ("node", "graph", "link", "triple", "ranking", "several", "layout")
    loaded = _modules_after(f"    from tasks.kinds.of import kind_named\n    for name in {names!r}: kind_named(name)")
    assert not loaded & {"torch", "numba", "scipy", "pandas"}
    assert np.__name__ in loaded
