"""What test_on_cluster.py runs on a cluster: files that go through an actor of Ray's. Arguments: a home, a folder."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from configs.errors import IntegrityError, StageError
from tasks.cluster.connect import connected, own_node
from tasks.cluster.files import FetchedFiles, Mirror, home_files
from tasks.cluster.machines import alive
from tasks.cluster.settings import BLOCK_BYTES, PART_BYTES
from tasks.storage.artifacts import file_digest
from tasks.storage.home import Home
from tests.cluster.stages import graph_of

FEAT = "artifacts/partition/graph/feat.npy"


def fetches_parts_then_the_rest(files: Any, home: Home, folder: Path) -> None:
    """A range is fetched in whole parts, once; a whole file is checked by its artifact's digest."""
    source, cache = home.root / FEAT, folder / "cache"
    fetched = FetchedFiles(files, str(home.root), cache, folder / "scratch", 1e9)
    here = cache / "partition" / "graph" / "feat.npy"
    size = source.stat().st_size
    assert size > BLOCK_BYTES
    manifest = (source.parent / "manifest.json").stat().st_size
    fetched.fetch(here, PART_BYTES + 1, PART_BYTES + 2)
    assert fetched.fetched_bytes == PART_BYTES + manifest
    assert here.stat().st_size == size
    with source.open("rb") as theirs, here.open("rb") as ours:
        for file in (theirs, ours):
            file.seek(PART_BYTES)
        assert ours.read(PART_BYTES) == theirs.read(PART_BYTES)
        assert not any(ours.read(PART_BYTES))
    fetched.fetch(here, 2 * PART_BYTES - 9, 2 * PART_BYTES + 9)
    fetched.fetch(here, PART_BYTES, 3 * PART_BYTES)
    assert fetched.fetched_bytes == 2 * PART_BYTES + manifest
    again = FetchedFiles(files, str(home.root), cache, folder / "scratch", 1e9)
    assert again.here(f"{home.root}/{FEAT}") == here
    assert file_digest(here) == file_digest(source)
    names = {"feat.npy", ".feat.npy.parts", "manifest.json", ".used", ".fetching"}
    assert {path.name for path in here.parent.iterdir()} == names
    assert again.fetched_bytes == size - 2 * PART_BYTES + manifest
    fetched.fetch(here)
    assert fetched.fetched_bytes == 2 * PART_BYTES + manifest


def refuses_what_is_not_the_artifacts(files: Any, home: Home, folder: Path) -> None:
    """A file that came otherwise than its manifest says is not kept; the home's other files are not given."""
    fetched = FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1e9)
    label = home.artifacts / "partition" / "graph" / "label.npy"
    before = label.read_bytes()
    label.write_bytes(before[:-1] + b"\xff")
    with pytest.raises(IntegrityError, match="another digest than its manifest names"):
        fetched.here(str(label))
    assert not (folder / "cache" / "partition" / "graph" / "label.npy").exists()
    label.write_bytes(before)
    assert fetched.here(str(label)).read_bytes() == before
    for name in ("secret.key", "cluster/token"):
        with pytest.raises(PermissionError, match="none of the files that other machines may read"):
            fetched.here(f"{home.root}/{name}")
    assert not (folder / "scratch" / "secret.key").exists()


def what_is_used_stays(files: Any, home: Home, folder: Path) -> None:
    """A cache beyond its bound gives up artifacts that nobody uses, when the next process begins with it."""
    fetched = FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1e9)
    here = fetched.here(str(home.artifacts / "partition" / "graph" / "label.npy"))
    FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1)
    assert here.exists()
    fetched.close()
    FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1)
    assert not here.parent.exists()


def what_was_made_anew_is_fetched_anew(files: Any, home: Home, folder: Path) -> None:
    """Under the same key: by another seed of the device, by another home."""
    first = FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1e9)
    source = home.artifacts / "partition" / "graph"
    kept = {path: path.read_bytes() for path in (source / "label.npy", source / "manifest.json")}
    here = first.here(str(source / "label.npy"))
    try:
        (source / "label.npy").write_bytes(b"other")
        manifest = json.loads(kept[source / "manifest.json"])
        manifest["files"]["label.npy"]["sha256"] = file_digest(source / "label.npy")
        (source / "manifest.json").write_text(json.dumps(manifest))
        second = FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1e9)
        with pytest.raises(IntegrityError, match="another run reads what was"):
            second.here(str(source / "label.npy"))
        first.close()
        third = FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1e9)
        second.close()
        assert third.here(str(source / "label.npy")).read_bytes() == b"other"
        assert here.read_bytes() == b"other"
        third.close()
    finally:
        for path, content in kept.items():
            path.write_bytes(content)


def what_was_half_removed_is_fetched_again(files: Any, home: Home, folder: Path) -> None:
    """A process that makes room may be killed after any file, and files lie there in no order."""
    source, here = home.root / FEAT, folder / "cache" / "partition" / "graph" / "feat.npy"
    for whole in (False, True):
        for left in ("feat.npy", ".feat.npy.parts", "manifest.json", ".used"):
            fetched = FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1e9)
            fetched.fetch(here, 0, None if whole else PART_BYTES)
            fetched.close()
            for path in here.parent.iterdir():
                if path.name != left:
                    path.unlink()
            again = FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1e9)
            again.fetch(here)
            assert here.read_bytes() == source.read_bytes()
            again.close()


def another_homes_bytes_are_not_taken(files: Any, home: Home, folder: Path) -> None:
    """What lies there under the same key, without a manifest that would tell whose it is."""
    here = folder / "cache" / "partition" / "graph" / "label.npy"
    here.parent.mkdir(parents=True)
    source = home.artifacts / "partition" / "graph" / "label.npy"
    size = source.stat().st_size
    here.write_bytes(bytes(size))
    (here.parent / ".label.npy.parts").write_text(json.dumps({"size": size, "parts": [[0, size]]}))
    fetched = FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1e9)
    assert fetched.here(str(source)).read_bytes() == source.read_bytes()


def several_fetch_at_once(files: Any, home: Home, folder: Path) -> None:
    """Threads and processes that ask for overlapping ranges get each part once between them."""
    fetched = [FetchedFiles(files, str(home.root), folder / "cache", folder / "scratch", 1e9) for _ in range(2)]
    here = folder / "cache" / "partition" / "graph" / "feat.npy"
    ranges = [(i * PART_BYTES, (i + 3) * PART_BYTES) for i in range(8)]
    threads = [threading.Thread(target=one.fetch, args=(here, *bounds)) for bounds in ranges for one in fetched]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    manifest = (here.parent / "manifest.json").stat().st_size
    assert sum(one.fetched_bytes for one in fetched) == 10 * PART_BYTES + 2 * manifest
    with (home.root / FEAT).open("rb") as theirs, here.open("rb") as ours:
        assert ours.read(10 * PART_BYTES) == theirs.read(10 * PART_BYTES)


def a_mirror_sends_what_is_whole(files: Any, home: Home, folder: Path) -> None:
    """Files that did not change between two looks, and what is new of those that grow."""
    work, ours = home.work / "train-1", folder / "work"
    (ours / "logs").mkdir(parents=True)
    (ours / "job.json").write_text("{}")
    mirror = Mirror(files, ours)

    def there() -> dict[str, bytes]:
        return {path.relative_to(work).as_posix(): path.read_bytes() for path in work.rglob("*") if path.is_file()}

    for name in ("best.pt", "metrics.jsonl", "logs/rank-1.log", ".draft-of-something", "table.npy", "last.pt.draft"):
        (ours / name).write_bytes(b"one\n")
    mirror.look()
    assert there() == {"metrics.jsonl": b"one\n", "logs/rank-1.log": b"one\n"}
    mirror.look()
    assert there() == {"metrics.jsonl": b"one\n", "logs/rank-1.log": b"one\n", "best.pt": b"one\n"}
    (ours / "best.pt").write_bytes(b"two\n")
    with (ours / "metrics.jsonl").open("ab") as file:
        file.write(b"two\nthr")
    mirror.look()
    assert (there()["best.pt"], there()["metrics.jsonl"]) == (b"one\n", b"one\ntwo\nthr")
    mirror.look(last=True)
    assert there()["best.pt"] == b"two\n"
    (ours / "new").write_bytes(b"three\n")
    (ours / "new").replace(ours / "best.pt")  # as checkpoints are written: whole at once
    mirror.look()
    assert there()["best.pt"] == b"three\n"
    grown = b"two\nthree\nfour\nfive\n"
    (ours / "metrics.jsonl").write_bytes(grown)  # cut back, and already longer than what was sent
    mirror.look()
    assert there()["metrics.jsonl"] == grown
    os.truncate(ours / "metrics.jsonl", 4)
    mirror.look()
    assert there()["metrics.jsonl"] == b"two\n"
    large = os.urandom(BLOCK_BYTES + 5)
    (ours / "last.pt").write_bytes(large)
    mirror.look(last=True)
    assert there()["last.pt"] == large
    assert "job.json" not in there()


def a_mirror_of_an_attempt_that_is_over_ends(files: Any, home: Home, folder: Path) -> None:
    """Whose actor is gone cannot write over what the next attempt writes."""
    import ray

    (folder / "work").mkdir()
    mirror = Mirror(files, folder / "work")
    ray.kill(files)
    (folder / "work" / "last.pt").write_bytes(b"late")
    with pytest.raises(StageError, match=r"last\.pt could not be written into the home"):
        mirror.look(last=True)


def main(home: Home, folder: Path) -> None:
    graph_of(home, num_nodes=40_000, dim=64)
    home.secret_key()
    (home.work / "train-1").mkdir(parents=True)
    with connected(own_node(home)["address"], home):
        own = next(machine for machine in alive(free=False) if machine.is_own)
        for check in (
            fetches_parts_then_the_rest,
            refuses_what_is_not_the_artifacts,
            what_is_used_stays,
            what_was_made_anew_is_fetched_anew,
            what_was_half_removed_is_fetched_again,
            another_homes_bytes_are_not_taken,
            several_fetch_at_once,
            a_mirror_sends_what_is_whole,
            a_mirror_of_an_attempt_that_is_over_ends,
        ):
            (folder / check.__name__).mkdir()
            check(home_files(own, str(home.root), str(home.work / "train-1")), home, folder / check.__name__)
            print(check.__name__, flush=True)


if __name__ == "__main__":
    main(Home.open(sys.argv[1]), Path(sys.argv[2]))
