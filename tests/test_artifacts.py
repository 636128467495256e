"""The artifact store: whole or absent, verified when read, built once, honest about a full disk."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError, IntegrityError, StageError
from configs.load import build_recipe
from configs.schema import Recipe
from tasks.processes import ending
from tasks.processes.run_context import RunContext, publishing_from
from tasks.stage import Parent, Stage, StageContext, StageOutcome, run_stage
from tasks.storage.artifacts import ArtifactStore, artifact_key, file_lock, is_locked, write_atomic
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.home import Home
from tasks.storage.manifests import Manifest
from tests.flows.conftest import ROOT, TINY, environment
from tests.preprocess.ears import Ears

RECIPE: Recipe = build_recipe(json.loads(json.dumps(TINY)))


class Counting:
    """A stage that counts its builds and can be told to fail."""

    def __init__(self, resumable: bool = False) -> None:
        self.builds = 0
        self.fail: BaseException | None = None
        self.found: list[str] = []
        self.options: dict[str, Any] = {"size": 3}
        self.stage = Stage("ingest", 1, Manifest, (), lambda recipe: dict(self.options), self._build, resumable)

    def _build(self, context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
        self.builds += 1
        self.found = sorted(path.name for path in context.work.iterdir())
        (context.work / "a.bin").write_bytes(b"x" * 1000)
        if self.fail is not None:
            raise self.fail
        (context.work / "deep").mkdir(exist_ok=True)
        (context.work / "deep" / "b.bin").write_bytes(b"y" * 10)
        context.warn("look here")
        return {"rows": 7}

    def run(self, home: Home, **options: Any) -> StageOutcome[Any]:
        return run_stage(self.stage, RECIPE, {}, home, **options)


def test_built_once_then_found(home: Home) -> None:
    stage = Counting()
    first, second = stage.run(home), stage.run(home)
    assert (first.cached, second.cached, stage.builds) == (False, True, 1)
    assert second.manifest == first.manifest
    assert second.manifest.digest == first.manifest.digest
    assert first.manifest.rows == 7
    assert first.manifest.warnings == ("look here",)
    assert sorted(first.manifest.files) == ["a.bin", "deep/b.bin"]
    assert first.manifest.num_bytes == 1010
    assert not list(home.work.iterdir())


def test_key_depends_on_all_that_makes_an_artifact() -> None:
    ways = [("a", 1, {"x": 1}, {}), ("b", 1, {"x": 1}, {}), ("a", 2, {"x": 1}, {}), ("a", 1, {"x": 2}, {})]
    assert len({artifact_key(*way) for way in [*ways, ("a", 1, {"x": 1}, {"p": "d"})]}) == 5
    assert artifact_key("a", 1, {"x": 1, "y": 2}, {}) == artifact_key("a", 1, {"y": 2, "x": 1}, {})


@pytest.mark.parametrize(
    ("name", "content"), [("a.bin", b"x" * 999), ("a.bin", None), ("manifest.json", b"{"), ("manifest.json", None)]
)
def test_a_damaged_artifact_is_reported_and_made_again(home: Home, name: str, content: bytes | None) -> None:
    stage, ears = Counting(), Ears()
    first = stage.run(home)
    (first.folder / name).unlink()
    if content is not None:
        (first.folder / name).write_bytes(content)
    again = stage.run(home, listener=ears)
    assert not again.cached
    assert again.repaired
    assert str(first.folder) in ears.messages[0]
    assert again.manifest.digest == first.manifest.digest
    assert stage.run(home).cached


def test_altered_content_is_seen_by_a_deep_look(home: Home) -> None:
    first = Counting().run(home)
    (first.folder / "a.bin").write_bytes(b"z" * 1000)
    store = ArtifactStore(home)
    key = first.manifest.key
    assert store.load("ingest", key, Manifest) is not None
    with pytest.raises(IntegrityError, match=r"a\.bin does not match its sha256"):
        store.load("ingest", key, Manifest, deep=True)


def test_a_failed_build_leaves_nothing(home: Home) -> None:
    stage = Counting()
    stage.fail = DataError("is wrong", path="x.csv", row=3)
    with pytest.raises(DataError, match=r"x\.csv \(row 3\): is wrong"):
        stage.run(home)
    assert not list(home.work.iterdir())
    assert not home.artifacts.exists()
    stage.fail = None
    assert not stage.run(home).cached


def test_a_build_that_still_writes_while_it_ends_leaves_nothing(home: Home) -> None:
    """A signal's thread clears up beside the builder's."""
    writers: list[threading.Thread] = []

    def write(place: Path, begun: threading.Event) -> None:
        with suppress(FileNotFoundError):
            for number in range(100_000):
                (place / f"{number}.bin").write_bytes(b"x")
                begun.set()

    def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
        begun = threading.Event()
        writers.append(threading.Thread(target=write, args=(context.work, begun)))
        writers[0].start()
        begun.wait()
        raise ending.TerminatedError

    stage = Stage("ingest", 1, Manifest, (), lambda recipe: {}, build)
    with pytest.raises(ending.TerminatedError):
        run_stage(stage, RECIPE, {}, home)
    writers[0].join()
    assert not list(home.work.iterdir())


def test_a_forced_run_that_starts_again_goes_on_from_its_own_work_only(home: Home) -> None:
    stage = Counting(resumable=True)
    stage.fail = RuntimeError("killed")

    def force(run_id: str) -> StageOutcome[Any]:
        with publishing_from(RunContext(flow_run_id=run_id)):
            return stage.run(home, force=True)

    for left in ([], ["a.bin"]):  # not forced, it goes on from its files
        with pytest.raises(RuntimeError):
            stage.run(home)
        assert stage.found == left
    for run_id, left in (("one", []), ("one", ["a.bin"]), ("two", []), ("one", []), ("one", ["a.bin"])):
        with pytest.raises(RuntimeError):
            force(run_id)
        assert stage.found == left
    stage.fail = None
    assert not force("one").cached, "what an earlier run made is no result of this one"
    builds = stage.builds
    assert force("one").cached, "it had finished the stage before it was killed"
    assert stage.builds == builds
    assert not force("two").cached
    assert not force("one").cached


def test_threads_that_ask_at_once_build_once(home: Home) -> None:
    stage = Counting()
    outcomes: list[StageOutcome[Any]] = []
    threads = [threading.Thread(target=lambda: outcomes.append(stage.run(home))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stage.builds == 1
    assert sorted(outcome.cached for outcome in outcomes) == [False] + [True] * 7


_PAIR = """
import sys, time
from pathlib import Path
from configs.load import build_recipe
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.home import Home
from tasks.storage.manifests import Manifest
from tasks.stage import Listener, Stage, run_stage
from tests.flows.conftest import TINY

place = Path(sys.argv[1])

class Hear(Listener):
    def message(self, stage, text):
        print(text, flush=True)

def build(context, recipe, parents):
    with (place / "builds").open("a") as file:
        file.write("built\\n")
    time.sleep(1.5)
    (context.work / "a.bin").write_bytes(b"x" * 100)
    return {}

stage = Stage("ingest", 1, Manifest, (), lambda recipe: {}, build)
outcome = run_stage(stage, build_recipe(TINY), {}, Home.open(place / "home"), listener=Hear())
print("cached" if outcome.cached else "ran", flush=True)
"""


def test_two_processes_do_the_work_once(tmp_path: Path) -> None:
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", _PAIR, str(tmp_path)], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[0].split("\n") for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    assert (tmp_path / "builds").read_text() == "built\n"
    assert sorted(lines[-2] for lines in said) == ["cached", "ran"]
    waited = next(lines for lines in said if lines[-2] == "cached")
    assert "another run is building this; waiting for it" in waited


def test_a_killed_builder_s_lock_is_free_and_its_half_is_never_used(tmp_path: Path) -> None:
    builder = subprocess.Popen([sys.executable, "-c", _PAIR, str(tmp_path)], cwd=ROOT, env=environment())
    deadline = time.monotonic() + 60
    while not (tmp_path / "builds").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    home = Home.open(tmp_path / "home")
    (lock,) = home.locks.glob("ingest-*.lock")
    assert is_locked(lock)
    builder.kill()
    builder.wait()
    assert not is_locked(lock)
    assert not list(home.artifacts.glob("*/*"))
    done = subprocess.run(
        [sys.executable, "-c", _PAIR, str(tmp_path)], cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "ran"
    assert len(list(home.artifacts.glob("*/*/manifest.json"))) == 1


def test_write_atomic_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "file"
    write_atomic(path, b"old")
    readers_saw: set[bytes] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            readers_saw.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(100):
        write_atomic(path, bytes([i]) * 4096)
    stop.set()
    reader.join()
    assert all(len(set(seen)) == 1 or seen == b"old" for seen in readers_saw)
    assert [p.name for p in path.parent.iterdir()] == ["file"]


_HALF = """
import sys, time
from pathlib import Path
from tasks.storage.artifacts import atomic_file
with atomic_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(600)
"""


def test_drafts_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    path, words = tmp_path / "map [1].html", [sys.executable, "-c", _HALF]
    with subprocess.Popen([*words, str(path)], cwd=ROOT, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        write_atomic(path, b"whole")
        assert len(list(tmp_path.iterdir())) == 2, "another process is at it"
        process.kill()
    assert len(list(tmp_path.iterdir())) == 2
    write_atomic(path, b"again")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"again"


def test_a_full_disk_is_said_plainly_and_damages_nothing(small_disk: Path) -> None:
    home = Home.open(small_disk / "home")
    good = Counting()
    kept = good.run(home)

    def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
        (context.work / "big.bin").write_bytes(b"x" * size)
        return {}

    def fill(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
        ArrayWriter(context.work).create("big", (10 * 2**20,), np.int8)[:] = 1
        return {}

    size = 10 * 2**20
    greedy = Stage("preprocess", 1, Manifest, (), lambda recipe: {"a": 1}, build)
    with pytest.raises(StageError, match=r"the disk that holds .* is full .*graphmill clean.*--home DIR.*it goes on"):
        run_stage(greedy, RECIPE, {}, home)
    assert not list(home.work.iterdir())
    assert good.run(home).cached
    assert ArtifactStore(home).load("ingest", kept.manifest.key, Manifest, deep=True) is not None
    with pytest.raises(StageError, match="is full"):  # through a memory map a full disk would end the process
        run_stage(Stage("partition", 1, Manifest, (), lambda recipe: {}, fill), RECIPE, {}, home)
    size = 1000
    assert not run_stage(greedy, RECIPE, {}, home).cached


def test_a_lock_excludes_and_is_no_link_that_another_user_has_put_there(tmp_path: Path) -> None:
    path, waited = tmp_path / "x.lock", threading.Event()

    def take() -> None:
        with file_lock(path, on_wait=waited.set):
            pass

    with file_lock(path):
        assert is_locked(path)
        other = threading.Thread(target=take)
        other.start()
        assert waited.wait(5)
    other.join(5)
    assert not is_locked(path)
    (tmp_path / "y.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), file_lock(tmp_path / "y.lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()
