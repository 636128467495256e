"""Signed pickles, which nobody else's are run for, and temporary files, which never stay."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import IntegrityError, UserError
from flows.commands.installation.clean import clean_home
from tasks.storage.artifacts import write_atomic
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache, seal, unseal
from tasks.storage.home_files.temporary import PREFIX, temporary_folder


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.fixture
def key_file(home: Home) -> Path:
    home.secret_key()
    return home.secret_key_file


def test_names_tell_what_results_depend_on() -> None:
    names = {PickleCache.name(name, version, a=1, b=2) for name, version in (("f", 1), ("f", 2), ("g", 1))}
    names |= {PickleCache.name("f", 1, a=2, b=1), PickleCache.name("f", 1, a="1", b=2)}
    assert len(names) == 5
    assert PickleCache.name("f", 1, b=2, a=1) in names


def test_planted_pickles_are_never_unpickled(home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache, bang = PickleCache(home), tmp_path / "bang"
    name = PickleCache.name("f", 1, x=1)
    bomb = pickle.dumps(Bomb(bang))
    pickle.loads(bomb)
    bang.unlink()  # it goes off
    foreign = Home.open(tmp_path / "other").secret_key()
    for content in (bomb, b"", b"short", bytes(32) + bomb, seal(foreign, name, bomb)):
        cache.store(name, 1)
        cache.path(name).write_bytes(content)
        assert cache.load(name) is None
        assert not bang.exists()
        assert not cache.path(name).exists(), "what is not trusted is removed, to be computed again"
    assert "not written by this home" in caplog.text


def test_every_altered_byte_is_seen() -> None:
    key, record = b"k" * 32, bytearray(seal(b"k" * 32, "name", b"some content"))
    for i in range(len(record)):
        altered = bytes(record[:i]) + bytes([record[i] ^ 1]) + bytes(record[i + 1 :])
        with pytest.raises(IntegrityError):
            unseal(key, "name", altered)
    assert unseal(key, "name", bytes(record)) == b"some content"


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 31, b"x" * 5000])
def test_a_key_that_is_none_is_refused_and_stays(home: Home, key_file: Path, content: bytes) -> None:
    key_file.write_bytes(content)
    cache = PickleCache(home)
    for use in (home.secret_key, lambda: cache.store("f-" + "0" * 32, 1)):
        with pytest.raises(UserError, match=r"which is no key.* mend it with: rm -r .*secret\.key"):
            use()
    assert key_file.read_bytes() == content
    key_file.unlink()
    assert len(home.secret_key()) == 32


def test_what_an_empty_key_signed_is_not_read(home: Home, key_file: Path) -> None:
    """Anybody can sign with an empty key: the pickle would run code."""
    name = PickleCache.name("f", 1)
    cache = PickleCache(home)
    write_atomic(cache.path(name), seal(b"", name, pickle.dumps(Bomb(home.root / "bang"))))
    key_file.write_bytes(b"")
    with pytest.raises(UserError):
        cache.load(name)
    assert not (home.root / "bang").exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o606, 0o610])
def test_a_key_that_others_may_know_is_refused(
    home: Home, key_file: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700
    key_file.chmod(mode)
    with pytest.raises(UserError, match=rf"others may read .* \({mode:o}\).*chmod 600"):
        home.secret_key()
    key_file.chmod(0o600)
    assert home.secret_key() == home.secret_key()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UserError, match="belongs to another user"):
        home.secret_key()


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_a_key_is_a_file(home: Home, key_file: Path, tmp_path: Path, kind: str) -> None:
    key_file.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(key_file, 0o600)
    elif kind == "folder":
        key_file.mkdir(0o700)
    else:
        key_file.symlink_to(tmp_path / ("elsewhere" if kind == "link" else "nowhere"))
    with pytest.raises(UserError, match=r"(is a link|no regular file).*rm -r"):
        home.secret_key()


@pytest.mark.parametrize("name", ["", "link", "folder/.."])
def test_a_home_that_another_user_has_made_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "folder").mkdir(parents=True)
    (theirs / "link").symlink_to(theirs)
    if os.geteuid() == 0:
        os.chown(theirs, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UserError, match=f"{theirs} belongs to another user, who can put there what would be run"):
        Home.open(theirs / name)
    assert {path.name for path in theirs.iterdir()} == {"folder", "link"}
    monkeypatch.setenv("GRAPHMILL_TRUSTED_HOME", str(theirs))
    assert Home.open(theirs / name).root == theirs


def test_a_folder_where_everybody_may_put_something_is_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(UserError, match="is a folder where everybody may put something"):
        Home.open(tmp_path)
    assert Home.open(tmp_path / "mine").root == tmp_path / "mine"
    monkeypatch.setenv("GRAPHMILL_TRUSTED_HOME", str(tmp_path))
    assert Home.open(tmp_path).root == tmp_path


def test_key_does_not_travel(home: Home) -> None:
    cache = PickleCache(home)
    cache.store("f-" + "0" * 32, 1)  # the key has been used
    assert home.secret_key() not in pickle.dumps(cache)


def test_results_come_back_under_their_own_name_only(home: Home) -> None:
    cache = PickleCache(home)
    name, other = PickleCache.name("f", 1, shard="abc", option=3), PickleCache.name("f", 1, shard="abc", option=4)
    assert cache.load(name) is None
    assert not cache.has(name)
    cache.store(name, {"a": np.arange(5), "b": [1.5, None]})
    assert cache.has(name)
    loaded = PickleCache(home).load(name)
    assert np.array_equal(loaded["a"], np.arange(5))
    assert loaded["b"] == [1.5, None]
    cache.path(other).parent.mkdir(parents=True, exist_ok=True)
    cache.path(other).write_bytes(cache.path(name).read_bytes())
    assert cache.load(other) is None


ROOT = Path(__file__).resolve().parent.parent
MAKE = "import tempfile; print(tempfile.mkdtemp(), flush=True)"
HOLD = f"""
import sys, time
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import temporary_folder
with temporary_folder(Home.open(sys.argv[1])):
    {MAKE}
    time.sleep(600)
"""


def made_by_a_child() -> Path:
    return Path(subprocess.run([sys.executable, "-c", MAKE], capture_output=True, text=True, check=True).stdout.strip())


def left(home: Home) -> list[str]:
    places = [*home.work.glob(f"{PREFIX}*"), *home.locks.glob(f"{PREFIX}*")]
    return [path.name for path in places]


def test_files_of_the_process_and_its_children_go_with_the_block(home: Home) -> None:
    before = tempfile.gettempdir(), os.environ.get("TMPDIR")
    with temporary_folder(home):
        own, child = Path(tempfile.mkdtemp()), made_by_a_child()
        assert own.parent == child.parent
        assert own.parent.parent == home.work
        assert own.parent.stat().st_mode & 0o777 == 0o700
        with temporary_folder(home):
            assert Path(tempfile.mkdtemp()).parent == own.parent
        assert own.exists(), "an inner block shares the outer one's folder"
    assert not own.parent.exists()
    assert left(home) == []
    assert (tempfile.gettempdir(), os.environ.get("TMPDIR")) == before


def test_they_go_where_the_block_fails(home: Home) -> None:
    def fail() -> None:
        with temporary_folder(home):
            tempfile.mkstemp()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert left(home) == []


@pytest.mark.parametrize("by", ["the next run", "clean"])
def test_those_of_a_killed_process_go_later_and_those_of_a_living_one_stay(home: Home, by: str) -> None:
    def others() -> None:
        if by == "clean":
            clean_home(home, 30 * 86400.0, dry_run=False)
        else:
            with temporary_folder(home):
                pass

    command = [sys.executable, "-c", HOLD, str(home.root)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        made = Path(process.stdout.readline().strip())
        others()
        assert made.exists()
        process.send_signal(signal.SIGKILL)
    others()
    assert not made.exists()
    assert list(home.work.glob(f"{PREFIX}*")) == []


def test_what_was_being_removed_when_its_process_was_killed_goes(home: Home) -> None:
    for name in (".trash-train-abc-1", ".ingest-abc.gone"):
        (home.work / name / "inside").mkdir(parents=True)
    (home.work / "train-abc").mkdir()  # a rerun goes on from it
    with temporary_folder(home):
        pass
    assert [path.name for path in home.work.iterdir()] == ["train-abc"]
