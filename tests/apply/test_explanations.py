"""Explanations as files: under the users' own ids, for every kind of row that has some."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from configs.errors import RecipeError
from tasks.apply import run
from tasks.apply.run import OutputRequest
from tasks.explain.asked import ExplainRequest
from tasks.kinds.judged import Threshold
from tests.apply.test_worker import Case, links, nodes  # noqa: F401 -- fixtures

CLASSES = ["w", "x", "<b>y</b>", "z"]


def explain(case: Case, classes: list[str] | None = None, **asked: Any) -> tuple[dict[str, Any], Any]:
    given = asked.pop("given", {})
    threshold = asked.pop("threshold", None)
    request = ExplainRequest(**asked)
    done = case.serve("explanations", classes=classes, given=given, explained=request, threshold=threshold)
    return done, pq.read_table(case.folder / "work" / "explanations.parquet")


@pytest.mark.parametrize("threshold", [None, Threshold(3, 1e-6), Threshold(0, 0.9999)])
def test_nodes_are_explained_under_their_own_ids(nodes: Case, threshold: Threshold | None) -> None:  # noqa: F811
    predicted = nodes.serve(classes=CLASSES, threshold=threshold)
    assert predicted["rows"] == 301
    scores = {row["id"]: row for row in nodes.table().to_pylist()}
    done, table = explain(nodes, CLASSES, nodes=["user-7", "user-31"], threshold=threshold)
    for told in done["explained"]:
        of_class = scores[told["head"].split(":")[0]]["prediction"]
        assert f"probability of {of_class} " in told["head"]
    assert done["files"] == ["explanations.parquet", "explanations.html"]
    assert done["rows"] == len(table) > 20
    assert [told["head"].split(":")[0] for told in done["explained"]] == ["user-7", "user-31"]
    for row in table.to_pylist():
        np.testing.assert_allclose(row["score"], scores[row["node"]]["score"], atol=1e-5)
        np.testing.assert_allclose(row["effect"], row["score"] - row["score_without"], atol=1e-9)
    edges = [row for row in table.to_pylist() if row["part"] == "edge" and row["node"] == "user-7"]
    assert {row["source"][:5] for row in edges} == {"user-"}
    assert any("user-7" in (row["source"], row["target"]) for row in edges)
    features = {row["feature"] for row in table.to_pylist() if row["part"] == "feature"}
    assert features == {f"feature {number}" for number in range(16)}
    page = (nodes.folder / "work" / "explanations.html").read_text()
    assert "user-31" in page
    assert "<b>" not in page.split("<body>")[1]


@pytest.mark.parametrize("method", ["removal", "integrated", "mask"])
def test_every_explainer_writes_the_same_columns(nodes: Case, method: str) -> None:  # noqa: F811
    _, table = explain(nodes, CLASSES, nodes=["user-7"], options={"name": method}, of_class="z")
    names = "node part source target relation feature count degree effect effect_log_odds score_without score method"
    assert table.column_names == names.split()
    assert set(table["method"].to_pylist()) == {method}
    assert np.isfinite(table["effect"].to_numpy()).all()


def test_a_file_of_ids_and_a_pair(links: Case) -> None:  # noqa: F811
    path = links.csv(source=[1003, 1004], target=[1011, 1004])
    links.serve(given={"pairs": path})
    scores = links.table()["score"].to_pylist()
    _, table = explain(links, given={"pairs": path})
    rows = table.to_pylist()
    assert {(row["source_node"], row["target_node"]) for row in rows} == {(1003, 1011), (1004, 1004)}
    for pair, score in zip(((1003, 1011), (1004, 1004)), scores, strict=True):
        of_pair = [row["score"] for row in rows if (row["source_node"], row["target_node"]) == pair]
        np.testing.assert_allclose(of_pair, score, rtol=1e-4)
    _, one = explain(links, pairs=[["1003", "1011"]])
    assert one.num_rows == sum(row["source_node"] == 1003 for row in rows)


@pytest.mark.parametrize(
    ("what", "of_class", "said"),
    [
        ("explanations", None, ["predicted is x from probability 0.46 on (evaluate.threshold; --class: another is ex"]),
        ("explanations", "w", []),
        ("predictions", None, ["predicted is x from probability 0.46 on (evaluate.threshold; --threshold none: the l"]),
    ],
)
def test_a_published_threshold_says_what_is_explained(what: Any, of_class: str | None, said: list[str]) -> None:
    published: Any = SimpleNamespace(needs=SimpleNamespace(threshold=Threshold(1, 0.46), classes=CLASSES))
    messages: list[str] = []
    listener: Any = SimpleNamespace(message=lambda _, text: messages.append(text))
    request = OutputRequest(what, "x.parquet", explained=ExplainRequest(of_class=of_class))
    assert run._threshold(request, published, SimpleNamespace(), listener) == Threshold(1, 0.46)  # type: ignore[arg-type]
    assert [text[: len(said[0])] for text in messages] == said


def test_what_cannot_be_explained_is_said(nodes: Case, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(RecipeError, match="--node nobody: is not in the data"):
        explain(nodes, nodes=["nobody"])
    with pytest.raises(RecipeError, match="no class 'froud'; there are w, x"):
        explain(nodes, CLASSES, nodes=["user-7"], of_class="froud")

    def placed(task: str, **asked: Any) -> OutputRequest:
        return OutputRequest("explanations", str(tmp_path / "x.parquet"), explained=ExplainRequest(**asked)).placed(
            "x", task
        )

    with pytest.raises(RecipeError, match=r"scores of .* are not explained"):
        placed("graph", nodes=["a"])
    with pytest.raises(RecipeError, match="say what is explained: --node"):
        placed("node")
    with pytest.raises(RecipeError, match=r"--pair: this is a model of .*; give --node"):
        placed("node", pairs=[["a", "b"]])
    with pytest.raises(RecipeError, match=r"--node: this is a model of .*; give --edge"):
        placed("edge", nodes=["a"])
    for task, named in (("link", {"pairs": [["a", "b"]]}), ("edge", {"edges": ["tr-1"]})):
        assert placed(task, **named).format == "parquet"
