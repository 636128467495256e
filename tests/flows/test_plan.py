"""What `graphmill plan` says before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import MODELS
from configs.schema import STAGES, Recipe
from flows.commands.recipes.data_check import check_data
from flows.commands.recipes.plan import make_plan
from flows.records.run_record import RunRecord, now_text
from flows.terminal.selection import select_stages
from tasks.calls import load_stage
from tasks.stage import Listener, run_stage
from tasks.storage.home import Home
from tasks.storage.home_files.source_digests import SourceDigests
from tests.support import stage_entry


def links(folder: Path, *overrides: str) -> Recipe:
    (folder / "edges.csv").write_text("src,dst\n" + "".join(f"{i},{(7 * i + 1) % 40}\n" for i in range(40)))
    sections = {
        "name": "links",
        "dataset": {"name": "tables", "task": "link", "num_negatives": 9, "edges": {"files": f"{folder}/edges.csv"}},
        "model": {"name": "graphsage"},
    }
    return build_recipe(sections, overrides)


def make_plan_of_all(home: Home, recipe: Recipe) -> None:
    make_plan(home, recipe, select_stages())


def check(home: Home, recipe: Recipe) -> None:
    check_data(recipe, home, Listener())


def test_a_link_task_of_tables_that_are_ingested_and_not_partitioned(tmp_path: Path, home: Home) -> None:
    """Their number of classes is nobody's option: nothing tells the model's weights yet."""
    recipe = links(tmp_path)
    run_stage(load_stage("ingest"), recipe, {}, home)
    steps = {step.stage: step for step in make_plan(home, recipe, select_stages())}
    assert (steps["ingest"].status, steps["preprocess"].status) == ("cached", "runs")
    assert steps["train"].memory_bytes is None


def test_what_a_training_takes_is_known_once_the_graph_is_made(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many parts and machines it wants is asked before it is cut."""
    recipe = links(tmp_path, "train.loader=edge", "train.threads=1")
    ingested = run_stage(load_stage("ingest"), recipe, {}, home)
    run_stage(load_stage("preprocess"), recipe, {"ingest": ingested.parent}, home)
    steps = {step.stage: step for step in make_plan(home, recipe, select_stages())}
    assert [steps[name].status for name in ("preprocess", "partition")] == ["cached", "runs"]
    assert steps["train"].memory_bytes is not None
    assert any("weights" in reason for reason in steps["train"].reasons)
    monkeypatch.delattr(MODELS.get("graphsage"), "make_conv")
    train = make_plan(home, links(tmp_path, "model.hidden_dim=8"), select_stages())[STAGES.index("train")]
    assert train.reasons[0].endswith("its class GraphSage has to define make_conv(in_dim, out_dim)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("train.strategy=partitioned",), r"the partition has 1; set partition\.num_parts=2 or a multiple"),
        (("train.strategy=partition_parallel",), r"the partition has 1; set partition\.num_parts=2 or a multiple"),
        (("train.strategy=partitioned", "partition.num_parts=2", "train.loader=full_edge"), "works with the loaders"),
        (("train.strategy=partitioned", "partition.num_parts=2", "train.sampling_threads=2"), "one thread a rank"),
        (("train.strategy=parallel_epochs", "train.epochs=3"), "epochs=3 is no multiple; take 4"),
        (("train.loader.fanout=5,5,5",), "3 numbers and the model has 2 layers"),
    ],
)
def test_options_that_cannot_train_are_refused_before_anything_is_read(
    tmp_path: Path, home: Home, options: tuple[str, ...], message: str
) -> None:
    ranks = ("train.loader=edge", "train.num_ranks=2", "model.num_layers=2")
    with pytest.raises(RecipeError, match=message):
        make_plan_of_all(home, links(tmp_path, *ranks, *options))
    make_plan(home, links(tmp_path, *ranks, *options), select_stages(only=["ingest"]))


def test_memory_that_nobody_can_estimate_is_the_last_run_s(tmp_path: Path, home: Home) -> None:
    recipe = links(tmp_path)
    stages = {name: stage_entry(name, peak_bytes=2**20) for name in ("partition", "evaluate")}
    RunRecord(id="before", recipe="links", started_at=now_text(), stages=stages).write(home)
    steps = {step.stage: step for step in make_plan(home, recipe, select_stages())}
    assert steps["partition"].memory_bytes == steps["evaluate"].memory_bytes == 2**20
    assert steps["publish"].memory_bytes is None


@pytest.mark.parametrize("look", [make_plan_of_all, check])
def test_data_that_no_memory_holds_is_refused_before_anything_is_read(tmp_path: Path, home: Home, look: Any) -> None:
    recipe = links(tmp_path, "dataset.num_negatives=2000000000")
    with pytest.raises(RecipeError, match=r"dataset\.num_negatives=2000000000 takes at least"):
        look(home, recipe)


def test_changed_options_have_the_names_and_the_form_of_overrides(tmp_path: Path, home: Home) -> None:
    """A stage keeps its own section without the section's name, and lists of sections are compared one by one."""
    before = links(tmp_path, "preprocess.transforms=[{name: standardize}]")
    digests = SourceDigests(home)
    configs = {name: load_stage(name).key_content(before, digests) for name in ("preprocess", "evaluate")}
    stages = {name: stage_entry(name, config=config) for name, config in configs.items()}
    RunRecord(id="before", recipe="links", started_at=now_text(), stages=stages).write(home)
    now = links(tmp_path, "preprocess.transforms=[{name: standardize}, {name: degree}]", "evaluate.splits=[test]")
    reasons = {step.stage: step.reasons for step in make_plan(home, now, select_stages())}
    assert "preprocess.transforms.1.name (absent) -> degree" in reasons["preprocess"]
    assert not any("transforms.0" in reason for reason in reasons["preprocess"])
    assert 'evaluate.splits ["valid", "test"] -> ["test"]' in reasons["evaluate"]


def test_files_that_are_missing_are_said(tmp_path: Path, home: Home) -> None:
    recipe = links(tmp_path)
    assert not [one for one in make_plan(home, recipe, select_stages())[0].reasons if "fail" in one]
    (tmp_path / "edges.csv").unlink()
    step = make_plan(home, recipe, select_stages())[0]
    assert step.status == "runs"
    assert step.reasons[0].startswith(f"it will fail: {tmp_path}/edges.csv: there is no such file")
    triples = {"name": "t", "dataset": {"name": "triples", "triples": str(tmp_path / "t.tsv")}, "model": "transe"}
    assert "it will fail" in make_plan(home, build_recipe(triples), select_stages())[0].reasons[0]
