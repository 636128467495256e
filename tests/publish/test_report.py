from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.label_types import label_type
from configs.load import build_recipe
from configs.metric_names import telling
from tasks.evaluators.evaluators import Prediction
from tasks.kinds.diagnosis.classes import diagnose, ranking
from tasks.publish.plots import eval_plots
from tasks.publish.plots import run_plots as plots
from tasks.publish.report import sections
from tasks.publish.report.page import recipe_rows, render, result_table
from tasks.publish.report.parts import Publication, ReportedRun, Section
from tasks.publish.report.sections import costs, data, training
from tasks.stage import Parent
from tasks.storage.home import Home
from tasks.storage.manifests import DatasetManifest, EdgeType, FeatureColumn, NodeType
from tasks.storage.outcomes import EvalReport, GateRecord, MachineUse, RunResult
from tests.browser import CHROMIUM, needs_chromium
from tests.publish.line import Line, customers
from tests.support import COMMON, as_partition, link_graph, node_graph

NASTY = '<script>alert("x")</script>'


class Page(HTMLParser):
    """Collects what a browser would load, and checks that elements close."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input", "wbr"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "xlink:href"} and value and not value.startswith(("#", "data:")):
                self.loads.append(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def recipe(**fields: Any) -> Any:
    from configs.load import build_recipe

    given = {"name": "demo", "dataset": {"name": "synthetic"}, "model": {"name": "graphsage"}, **fields}
    return build_recipe(given)


def ingest(graph: Any, folder: Path) -> Parent:
    manifest = DatasetManifest(
        **COMMON,
        stage="ingest",
        files={},
        dataset=NASTY,
        task=graph.task,
        task_type=graph.task_type,
        num_classes=graph.num_classes,
        metric=graph.metric,
        directed=False,
        node_types=(NodeType(name="node", num_nodes=graph.num_nodes),),
        edge_types=(EdgeType(source="node", relation="to", target="node", num_edges=graph.num_edges),),
        target_type="node",
        splits=graph.splits,
        tables={},
        warnings=(f"a warning {NASTY}",),
    )
    return Parent(manifest, folder)


def trained(folder: Path) -> Parent:
    folder.mkdir()
    lines = [{"step": 3 * e, "epoch": e, "seconds": e, "loss": 1 / e, "valid/accuracy": 1 - 1 / e} for e in range(1, 9)]
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    manifest = RunResult(
        **COMMON,
        stage="train",
        files={},
        model={"name": "graphsage"},
        seed=0,
        world_size=2,
        strategy="data_parallel",
        best_epoch=8,
        best_metric=0.5,
        epochs_run=8,
        num_parameters=1234,
        seeds_per_second=1.0,
        edges_per_second=1.0,
        best_checkpoint="best.pt",
        last_checkpoint="last.pt",
        metrics_file="metrics.jsonl",
        seconds=2.5,
        rows=100,
    )
    return Parent(manifest, folder)


def diagnosed(prediction: Prediction, kind: str, names: list[str] | None = None) -> dict[str, Any]:
    if kind == "link":
        assert prediction.positive is not None
        assert prediction.negative is not None
        return {"ranking": ranking(prediction.positive, prediction.negative)}
    return diagnose(prediction, label_type(kind), names)


def evaluation(prediction: Prediction, kind: str, metric: str, names: list[str] | None = None) -> Parent:
    report = {"split": "test", **diagnosed(prediction, kind, names)}
    manifest = EvalReport(
        **COMMON,
        stage="evaluate",
        files={},
        evaluator="auto",
        metric=metric,
        metrics={"valid": {metric: 0.5}, "test": {metric: 0.25, "other": 0.125}},
        controls={"majority": {"test": {metric: 0.0625}}, "features": {"valid": {metric: 0.4375}}},
        report=report,
    )
    return Parent(manifest, Path())


def everything(tmp_path: Path) -> dict[str, Parent]:
    graph = as_partition(node_graph(tmp_path / "graph"))
    rng = np.random.default_rng(0)
    prediction = Prediction(rng.standard_normal((200, 4)).astype(np.float32), rng.integers(0, 4, 200))
    fields = graph.manifest.model_dump()
    fields |= {"num_parts": 2, "part_offsets": (0, 150, 300), "edge_cut": 0.25}
    fields["report"] = {
        "degrees": {"log2_bins": [3, 0, 50, 200, 47], "mean": 6.5, "max": 15, "isolated": 3},
        "components": {"count": 4, "largest": 297, "log2_sizes": [3, 0, 0, 0, 0, 0, 0, 0, 1], "kept": 4},
        "partition": {"part_sizes": [150, 150], "part_edges": [[900, 100], [100, 900]], "part_train_sizes": [70, 80]},
    }
    return {
        "ingest": ingest(graph.manifest, tmp_path),
        "partition": Parent(type(graph.manifest)(**fields), graph.folder),
        "train": trained(tmp_path / "train"),
        "evaluate": evaluation(prediction, "multiclass", "accuracy", [NASTY, "b&b", "$c$", "d"]),
    }


def page_of(parents: dict[str, Parent]) -> Page:
    return Page(render(ReportedRun(recipe(), parents)))


def section_of(module: Any, parents: dict[str, Parent]) -> Section:
    made: Section | None = module.section(ReportedRun(recipe(), parents))
    assert made is not None
    return made


def gate(**changed: Any) -> GateRecord:
    """What the gate told of version 3 against version 2."""
    features = {f"node/{NASTY}": {"psi": 0.3, "tvd": 0.2, "mean": [1.0, 2.0]}}
    drift = {"degrees": {"psi": 0.01, "tvd": 0.02}, "labels": None, "features": features}
    record = GateRecord(
        promoted=True,
        reason=NASTY,
        metric="valid/accuracy",
        controls={"features": 0.125},
        data=NASTY,
        against="2",
        challenger=0.5,
        champion=0.375,
        rows=1234,
        drift={"growth": {"nodes": [100, 150]}, "drift": drift},
    )
    return record.model_copy(update=changed)


def test_the_page_is_whole_loads_nothing_and_escapes_everything(tmp_path: Path) -> None:
    published = Publication("run", "url", NASTY, "3", gate(), "flow", 'javascript:alert("x")')
    html = render(ReportedRun(recipe(description=NASTY), everything(tmp_path), published))
    page = Page(html)
    assert page.open == []
    assert page.loads == []
    assert "script" not in page.tags
    assert "<script" not in html
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert "javascript:" not in re.sub(r">[^<]*<", "><", html)
    for text in (
        "What was asked",
        "The data",
        "Partition",
        "Training",
        "Evaluation in detail",
        "0.2500",
        "this model",
        "version 2, the champion before",
        "a linear model that sees only the rows' own features",
        "0.4375",
        "v3 champion",
        "Champion and challenger",
        "version 2, valid/accuracy0.3750",
        "rows of both1,234",
        "control features only0.1250",
        "nodes150, +50.0 % (was 100)",
        "stability index 0.300 (another population), 20.0 % would have to move, mean 1 -> 2",
    ):
        assert text in page.text, text
    assert page.text.count(NASTY) >= 4
    assert page.tags.count("svg") == 9
    assert page.tags.count("h1") == 1
    assert "currentColor" in html, "figures have the page's colours"
    assert "#0a0b0c" not in html
    assert "prefers-color-scheme: dark" in html
    figures = html[html.index("<main>") :]
    assert not re.search(r"(fill|stroke): ?#000000", figures)
    ids = re.findall(r'\sid="([^"]+)"', figures)
    assert all(ids.count(name) == 1 for name in set(re.findall(r'(?:url\(#|href="#)([^)"]+)', figures)))


def test_a_file_in_the_folder_is_a_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page on changing the report shows it."""
    page = (Path(__file__).parents[2] / "docs" / "pages" / "report.md").read_text()
    ((title, code),) = re.findall(r'^```python title="([^"]+)"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    file = tmp_path / "code" / Path(title).name
    file.parent.mkdir()
    file.write_text(code)
    assert Path(title).parent == Path(sections.__file__).parent.relative_to(Path.cwd())
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(file.parent)])
    text = page_of(everything(tmp_path)).text
    monkeypatch.delitem(sys.modules, f"{sections.__name__}.splits")
    assert text.index("The data") < text.index("The splits") < text.index("Edges between each pair of parts")
    assert "rows of all splits" in text


@pytest.mark.parametrize("left", ["ingest", "partition", "train", "evaluate", "all"])
def test_missing_pieces_are_left_out(tmp_path: Path, left: str) -> None:
    parents = everything(tmp_path)
    parents = {} if left == "all" else {name: parent for name, parent in parents.items() if name != left}
    page = page_of(parents)
    assert page.open == []
    assert ("The data" in page.text) == ("ingest" in parents)
    assert ("Metrics of the best checkpoint" in page.text) == ("evaluate" in parents)


def test_texts_of_nodes_and_of_edges_are_named(tmp_path: Path) -> None:
    parents = everything(tmp_path)
    memo, note = (FeatureColumn(column=name, kind="text", dim=1) for name in ("memo", "note"))
    amount = FeatureColumn(column="amount", kind="numeric", dim=1)
    given, graph = parents["ingest"].manifest, parents["partition"].manifest
    types: dict[str, Any] = {"node_types": memo, "edge_types": note}
    types = {
        name: tuple(kind.model_copy(update={"features": (text, amount)}) for kind in getattr(given, name))
        for name, text in types.items()
    }
    report = {"columns": {"feat": {"memo": 8, "amount": 1}, "edge_feat": {"amount": 1, "note": 4}}}
    parents["ingest"] = Parent(given.model_copy(update=types), parents["ingest"].folder)
    changed = graph.model_copy(update={"report": graph.report | report})
    parents["partition"] = Parent(changed, parents["partition"].folder)
    made = data.section(ReportedRun(recipe(), parents))
    assert made is not None
    assert dict(made.facts)["texts"] == "memo, 8 numbers; note of edges, 4 numbers"


@pytest.mark.parametrize("classes", [2, 10])
def test_a_confusion_matrix_says_how_many_rows_a_share_is_of(classes: int) -> None:
    counts = np.zeros((classes, classes), int)
    counts[0, 0], counts[1, 0], counts[1, 1] = 12_345, 2, 15
    canvas = eval_plots.confusion({"classes": [f"c{i}" for i in range(classes)], "counts": counts.tolist()})
    texts = [text.get_text() for text in canvas.axes[0].texts]
    assert texts[:2] == ["100 %\n12.3k", "0 %\n0"]
    assert texts[classes : classes + 2] == ["12 %\n2", "88 %\n15"]


def test_every_picture_of_every_task_is_drawn() -> None:
    rng = np.random.default_rng(2)
    scores = rng.standard_normal((500, 40)).astype(np.float32)
    cases = {
        "multiclass": (Prediction(scores, rng.integers(0, 40, 500)), {"confusion", "calibration"}),
        "multilabel": (Prediction(scores, (scores > 0).astype(np.float32)), {"tasks"}),
        "regression": (Prediction(scores[:, :1], scores[:, 1:2]), {"scatter"}),
        "link": (Prediction(positive=scores[:, 0], negative=scores[:, 1:]), {"scores", "ranks"}),
    }
    for kind, (prediction, expected) in cases.items():
        report = {"split": "test", **diagnosed(prediction, kind)}
        json.dumps(report, allow_nan=False)
        drawn = {name for name, _, canvas in eval_plots.all_of(report) if canvas is not None}
        assert drawn == expected
        for _, caption, canvas in eval_plots.all_of(report):
            if canvas is not None:
                assert canvas.svg(caption).startswith("<svg ")


@pytest.mark.parametrize("bins", [3, 6, 8, 10, 14, 20, 30])
def test_names_below_a_figure_do_not_overlap(bins: int) -> None:
    rng = np.random.default_rng(0)
    pictures = [
        plots.component_sizes({"components": {"log2_sizes": [5] * bins}}),
        plots.degrees({"degrees": {"log2_bins": [5] * bins}}),
        plots.label_histogram({"train": rng.normal(10.0 ** (bins % 9), 3 * 10.0 ** (bins % 9 - 1), 500)}),
        plots.label_histogram({"train": rng.random(500) * 180_000}),
    ]
    for canvas in pictures:
        canvas.figure.draw_without_rendering()
        ticks = [tick for tick in canvas.axes[0].get_xticklabels() if tick.get_text()]
        slanted = any(tick.get_rotation() for tick in ticks)
        boxes = sorted((tick.get_window_extent() for tick in ticks), key=lambda box: box.x1)
        room = [after.x1 - before.x1 if slanted else after.x0 - before.x1 for before, after in pairwise(boxes)]
        assert min(room) > (10 if slanted else 14)  # a line of text, or two letters: the page has a font of its own


def test_edges_of_a_link_task_are_those_of_all_splits(tmp_path: Path) -> None:
    graph = as_partition(link_graph(tmp_path))
    made = ingest(graph.manifest, tmp_path)
    splits = {"train": made.manifest.num_edges, "valid": 700, "test": 502}
    made = Parent(made.manifest.model_copy(update={"splits": splits}), tmp_path)
    total = made.manifest.num_edges + 1202
    page = page_of({"ingest": made, "partition": graph})
    assert f"edges{total:,} as given, 1,202 of them held out by the data set's own split" in page.text
    report = {**graph.manifest.report, "snapshot": {}}
    later = Parent(graph.manifest.model_copy(update={"report": report}), graph.folder)
    page = page_of({"ingest": made, "partition": later})
    assert f"edges{total:,} of all times" in page.text


def test_splits_are_those_of_the_graph_and_held_out_pairs_are_counted_once(home: Home, tmp_path: Path) -> None:
    """A ring of 20; pairs of the files stand in it, and one of them in both files."""
    ring = [f"{i},{(i + 1) % 20}" for i in range(20)]
    (tmp_path / "knows.csv").write_text("\n".join(["src,dst", *ring]))
    files = {"valid": ring[:4], "test": [*ring[3:6], "0,10"]}
    for name, pairs in files.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(pairs))
    parents: dict[str, Parent] = {}
    for files_of_split in (True, False):
        by = {"by": "files", "files": {name: str(tmp_path / f"{name}.csv") for name in files}}
        dataset = {"task": "link", "nodes": [], "edges": {"files": str(tmp_path / "knows.csv")}, "num_negatives": 5}
        split = by if files_of_split else {"by": "ratio"}
        made = customers(tmp_path, "preprocess.transforms=[]", "preprocess.workers=1", **dataset, split=split)
        parents = Line(home).run(made, until="preprocess")
        facts = dict(section_of(data, parents).facts)
        if not files_of_split:
            assert facts["edges"].startswith("20 as given, ")
            assert facts["edges"].endswith(" of them held out by the data set's own split")
            continue
        assert facts["split"] == "train 14, valid 3, test 4"
        assert facts["edges"] == "20 as given, and 8 pairs that files of the split hold out"
        assert facts["held-out pairs"] == (
            "7 pairs, an edge and its copies or reverse counted once; 6 of them were also among the edges that train "
            "or carry messages, and do no more; edges that left a split: train 6, valid 1"
        )
    splits = parents["ingest"].manifest.splits
    alone = dict(section_of(data, {"ingest": parents["ingest"]}).facts)
    assert alone["split"] == ", ".join(f"{split} {splits[split]}" for split in ("train", "valid", "test"))
    kept = {"rule": "keep", "pairs": 9, "in_train": 2, "taken_out": 0, "left_out": {"train": 0, "valid": 0, "test": 0}}
    graph = parents["preprocess"]
    changed = Parent(graph.manifest.model_copy(update={"report": {"held_out": kept}}), graph.folder)
    facts = dict(section_of(data, {**parents, "preprocess": changed}).facts)
    assert facts["held-out pairs"] == "9 pairs, an edge and its copies or reverse counted once; 2 of them train too"


def test_what_is_computed_at_once_has_no_epochs_and_no_strategy(tmp_path: Path) -> None:
    run = trained(tmp_path / "train")
    at_once = Parent(run.manifest.model_copy(update={"strategy": "", "world_size": 1, "epochs_run": 1}), run.folder)
    found = [dict(section_of(training, {"train": one}).facts) for one in (run, at_once)]
    assert [facts["ranks"] for facts in found] == ["2 (data_parallel)", "1"]
    assert [facts["epochs"] for facts in found] == ["8, the best was 8", "none: computed at once"]
    assert section_of(training, {"train": run}).tables == []
    rows = [section_of(costs, {"train": one, "partition": run}).tables[0].rows for one in (run, at_once)]
    assert [[row[3] for row in found] for found in rows] == [
        ["100 samples", "100 directed edges"],
        ["100 nodes", "100 directed edges"],
    ]


def test_a_training_on_a_cluster_names_its_machines(tmp_path: Path) -> None:
    figures = {"cpu_percent": 96.4, "peak_bytes": 612_000_000, "sent_bytes": 24_000_000, "fetched_bytes": 3_000_000}
    run = trained(tmp_path / "train")
    used = (MachineUse(machine="node1", ranks="ranks 0 to 1", **figures),)
    on_cluster = Parent(run.manifest.model_copy(update={"machines": used}), run.folder)
    (table,) = section_of(training, {"train": on_cluster}).tables
    assert table.rows == [("node1", "ranks 0 to 1", "96 %", "612 MB", "24 MB", "3 MB")]


def test_label_columns_are_no_classes(tmp_path: Path) -> None:
    made = ingest(node_graph(tmp_path / "graph").manifest, tmp_path / "data")
    changes = {"task_type": "multilabel", "num_classes": 2, "num_tasks": 60}
    facts = dict(section_of(data, {"ingest": Parent(made.manifest.model_copy(update=changes), made.folder)}).facts)
    assert facts["label columns"] == "60, each yes or no"
    assert "classes" not in facts


def test_tables_of_pairs_have_metrics_that_say_something() -> None:
    every = {"rocauc": 0.8, "ap": 0.7, "mrr": 0.001, "hits@10": 0.0}
    assert telling(every) == ["rocauc", "ap"]
    assert telling(["ap", "rocauc", "hits@1"]) == ["ap", "rocauc"]
    for judge in ("hits@50", "accuracy"):
        assert telling([judge, *every]) == [judge, *every]
    manifest = evaluation(Prediction(positive=np.ones(4), negative=np.zeros(9)), "link", "rocauc").manifest
    measured = manifest.model_copy(update={"metrics": {"valid": every}})
    shown = result_table(measured, None)
    assert shown.columns == ("split", "scored by", "rocauc", "ap")


def test_what_was_compared_on_fewer_rows_stands_beside_what_the_model_has_on_these(tmp_path: Path) -> None:
    """Else a champion that was beaten seems the better one."""
    measured = everything(tmp_path)["evaluate"].manifest
    own = measured.metrics["valid"]["accuracy"]
    for challenger, where in ((own, ""), (0.3125, ", on the 853 rows that both were compared on")):
        shown = result_table(measured, gate(champion=0.4, challenger=challenger, rows=853))
        found = {row[1]: row[2] for row in shown.rows if row[0] == "valid"}
        assert found["this model"] == f"{own:.4f}"
        assert found[f"version 2, the champion before{where}"] == "0.4000"
        assert found[f"this model{where}"] == f"{challenger:.4f}"


def test_what_differs_from_the_defaults_comes_first_and_the_rest_is_folded(tmp_path: Path) -> None:
    given = recipe(train={"epochs": 7}, preprocess={"symmetrize": False, "transforms": ["degree"]})
    html = render(ReportedRun(given, everything(tmp_path)))
    first, folded = html.split("All options, defaults included", 1)
    for option in (
        "train.epochs",
        "preprocess.symmetrize",
        "preprocess.transforms.0.name",
        "model.name",
        "dataset.name",
    ):
        assert f"<code>{option}</code>" in first, option
    assert "learning_rate" not in first
    assert "<code>learning_rate</code>" in folded
    assert "<details>" in first[-60:]


def test_types_and_relations_have_rows_of_their_own(tmp_path: Path) -> None:
    graph = as_partition(node_graph(tmp_path / "graph"))
    made = ingest(graph.manifest, tmp_path)
    assert section_of(data, {"ingest": made}).tables == [], "one type says no more than the facts above"
    types = (NodeType(name="node", num_nodes=100), NodeType(name="author", num_nodes=40))
    relations = (
        EdgeType(source="author", relation="writes", target="node", num_edges=250),
        EdgeType(source="node", relation="cites", target="node", num_edges=300),
    )
    several = made.manifest.model_copy(update={"node_types": types, "edge_types": relations})
    nodes, edges = section_of(data, {"ingest": Parent(several, tmp_path)}).tables
    assert nodes.rows == [("node (is predicted)", "", "100"), ("author", "", "40")]
    assert edges.rows == [("author", "writes", "node", "250", "2.50"), ("node", "cites", "node", "300", "3.00")]


def test_a_chart_stands_only_where_it_says_something(tmp_path: Path) -> None:
    one_point = [{"step": 3, "epoch": 1, "seconds": 1.0, "loss": 0.5, "valid/accuracy": 0.5}]
    assert plots.loss_curves(one_point) is None
    assert plots.metric_curves(one_point) is None
    assert plots.degrees({"degrees": {"log2_bins": [0, 0, 400]}}) is None
    assert plots.degrees({"degrees": {"log2_bins": [0, 1, 400]}}) is not None
    assert plots.component_sizes({"components": {"log2_sizes": [0, 0, 0, 1]}}) is None
    assert plots.class_balance({"train": [0, 90], "test": [0, 10]}, ["a", "b"]) is None
    assert plots.label_histogram({"train": np.full(9, 2.0)}) is None


@needs_chromium
def test_a_phone_shows_the_page_without_scrolling_sideways(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    place = tmp_path / "report.html"
    published = Publication("f" * 32, f"http://host/{'f' * 90}", "demo", "3", gate(), "flow")
    place.write_text(render(ReportedRun(recipe(name="a-name-" + "x" * 80), everything(tmp_path), published)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.goto(place.as_uri())
        for closed in page.locator("summary").all():
            closed.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        figures = page.locator("figure svg").all()
        assert all((figure.bounding_box() or {"width": 0})["width"] >= 300 for figure in figures), "they can be read"
        browser.close()


def test_all_that_was_asked_is_shown() -> None:
    given = recipe(seed=41, tracking={"experiment": "mine"}, snapshot={"as_of": "2020"}, expect={"rows": ">= 90 %"})
    shown = {name: dict(rows) for name, rows in recipe_rows(given)}
    assert set(shown) == set(given.model_dump()) - {"name", "description"}, "which are the page's title"
    assert (shown["tracking"]["experiment"], shown["seed"]) == ("mine", {"seed": "41"})
    assert not {"snapshot", "expect"} & dict(recipe_rows(recipe())).keys()


def test_confusion_of_many_classes_is_pooled_and_loses_no_row() -> None:
    rng = np.random.default_rng(3)
    prediction = Prediction(rng.standard_normal((900, 58)).astype(np.float32), rng.integers(0, 58, 900))
    confusion = diagnosed(prediction, "multiclass")["confusion"]
    assert len(confusion["classes"]) == 31
    assert confusion["classes"][-1] == "other"
    assert np.sum(confusion["counts"]) == 900


def test_pictures_of_an_artifact_are_written_as_png(tmp_path: Path) -> None:
    parents = everything(tmp_path)
    names = []
    for parent in parents.values():
        for path in plots.for_manifest(parent.manifest, parent.folder, tmp_path / "out"):
            assert path.read_bytes().startswith(b"\x89PNG")
            names.append(path.name)
    assert names == [
        "partition-degrees.png",
        "partition-components.png",
        "partition-cut.png",
        "partition-parts.png",
        "train-loss.png",
        "train-validation.png",
        "evaluate-confusion.png",
        "evaluate-calibration.png",
    ]
    assert plots.loss_curves([]) is None


def test_a_section_that_raises_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("ORDER = 1\n\ndef section(run):\n    return run.parents['nope']\n")
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
    run = ReportedRun(build_recipe({"name": "x", "dataset": "synthetic", "model": "gcn"}), {})
    warned: list[str] = []
    assert "<html" in render(run, warn=warned.append)
    assert warned == ["the report lacks its section broken: KeyError: 'nope' (broken.py, line 4)"]
    with pytest.raises(KeyError):
        render(run)
