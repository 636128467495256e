"""Who ends champion over the real stages, also where models cannot be compared, and where nobody asked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from configs import trust
from configs.errors import IntegrityError, RecipeError, StageError
from configs.registry import MODELS
from configs.schema import Recipe
from flows.commands.runs.versions import list_versions, promote, version_json
from tasks.apply.model.files import WEIGHTS
from tasks.apply.run import OutputRequest, write_outputs
from tasks.processes.run_context import RunContext, publishing_from
from tasks.publish import build as publish_build
from tasks.publish import profile
from tasks.publish.champion import comparison
from tasks.publish.champion.comparison import Challenge
from tasks.publish.gate.rules import Candidate, Compared
from tasks.publish.tracking.model_registry import ModelRegistry
from tasks.publish.tracking.registered import fetch_model, find_version, model_versions
from tasks.publish.tracking.registry import open_tracker
from tasks.publish.tracking.version_tags import ModelVersion
from tasks.stage import Parent, StageContext
from tasks.storage.artifacts import file_digest
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.storage.outcomes import EvalReport
from tests.models.test_contract import EXAMPLE
from tests.publish.line import Line, customers, write_customers
from tests.publish.test_stage import finished_run
from tests.publish.test_stage import publish as publish_finished

pytestmark = pytest.mark.usefixtures("whole_line_in_this_process")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("customers")
    write_customers(folder, count=300)
    return folder


def year(data: Path, number: int, *overrides: str, **dataset: Any) -> Any:
    return customers(data, f"snapshot.as_of={number}", "train.epochs=5", *overrides, **dataset)


class Two:
    """A champion of the year 2023, and a model of 2024 that challenges it."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.line = Line(Home.open(folder / "home"))
        self.line.run(year(data, 2023))
        self.challenge = self.challenger(folder / "files", year(data, 2024))

    def challenger(self, files: Path, recipe: Any) -> Challenge:
        parents = self.line.run(recipe, until="evaluate")
        work = files.with_name(f"{files.name}-work")
        work.mkdir()
        context = StageContext("publish", work, self.line.home, PickleCache(self.line.home), self.line.ears)
        publish_build._write_files(context, recipe, parents, files)
        return Challenge(context, recipe, parents, files, "valid/accuracy")

    def compare(self, challenge: Challenge | None = None) -> Compared:
        tracker = open_tracker(self.line.home)
        champion = find_version(tracker, "customers@champion")
        return (challenge or self.challenge).against(tracker, Candidate("2", "valid/accuracy", 0.5, True), champion)

    @property
    def copy(self) -> Path:
        """The champion's files in the home."""
        tracker = open_tracker(self.line.home)
        return fetch_model(tracker, find_version(tracker, "customers@champion"))

    @property
    def stored(self) -> Path:
        """The champion's weights in the store."""
        (path,) = self.line.home.mlflow.glob(f"artifacts/**/{WEIGHTS}")
        return path


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Two:
    return Two(tmp_path_factory.mktemp("two"), data)


def test_a_damaged_copy_is_fetched_again(two: Two) -> None:
    before = two.compare()
    (two.copy / WEIGHTS).write_bytes(b"rubbish")
    assert two.compare() == before
    assert before.old is not None


def test_a_champion_whose_published_files_are_damaged_cannot_stay_silently(two: Two) -> None:
    whole = two.stored.read_bytes()
    shutil.rmtree(two.copy)
    two.stored.write_bytes(whole[:-4] + b"oops")
    try:
        found = two.compare()
    finally:
        shutil.rmtree(two.copy)
        two.stored.write_bytes(whole)
    assert found.old is None
    assert found.why_not == "the files of customers@1 are not those that were published"
    assert two.compare().old is not None


@pytest.mark.parametrize("error", [RecipeError("it has no such option"), IntegrityError("data.json is damaged")])
def test_what_the_champion_cannot_do_is_a_finding(two: Two, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(comparison, "read_published", lambda *_: (_ for _ in ()).throw(error))
    found = two.compare()
    assert (found.old, found.why_not) == (None, str(error))


@pytest.mark.parametrize("where", ["fetch_model", "prepare_for", "run_job"])
def test_an_outage_is_an_error_of_the_stage_and_no_decision(
    two: Two, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(comparison, where, lambda *_, **__: (_ for _ in ()).throw(StageError("the disk is full")))
    with pytest.raises(StageError, match="the disk is full") as told:
        two.compare()
    assert "the champion, customers@1, was not compared with the new version 2, and stays for now" in str(told.value)
    assert "graphmill promote customers@2" in str(told.value)


def test_a_source_that_went_away_is_no_finding_about_the_champion(two: Two, data: Path) -> None:
    """Whoever asks what the data's times are looks at its files."""
    file = data / "customers.parquet"
    file.rename(data / "away")
    try:
        with pytest.raises(StageError, match=r"customers\.parquet"):
            two.compare()
    finally:
        (data / "away").rename(file)
    assert two.compare().old is not None


def test_other_columns_are_named(two: Two, data: Path, tmp_path: Path) -> None:
    nodes = {**year(data, 2024).model_dump(mode="json")["dataset"]["nodes"][0], "features": ["x", "spent"]}
    found = two.compare(two.challenger(tmp_path / "files", year(data, 2024, nodes=nodes)))
    assert found.old is None
    assert "feature columns of node than the model was trained on: with spent (numeric, width 1)" in found.why_not


def test_a_model_that_knows_its_own_nodes_only_gives_way_with_a_warning(tracked_home: Home, data: Path) -> None:
    """Vectors by node: nobody could predict for the new customers with it."""
    line = Line(tracked_home)
    nodes = {**year(data, 2023).model_dump(mode="json")["dataset"]["nodes"][0], "features": []}
    options = ("preprocess.transforms=[]", "model.name=graphsage")
    first, second = (line.run(year(data, moment, *options, nodes=nodes))["publish"] for moment in (2023, 2024))
    assert (first.manifest.champion, second.manifest.champion) == (True, True)
    (warning,) = second.manifest.warnings
    assert "version 1 is of another graph; this one takes over: " in warning
    assert "customers@1 learnt a vector for each of its" in second.manifest.gate.why_not
    assert second.manifest.gate.short == "v1 is of another graph"
    assert find_version(open_tracker(tracked_home), "customers@champion").version == "2"


def test_a_model_of_computed_vectors_gives_way_to_one_of_another_snapshot(tracked_home: Home, data: Path) -> None:
    """On the same graph, though split in another way, it is measured."""
    line = Line(tracked_home)
    options = ("preprocess.transforms=[standardize, {name: embedding, method: fastrp, dim: 8}]", "snapshot.as_of=null")
    line.run(year(data, 2023, *options))
    again = line.run(year(data, 2023, *options, split={"seed": 5}))["publish"].manifest.gate
    assert (again.why_not, again.champion is None) == ("", False)
    better = find_version(open_tracker(tracked_home), "customers@champion").version  # of so few rows, by the machine
    newest = line.run(year(data, 2024, options[0]))["publish"].manifest
    assert newest.champion
    assert f"version {better} is of another graph; this one takes over" in newest.warnings[0]
    assert newest.gate.why_not.startswith("the model was trained on vectors that")


def test_a_champion_whose_code_may_not_run_stays_until_somebody_allows_it(
    tracked_home: Home, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(tracked_home)
    with trust.own_files():
        recipe = year(data, 2023, f"model={{name: damped_mean, file: {EXAMPLE}, hidden_dim: 8, num_layers: 1}}")
    line.run(recipe)
    monkeypatch.setattr(trust, "_allowed", set())
    monkeypatch.setattr(MODELS, "_own_files", {})
    second = line.run(year(data, 2024))["publish"].manifest
    (warning,) = second.warnings
    assert "version 1 stays champion, not compared" in warning
    assert f"graphmill trust {file_digest(EXAMPLE)}" in warning
    assert (second.champion, second.gate.short) == (False, "v1 is not trusted")
    trust.allow([file_digest(EXAMPLE)])
    third = line.run(year(data, 2025))["publish"].manifest
    assert third.gate.champion is not None


class KilledError(BaseException):
    """What ends a process in the middle."""


@pytest.mark.parametrize("where", ["champion.comparison.run_job", "tracking.model_registry.ModelRegistry._move"])
def test_a_publication_that_was_killed_moved_nothing_and_a_rerun_decides_the_same(
    tracked_home: Home, data: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    line, recipe = Line(tracked_home), year(data, 2025)
    line.run(year(data, 2023, "train.epochs=1"))
    with monkeypatch.context() as patch:
        patch.setattr(f"tasks.publish.{where}", lambda *_: (_ for _ in ()).throw(KilledError()))
        with pytest.raises(KilledError):
            line.run(recipe)
    tracker = open_tracker(tracked_home)
    assert find_version(tracker, "customers@champion").version == "1"
    gate = line.run(recipe)["publish"].manifest.gate
    assert gate.promoted
    assert [one.version for one in model_versions(tracker, "customers")] == ["2", "1"]
    again = line.run(recipe, force=True)["publish"].manifest.gate
    assert (again.promoted, again.reason) == (True, gate.reason)
    assert find_version(tracker, "customers@champion").reason == gate.reason
    assert [move.version for move in ModelRegistry(tracker, "customers").history()][-1] == "2"


def test_a_backfill_leaves_the_champion_alone_and_a_run_that_asks_decides(tracked_home: Home, data: Path) -> None:
    line, recipe = Line(tracked_home), year(data, 2023)
    with publishing_from(RunContext(leave_champion=True)):
        made = line.run(recipe)["publish"].manifest
        assert line.run(recipe)["publish"].manifest.key == made.key
    assert not made.champion
    assert made.gate.left_alone
    assert "leaves the champion alone, and so does a backfill" in made.gate.reason
    with pytest.raises(RecipeError, match="no version or alias 'champion'"):
        find_version(open_tracker(tracked_home), "customers@champion")
    asked = line.run(recipe)["publish"].manifest
    assert (asked.champion, asked.model_version) == (True, made.model_version)
    with publishing_from(RunContext(leave_champion=True)):
        later = line.run(year(data, 2025))["publish"].manifest
    assert (later.champion, later.gate.against) == (False, "1")
    assert later.gate.drift is not None


def below(folder: Path, controls: dict[str, Any]) -> dict[str, Parent]:
    """A finished run of accuracy 0.75 with controls."""
    parents = finished_run(folder)
    evaluation: EvalReport = parents["evaluate"].manifest
    return parents | {"evaluate": Parent(evaluation.model_copy(update={"controls": controls}), folder)}


def test_a_model_below_a_control_is_champion_by_force_only(tracked_home: Home, tmp_path: Path) -> None:
    controls = {"majority": {"valid": {"accuracy": 0.25}}, "features": {"valid": {"accuracy": 0.75}}}
    manifest, *_ = publish_finished(tracked_home, below(tmp_path, controls))
    assert not manifest.champion
    said = "valid/accuracy 0.7500 does not beat a linear model that sees only the rows' own features (0.7500)"
    assert said in manifest.warnings[0]
    (version,) = list_versions(tracked_home, "demo")["demo"]
    assert (version.decision, version.aliases) == ("not above features", ())
    assert version_json(version)["controls"] == {"majority": 0.25, "features": 0.75}
    with pytest.raises(RecipeError, match=r"demo@1: .* does not beat a linear model .*promote demo@1 --force"):
        promote(tracked_home, "demo@1")
    change = promote(tracked_home, "demo@1", force=True)
    assert change["changed"]
    assert said in change["reason"]


def test_a_model_above_its_controls_needs_no_force(tracked_home: Home, tmp_path: Path) -> None:
    controls = {"majority": {"valid": {"accuracy": 0.25}, "test": {"accuracy": 0.9}}}
    assert publish_finished(tracked_home, below(tmp_path, controls))[0].champion
    assert not promote(tracked_home, "demo@1")["changed"]


def export(line: Line, version: ModelVersion, recipe: Recipe, folder: Path) -> int:
    """Write a model's vectors for the data of its training; returns how many there are."""
    published = comparison.champion_files(open_tracker(line.home), version)
    parents = line.run(recipe, until="partition")
    wanted = OutputRequest("embeddings", str(folder / "vectors.parquet"), "parquet")
    write_outputs(line.home, line.ears, published, wanted, published.recipe, parents)
    return int(pq.read_metadata(folder / "vectors.parquet").num_rows)


def test_the_model_that_is_right_about_today_ends_champion(tracked_home: Home, tmp_path: Path) -> None:
    """What was true of the first customers is no longer: the first model is best on its own validation rows only."""
    write_customers(data := tmp_path / "data")
    line = Line(tracked_home)

    def publish(*options: str) -> Any:
        return line.run(customers(data, *options))["publish"].manifest

    found = {moment: publish(f"snapshot.as_of={moment}") for moment in ("2023", "2024", "2025")}
    own = [manifest.gate.value for manifest in found.values()]
    assert own[0] > max(own[1:]), "else this test would show nothing"
    assert [manifest.champion for manifest in found.values()] == [True, True, True]
    gate = found["2024"].gate
    assert (gate.against, gate.rows, gate.recorded, gate.trained_on) == ("1", 34, False, 0)
    assert gate.challenger == own[1] > 0.5 > gate.champion
    assert gate.reason == (
        f"valid/accuracy {own[1]:.4f} beats version 1's {gate.champion:.4f}, both measured on the same 34 "
        "validation rows of the data of customers as of 2024"
    )
    version = find_version(open_tracker(tracked_home), "customers@champion")
    assert (version.version, version.reason) == ("3", found["2025"].gate.reason)
    assert export(line, version, customers(data, "snapshot.as_of=2025"), tmp_path) == 600
    growth = found["2025"].gate.drift["growth"]["nodes"]
    assert growth == [345, 600]
    assert profile.text(found["2025"].gate.drift) in line.ears.messages
    older = publish("snapshot.as_of=2023", "seed=1").gate
    assert (older.promoted, older.loud, found["2025"].gate.loud) == (True, True, False)
    assert f"; only {older.rows} rows: chance decides as much as the models" in older.reason
    assert "; version 3's data is newer (as of 2025, this one's 2023)" in older.reason
