"""What runs, records, events and backfills say and do about the champion; without servers."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from configs.load import build_recipe
from flows.backfill import actions, store
from flows.backfill.spec import Backfill, Partition
from flows.commands.recipes.outcome import outcome_json, where_to_look
from flows.commands.recipes.plan import PlannedStage
from flows.notifications import channels
from flows.notifications.events import CHAMPION, KEPT, happenings
from flows.pipeline.run_endings import conclude
from flows.records.parameters import leaves_champion
from flows.records.run_record import RunRecord, now_text
from tasks.processes.run_context import current_run
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.outcomes import PublishManifest
from tests.support import COMMON, stage_entry

DRIFT = {
    "growth": {"nodes": [454, 600]},
    "drift": {"degrees": {"psi": 0.01, "tvd": 0.0}, "labels": None, "features": {"node/x": {"psi": 0.3, "tvd": 0.2}}},
}
REASON = "valid/accuracy 0.4710 beats version 1's 0.3250, both measured on the same 60 rows"
COMPARED = {"metric": "valid/accuracy", "challenger": 0.471, "champion": 0.325, "against": "1", "rows": 60}


def published(home: Home, promoted: bool, **gate: Any) -> RunRecord:
    """A finished run whose publication decided so."""
    found = {"promoted": promoted, "reason": REASON, "drift": None, "left_alone": False, **gate}
    manifest = PublishManifest(
        **COMMON,
        stage="publish",
        files={},
        mlflow_run_id="run",
        mlflow_run_url="url",
        model_name="customers",
        model_version="2",
        champion=promoted,
        gate=found,
        report_file="report.html",
    )
    folder = ArtifactStore(home).folder("publish", manifest.key)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    stages = {"publish": stage_entry("publish", key=manifest.key, folder=str(folder))}
    metrics = {"valid": {"accuracy": 0.471}}
    return RunRecord(id="r", recipe="customers", started_at=now_text(), stages=stages, metrics=metrics)


def test_a_new_champion_is_told_with_both_scores_and_the_drift(home: Home) -> None:
    ((event, payload),) = happenings(home, published(home, True, **COMPARED | {"drift": DRIFT}))
    assert event == CHAMPION
    assert payload["text"].splitlines() == [
        f"customers version 2 is champion: {REASON}",
        "its own metrics: valid accuracy 0.4710",
        "data against the champion's: nodes 454 -> 600, degrees 0.010, node/x 0.300 (stability index; above 0.25: "
        "another population)",
    ]
    assert {name: payload[name] for name in COMPARED} == COMPARED
    assert payload["drift"] == DRIFT


@pytest.mark.parametrize(("gate", "told"), [({}, [KEPT]), ({"left_alone": True}, [])])
def test_a_champion_that_stays_is_told_to_those_who_ask(home: Home, gate: dict[str, Any], told: list[str]) -> None:
    """A backfill was not asked to choose one: nobody is told."""
    assert [event for event, _ in happenings(home, published(home, False, **gate))] == told
    assert "kept" in channels.OCCASIONS
    assert "kept" not in channels.Channel("team", "webhook", "http://x").occasions


@pytest.mark.parametrize(("promoted", "word"), [(True, "champion"), (False, "not champion")])
def test_a_run_s_record_says_it_in_words(home: Home, promoted: bool, word: str) -> None:
    record = published(home, promoted)
    conclude(home, record)
    assert record.champion.startswith(f"customers version 2: {word}, valid/accuracy 0.4710 beats")
    assert ("model", record.champion) in where_to_look(home, record)
    record.stages = {}
    assert outcome_json(record)["champion"] == record.champion


def test_a_backfill_s_runs_leave_the_champion_alone_unless_asked() -> None:
    made: list[dict[str, Any]] = []
    client = SimpleNamespace(create_flow_run_from_deployment=lambda *_, **options: made.append(options))
    deployment = SimpleNamespace(id="d", name="nightly", parameters={})
    for promote in (False, True):
        backfill = Backfill(id="years", deployment="nightly", at=("2023",), promote=promote)
        store.create_run(client, backfill, deployment, Partition(name="2023"), 0, datetime.datetime.now(datetime.UTC))
    assert [leaves_champion(run["tags"]) for run in made] == [True, False]
    assert not leaves_champion(["graphmill", "partition:2023"])
    assert not leaves_champion([])


@pytest.mark.parametrize(
    ("promote", "missing", "looks", "runs"),
    [
        (False, [], 1, []),
        (False, ["publish"], 2, []),
        (False, ["train", "evaluate", "publish"], 1, ["train", "evaluate", "publish"]),
        (True, ["publish"], 1, ["publish"]),
    ],
)
def test_a_result_counts_whether_or_not_the_champion_was_left_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch, promote: bool, missing: list[str], looks: int, runs: list[str]
) -> None:
    asked_as: list[bool] = []

    def plan(*_: Any) -> list[PlannedStage]:
        asked_as.append(current_run().leave_champion)
        there = asked_as[-1]  # an earlier backfill published all that a run left open
        stages = ("train", "evaluate", "publish")
        return [PlannedStage(name, "cached" if there or name not in missing else "runs") for name in stages]

    monkeypatch.setattr(actions, "make_plan", plan)
    recipe = build_recipe({"name": "x", "dataset": {"name": "synthetic"}, "model": {"name": "gcn"}})
    steps = actions._steps(home, recipe, Backfill(id="years", deployment="nightly", at=("2023",), promote=promote))
    assert [step.stage for step in steps if step.status != "cached"] == runs
    assert len(asked_as) == looks
    assert not current_run().leave_champion
