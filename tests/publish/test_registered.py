"""The champion's alias over time, and registered models by the names that users give them; on a real SQLite store."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from configs.errors import RecipeError, StageError
from flows.commands.installation.clean import clean_home
from tasks.publish.gate.rules import CHAMPION, Candidate, Decision, champion_before, read_history, with_move
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.model_registry import Change, ModelRegistry, remove_old_versions
from tasks.publish.tracking.registered import fetch_model, find_version, model_versions
from tasks.publish.tracking.registry import SqliteRegistry, open_registry, open_tracker
from tasks.publish.tracking.version_tags import gate_tags
from tasks.storage.home import Home


@pytest.fixture
def registry(tracked_home: Home, tmp_path: Path) -> ModelRegistry:
    """Versions 1, 2 and 3 of `demo`, of which 2 (the best) is champion after 1 was."""
    tracker = Tracker(tracked_home, "test")
    tracker.open_run("key", "demo")
    made = ModelRegistry(tracker, "demo")
    for number, value in enumerate((0.5, 0.7, 0.6)):
        folder = tmp_path / f"model-{number}"
        folder.mkdir()
        (folder / "model.json").write_text(f'{{"number": {number}}}')
        model_id = tracker.log_model(folder, "demo", f"digest-{number}", {})
        tags = {"graphmill.recipe": "small", **gate_tags(Candidate("", "valid/accuracy", value, True))}
        made.publish(model_id, tags, "", lambda *_, better=number < 2: Decision(better, "so says the test"))
    return made


def champion(registry: ModelRegistry) -> str:
    found = registry.champion_version()
    assert found is not None
    return found


def test_the_gate_s_moves_are_remembered(registry: ModelRegistry) -> None:
    assert [(m.before, m.version, m.how) for m in registry.history()] == [(None, "1", "gate"), ("1", "2", "gate")]


def test_promote_and_roll_back_say_what_changed_and_can_be_repeated(registry: ModelRegistry) -> None:
    change = registry.promote("3")
    assert (change.before, change.after, change.changed) == ("2", "3", True)
    assert not registry.promote("3").changed
    assert champion(registry) == "3"
    change = registry.roll_back()
    assert (change.before, change.after, change.changed) == ("3", "2", True)
    again = registry.roll_back()
    assert not again.changed
    assert "graphmill promote demo@VERSION" in again.reason
    assert champion(registry) == "2"
    assert [m.how for m in registry.history()] == ["gate", "gate", "promote", "rollback"]


def test_after_a_rollback_the_next_champion_can_be_taken_back_too(registry: ModelRegistry) -> None:
    registry.promote("3")
    registry.roll_back()
    registry.promote("1")
    assert registry.roll_back().after == "2"


def test_a_rollback_needs_a_champion_before(registry: ModelRegistry) -> None:
    client = registry.tracker.client
    client.delete_model_version("demo", "1")
    with pytest.raises(RecipeError, match=r"version 1 was deleted; choose a version: graphmill promote demo@VERSION"):
        registry.roll_back()
    client.delete_registered_model_alias("demo", CHAMPION)
    with pytest.raises(RecipeError, match="demo has no champion"):
        registry.roll_back()


def test_an_alias_that_was_moved_elsewhere_is_believed(registry: ModelRegistry) -> None:
    registry.tracker.client.set_registered_model_alias("demo", CHAMPION, "3")
    assert registry.roll_back().after == "2"


def test_a_champion_that_came_meanwhile_is_judged_against_anew(registry: ModelRegistry, tmp_path: Path) -> None:
    """Scoring takes minutes, and nothing is locked while it lasts."""
    asked: list[str | None] = []

    def judge(version: str, champion: str | None) -> Decision:
        asked.append(champion)
        if len(asked) == 1:
            registry.promote("3")
        return Decision(champion == "3", f"against {champion}")

    (tmp_path / "new").mkdir()
    model_id = registry.tracker.log_model(tmp_path / "new", "demo", "digest-new", {})
    version, decision = registry.publish(model_id, {}, "", judge)
    assert asked == ["2", "3"]
    assert (version, decision.promote, champion(registry)) == ("4", True, "4")
    assert [(m.before, m.version) for m in registry.history()][-2:] == [("2", "3"), ("3", "4")]
    assert find_version(registry.tracker, "demo@4").reason == "against 3"


class KilledError(BaseException):
    """What ends a process in the middle of a move."""


def test_a_move_that_was_killed_half_way_never_happened(
    registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: str) -> None:
        raise KilledError

    def killed(move: Callable[[], Change]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(registry.tracker.client, "set_registered_model_alias", die)
            with pytest.raises(KilledError):
                move()

    killed(lambda: registry.promote("3"))
    killed(lambda: registry.promote("3"))
    assert champion(registry) == "2"
    killed(registry.roll_back)
    assert registry.roll_back().after == "1"
    killed(lambda: registry.promote("3"))
    assert registry.promote("3").after == "3"
    assert registry.roll_back().after == "1"


def test_a_long_history_keeps_the_latest_moves() -> None:
    text = None
    for number in range(200):
        text = with_move(read_history(text), str(number + 1), str(number), "gate")
    assert text is not None
    assert len(text) < 5000
    history = read_history(text)
    assert len(history) > 30
    assert history[-1].version == "200"
    assert champion_before(history, "200") == "199"
    assert read_history("broken") == []
    assert champion_before([], "1") is None


def test_models_are_found_by_version_alias_or_name_alone(registry: ModelRegistry) -> None:
    tracker = open_registry(registry.tracker.home)
    assert [one.version for one in model_versions(tracker, "demo")] == ["3", "2", "1"]
    for reference in ("demo", "demo@champion", "demo@2"):
        found = find_version(tracker, reference)
        assert (found.version, found.aliases, found.recipe) == ("2", ("champion",), "small")
        assert found.gate.value == 0.7
    with pytest.raises(RecipeError, match=r"no registered model 'dmo' \(did you mean 'demo'\?\); there are demo"):
        find_version(tracker, "dmo@1")
    with pytest.raises(RecipeError, match=r"demo has no version or alias '9'; versions: 3, 2, 1; aliases: champion"):
        find_version(tracker, "demo@9")
    with pytest.raises(RecipeError, match=r"did you mean 'champion'"):
        find_version(tracker, "demo@champoin")


def test_the_file_is_read_as_mlflow_reads_it(registry: ModelRegistry) -> None:
    """Without mlflow, as long as its tables are those that are known; what mlflow deleted is not there."""
    home = registry.tracker.home
    direct, through_mlflow = open_registry(home), open_tracker(home)
    assert isinstance(direct, SqliteRegistry), "MLflow has other tables by now: look at registry.py and REVISION"
    registry.tracker.client.delete_model_version("demo", "1")
    registry.tracker.client.set_registered_model_alias("demo", "spare", "3")
    for one in (direct, through_mlflow):
        assert one.model_names() == ["demo"]
        assert one.aliases("demo") == {"champion": "2", "spare": "3"}
    assert direct.model_tags("demo") == through_mlflow.model_tags("demo") != {}
    versions = [sorted(one.versions("demo"), key=lambda found: found.version) for one in (direct, through_mlflow)]
    assert versions[0] == versions[1]
    assert [one.version for one in versions[0]] == ["2", "3"]
    assert direct.place_of("demo", "3") == through_mlflow.place_of("demo", "3")
    assert set(direct.own_folders()) == set(through_mlflow.own_folders())


def test_tables_of_another_version_are_left_to_mlflow(registry: ModelRegistry) -> None:
    home = registry.tracker.home
    with sqlite3.connect(home.mlflow / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'other'")
    with pytest.raises(sqlite3.NotSupportedError):
        SqliteRegistry(home, "", home.mlflow / "mlflow.db")
    assert isinstance(open_registry(home), Tracker)  # in this process it has looked at them already


def test_a_model_s_files_are_fetched_once(registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = open_registry(registry.tracker.home)
    version = find_version(tracker, "demo@3")
    folder = fetch_model(tracker, version)
    assert (folder / "model.json").read_text() == '{"number": 2}'
    monkeypatch.setattr(tracker, "download", lambda *_: pytest.fail("fetched twice"))
    assert fetch_model(tracker, version) == folder


SOURCES = [
    "models:/m-x/../../../../escape/out",
    "models:/m-../../escape/out",
    "models:/..",
    "file:///a/../../escape/out",
]
SOURCES += ["models:/m-/escape", "models:/m-x/escape/out", "/escape/out", "C:\\escape", "m-x", "", "x" * 500]


@pytest.mark.parametrize("source", SOURCES)
def test_a_version_s_source_is_no_path(registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    home = registry.tracker.home
    models, outside = home.downloads / "models", home.root.parent / "escape/.out"
    (models / "m-x").mkdir(parents=True)
    outside.mkdir(parents=True)
    (outside / "precious").touch()
    with sqlite3.connect(home.mlflow / "mlflow.db") as database:
        database.execute("UPDATE model_versions SET source = ?", (source,))
    before = set(home.root.parent.rglob("*"))

    def download(uri: str, folder: Path) -> None:
        assert folder.parent == models
        (folder / "model.json").write_text(uri)

    tracker = open_registry(home)
    monkeypatch.setattr(tracker, "download", download)
    version = find_version(tracker, "demo@3")
    if ".." in source:
        with pytest.raises(RecipeError, match=r"demo@3: .* says that its files are at .* is not followed"):
            fetch_model(tracker, version)
        assert set(home.root.parent.rglob("*")) == before
    else:
        assert fetch_model(tracker, version).parent == models
        assert fetch_model(tracker, find_version(tracker, "demo@2")) != fetch_model(tracker, version)
    assert (outside / "precious").exists()
    assert all(path.is_relative_to(home.root) for path in set(home.root.parent.rglob("*")) - before)


@pytest.mark.parametrize(
    "place", ["file://{}", "{}", "FILE:{}", "file://localhost{}", "file://{artifacts}/%2e%2e/%2e%2e/%2e%2e/secret"]
)
def test_a_local_folder_of_somebody_s_is_no_model(registry: ModelRegistry, tmp_path: Path, place: str) -> None:
    """A record may name any place; the file in it is not copied for having the right name."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "model.json").write_text("{}")
    home = registry.tracker.home
    place = place.format(secret, artifacts=home.mlflow / "artifacts")
    with sqlite3.connect(home.mlflow / "mlflow.db") as database:
        database.execute("UPDATE model_versions SET storage_location = ?", (place,))
    tracker = open_registry(home)
    version = find_version(tracker, "demo@3")
    with pytest.raises(RecipeError, match=r"demo@3: .* says that its files are at .*nothing is copied from there"):
        fetch_model(tracker, version)
    assert not list((home.downloads / "models").iterdir())


@pytest.mark.parametrize("place", ["s3://bucket/model", "mlflow-artifacts:/1/models/m-1/artifacts", "gs://b/m"])
def test_a_remote_store_is_asked(registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    home = registry.tracker.home
    with sqlite3.connect(home.mlflow / "mlflow.db") as database:
        database.execute("UPDATE model_versions SET storage_location = ?", (place,))
    tracker = open_registry(home)
    asked: list[str] = []

    def download(uri: str, folder: Path) -> None:
        asked.append(uri)
        (folder / "model.json").write_text("{}")

    monkeypatch.setattr(tracker, "download", download)
    fetch_model(tracker, find_version(tracker, "demo@3"))
    assert asked == [place]


def test_an_experiment_s_own_folder_is_the_store_s(tracked_home: Home, tmp_path: Path) -> None:
    tracker = Tracker(tracked_home, "test")
    tracker.client.create_experiment("elsewhere", artifact_location=(tmp_path / "shared").as_uri())
    tracker = Tracker(tracked_home, "elsewhere")
    tracker.open_run("key", "demo")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.json").write_text("{}")
    made = ModelRegistry(tracker, "demo")
    made.publish(tracker.log_model(folder, "demo", "digest", {}), {}, "", lambda *_: Decision(True, "the first"))
    assert (fetch_model(tracker, find_version(tracker, "demo@1")) / "model.json").is_file()


def test_a_store_that_misses_files_is_believed_once_it_has_them(registry: ModelRegistry) -> None:
    home = registry.tracker.home
    artifacts = home.mlflow / "artifacts"
    tracker = open_registry(home)
    version = find_version(tracker, "demo@3")
    artifacts.rename(home.mlflow / "away")
    with pytest.raises(RecipeError, match=r"demo@3: .* has no files for it at .*bring them back"):
        fetch_model(tracker, version)
    assert not list((home.downloads / "models").iterdir())
    if artifacts.exists():
        artifacts.rmdir()
    (home.mlflow / "away").rename(artifacts)
    assert (fetch_model(tracker, version) / "model.json").is_file()


def test_a_foreign_model_is_told_from_a_missing_one(registry: ModelRegistry) -> None:
    home = registry.tracker.home
    for path in (home.mlflow / "artifacts").rglob("model.json"):
        path.rename(path.with_name("other.json"))
    tracker = open_registry(home)
    with pytest.raises(RecipeError, match=r"has no model.json: graphmill did not register it"):
        fetch_model(tracker, find_version(tracker, "demo@3"))
    assert not list((home.downloads / "models").iterdir())


def test_a_version_without_a_time_is_one(registry: ModelRegistry) -> None:
    with sqlite3.connect(registry.tracker.home.mlflow / "mlflow.db") as database:
        database.execute("UPDATE model_versions SET creation_time = NULL")
    assert find_version(open_registry(registry.tracker.home), "demo@3").created_ms == 0


def test_the_cause_of_failed_downloads_is_told(registry: ModelRegistry) -> None:
    from mlflow.exceptions import MlflowException

    def fail() -> None:
        raise MlflowException("The following failures occurred:\n##### File x #####\nno space left", error_code=1)

    registry.tracker._pauses = ()
    with pytest.raises(StageError, match="File x ##### no space left"):
        registry.tracker.call(fail)


def test_an_address_that_is_none(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@[")
    with pytest.raises(RecipeError, match=r"is no address.*set MLFLOW_TRACKING_URI right") as error:
        open_registry(home)
    assert "secret" not in str(error.value)


def test_a_model_s_name_makes_no_lock_elsewhere(tracked_home: Home) -> None:
    tracker = Tracker(tracked_home, "test", pauses=())
    before = set(tracked_home.root.parent.rglob("*"))
    with pytest.raises(StageError, match="Names cannot contain"):
        ModelRegistry(tracker, "x/../../../escape")
    assert all(path.is_relative_to(tracked_home.locks) for path in set(tracked_home.root.parent.rglob("*")) - before)


def test_looking_into_an_empty_home_makes_nothing(home: Home) -> None:
    with pytest.raises(RecipeError, match="no model is registered in"):
        open_registry(home)
    assert not home.mlflow.exists()


def test_names_with_quotes_are_found(tracked_home: Home) -> None:
    """Others may have registered them; a recipe cannot ask for one."""
    tracker = Tracker(tracked_home, "test")
    for name in ("it's", 'a "b"', "plain"):
        ModelRegistry(tracker, name)
        assert model_versions(tracker, name) == []
    with pytest.raises(RecipeError, match="both kinds of quotes"):
        ModelRegistry(tracker, 'it\'s "b"')


def publish(home: Home, folder: Path, number: int, *, better: bool) -> None:
    """A version of `demo` whose run is its own."""
    tracker = Tracker(home, "test")
    tracker.open_run(f"key {number}", "demo")
    files = folder / f"model-{number}"
    files.mkdir()
    (files / "model.json").write_text(f"{number}" * 1000)
    model_id = tracker.log_model(files, "demo", f"digest-{number}", {})
    ModelRegistry(tracker, "demo").publish(model_id, {}, "", lambda *_: Decision(better, "so says the test"))


def test_old_versions_go_with_their_runs(tracked_home: Home, tmp_path: Path) -> None:
    for number in range(1, 8):
        publish(tracked_home, tmp_path, number, better=number in (2, 4))  # 4 is champion after 2
    runs = {one.version: one.run_id for one in model_versions(open_registry(tracked_home), "demo")}
    later = time.time() + 10
    assert not list(remove_old_versions(tracked_home, 1, time.time() - 3600, (), dry_run=False)), "all are young"
    found = list(remove_old_versions(tracked_home, 2, later, {"demo@3"}, dry_run=True))
    assert found == [("demo@5", 1000), ("demo@1", 1000)]
    assert len(model_versions(open_registry(tracked_home), "demo")) == 7
    (removed,) = [
        [item for item in clean_home(tracked_home, -10, dry_run=False, keep_versions=2) if item.what == "version"]
    ]
    assert [str(item.path) for item in removed] == ["demo@5", "demo@3", "demo@1"]
    registry = open_registry(tracked_home)
    left = {one.version for one in model_versions(registry, "demo")}
    assert left == {"7", "6", "4", "2"}
    assert registry.aliases("demo") == {"champion": "4"}
    with closing(sqlite3.connect(tracked_home.mlflow / "mlflow.db")) as database:
        known = {run for (run,) in database.execute("SELECT run_uuid FROM runs")}
    assert known == {runs[version] for version in left}
    assert len(list((tracked_home.mlflow / "artifacts").rglob("model.json"))) == 4
    tracker = Tracker(tracked_home, "test")
    assert ModelRegistry(tracker, "demo").roll_back().after == "2"
    assert not list(remove_old_versions(tracked_home, 4, later, (), dry_run=False))


def test_a_home_without_models_has_none_to_remove(home: Home) -> None:
    assert clean_home(home, 0, dry_run=False, keep_versions=1) == []
    assert not (home.mlflow / "mlflow.db").exists()
