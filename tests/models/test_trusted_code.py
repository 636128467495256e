"""A file of code runs only where a person has said so: in a recipe of their own, or by its digest."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from configs import registry, trust
from configs.errors import RecipeError, UntrustedCodeError
from configs.load import build_recipe, load_own_recipe, load_recipe
from configs.registry import DATASETS, EVALUATORS, MODELS, PARTITIONERS, STRATEGIES, TRANSFORMS
from flows.pipeline.train import read_recipe
from tasks.apply.model.files import load_published, write_model
from tasks.apply.model.needs import DataNeeds
from tasks.apply.model.published import read_published
from tasks.storage.home import Home
from tasks.storage.home_files.caching import seal
from tasks.storage.home_files.trusted_code import TrustedCode, remember_in_home
from tasks.train.job import Job
from tasks.train.state import checkpoint
from tests.models.test_contract import EXAMPLE
from tests.models.test_own_files import saved
from tests.registered import forget_registered


class Foreign:
    """A model as somebody else hands it over: its code says when it runs."""

    def __init__(self, folder: Path) -> None:
        self.ran = folder / "ran"
        self.code = folder / "theirs.py"
        self.code.write_text(EXAMPLE.read_text() + f"\n__import__('pathlib').Path({str(self.ran)!r}).touch()\n")
        self.digest = hashlib.sha256(self.code.read_bytes()).hexdigest()
        self.recipe = folder / "theirs.yaml"
        self.recipe.write_text(f"name: theirs\ndataset: {{name: synthetic}}\nmodel: {json.dumps(self.section)}\n")
        self.published = folder / "published"
        with trust.own_files():
            recipe = build_recipe({"name": "theirs", "dataset": {"name": "synthetic"}, "model": self.section})
        self.work = saved(recipe, folder / "work")
        values = {"name": "theirs", "dataset": {"name": "synthetic"}, "model": recipe.model.model_dump(mode="json")}
        write_model(self.published, self.work / "best.pt", "theirs", values, {})
        DataNeeds("node", "node", (), (), 3, None, {}, ()).write(self.published)

    @property
    def section(self) -> dict[str, object]:
        return {"name": "damped_mean", "file": str(self.code), "hidden_dim": 8, "num_layers": 2}


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Foreign:
    forget_registered(monkeypatch, MODELS)
    made = Foreign(tmp_path)
    another_process(monkeypatch)
    made.ran.unlink()
    return made


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS, "_classes", {k: v for k, v in MODELS._classes.items() if k != "damped_mean"})
    monkeypatch.setattr(MODELS, "_own_files", {})
    monkeypatch.setattr(trust, "_allowed", set())


READERS: dict[str, Callable[[Foreign], object]] = {
    "a published model": lambda foreign: load_published(foreign.published),
    "its recipe": lambda foreign: read_published(foreign.published, "theirs@1").recipe,
    "a checkpoint": lambda foreign: checkpoint.load_model(foreign.work / "best.pt"),
    "a worker's job": lambda foreign: Job.load(foreign.work / "job.json"),
    "a recipe that no person named": lambda foreign: load_recipe(str(foreign.recipe)),
    "a deployment's recipe": lambda foreign: read_recipe(str(foreign.recipe), []),
    "a recipe as plain values": lambda foreign: build_recipe(
        {"name": "x", "dataset": {"name": "synthetic"}, "model": foreign.section}
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", ["where it says", "beside the model"])
def test_nothing_runs_unasked(foreign: Foreign, reader: str, place: str) -> None:
    if place == "beside the model":
        if reader not in ("a published model", "its recipe", "a checkpoint", "a worker's job"):
            pytest.skip("it has no copy")
        foreign.code.unlink()
    with pytest.raises(UntrustedCodeError) as refused:
        READERS[reader](foreign)
    assert not foreign.ran.exists()
    assert refused.value.digest == foreign.digest
    text = str(refused.value)
    shown = foreign.code if place == "where it says" else "model.py"
    for part in (str(shown), f"--trust-code {foreign.digest}", EXAMPLE.read_text().splitlines()[0]):
        assert part in text


def test_other_components_take_no_file(foreign: Foreign) -> None:
    """Not even the question is asked: data may well have an option of that name, or a mistake in it."""
    for kind in (DATASETS, TRANSFORMS, PARTITIONERS, STRATEGIES, EVALUATORS):
        value = {"name": kind.names()[0], "file": str(foreign.code)}
        with pytest.raises(ValidationError, match="unknown key 'file'"), trust.own_files():
            kind.config(value)
    assert not foreign.ran.exists()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("way", ["option", "environment", "home"])
def test_what_is_allowed_runs(
    foreign: Foreign, home: Home, monkeypatch: pytest.MonkeyPatch, reader: str, way: str
) -> None:
    if way == "option":
        trust.allow([foreign.digest.upper()])
    elif way == "environment":
        monkeypatch.setenv(trust.VARIABLE, f" {'0' * 64}, {foreign.digest} ")
    else:
        TrustedCode(home).learn(foreign.digest, "a test")
        remember_in_home(home)
    READERS[reader](foreign)
    assert foreign.ran.exists()
    assert foreign.digest in trust.for_children()[trust.VARIABLE].split(","), "what it starts may run it too"


def test_python_users_say_what_they_have_read(foreign: Foreign) -> None:
    for wrong in ("0" * 64, foreign.digest[:-1], "", "*"):
        with pytest.raises(RecipeError):
            load_published(foreign.published, trust_code=wrong)
    assert not foreign.ran.exists()
    assert type(load_published(foreign.published, trust_code=foreign.digest)).__name__ == "DampedMean"


def test_a_recipe_of_one_s_own_runs_and_is_remembered(
    foreign: Foreign, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_in_home(home)
    assert load_own_recipe(str(foreign.recipe)).model.name == "damped_mean"
    assert list(TrustedCode(home).entries()) == [foreign.digest]
    another_process(monkeypatch)
    assert load_recipe(str(foreign.recipe)).model.name == "damped_mean", "a worker, at night"
    foreign.code.write_text(foreign.code.read_text() + "# another content")
    another_process(monkeypatch)
    foreign.ran.unlink()
    with pytest.raises(UntrustedCodeError):
        load_recipe(str(foreign.recipe))
    assert not foreign.ran.exists()


def test_a_home_believes_only_what_it_has_signed(foreign: Foreign, home: Home, tmp_path: Path) -> None:
    mine, theirs = TrustedCode(home), TrustedCode(Home.open(tmp_path / "another"))
    mine.learn("1" * 64, "me")
    good = mine.path.read_bytes()
    assert mine.path.stat().st_mode & 0o777 == 0o600
    theirs.learn(foreign.digest, "them")
    entry = json.dumps({foreign.digest: {"source": "", "since": ""}}).encode()
    remember_in_home(home)
    for planted in (
        theirs.path.read_bytes(),
        entry,
        b"\0" * 32 + entry,
        seal(home.secret_key(), "trusted-code", entry),  # signed, as another kind of file
        good[:32] + good[32:].replace(b"1" * 64, foreign.digest.encode()),
        b"",
    ):
        mine.path.write_bytes(planted)
        with pytest.raises(UntrustedCodeError):
            load_published(foreign.published)
    assert not foreign.ran.exists()
    mine.path.write_bytes(good)
    assert list(mine.entries()) == ["1" * 64]


def test_what_is_checked_is_what_runs(foreign: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is exchanged the moment after it was found to be allowed."""
    check = registry.check_code

    def check_then_exchange(path: Path, content: bytes) -> str:
        digest = check(path, content)
        path.write_text("raise SystemExit('another file ran')")
        return digest

    monkeypatch.setattr(registry, "check_code", check_then_exchange)
    trust.allow([foreign.digest])
    assert load_recipe(str(foreign.recipe)).model.name == "damped_mean"


def test_another_file_in_a_model_s_place_is_not_run(foreign: Foreign) -> None:
    """Whoever may write into a home changes the digests that stand in it, too."""
    trust.allow([foreign.digest])
    evil = foreign.published / "model.py"
    evil.write_text(f"__import__('pathlib').Path({str(foreign.ran)!r}).touch()")
    foreign.code.unlink()
    described = (foreign.published / "model.json").read_text()
    digest = hashlib.sha256(evil.read_bytes()).hexdigest()
    (foreign.published / "model.json").write_text(described.replace(foreign.digest, digest))
    with pytest.raises(UntrustedCodeError):
        load_published(foreign.published)
    assert not foreign.ran.exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large", "link in a circle", "user", "zero", "missing"])
def test_what_is_no_file_of_code_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.py"
    names = {"device": "/dev/zero", "user": "~no-such-user/x.py", "zero": f"{path}\0"}
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(11_000_000)
    elif kind == "link in a circle":
        path.symlink_to(path)
    with pytest.raises(RecipeError, match="cannot be read"):
        MODELS.config({"name": "mine", "file": names.get(kind, str(path))})


def test_what_is_no_code_is_not_shown_and_a_digest_is_a_text(tmp_path: Path) -> None:
    secret, link, code = (tmp_path / name for name in ("id_rsa", "model.py", "x.py"))
    secret.write_text("a secret")
    link.symlink_to(secret)
    for path in (secret, link):
        with pytest.raises(RecipeError, match=r"id_rsa is not a Python file; its name has to end with") as refused:
            MODELS.config({"name": "mine", "file": str(path)})
        assert "secret" not in str(refused.value)
    code.write_text("")
    with pytest.raises(RecipeError, match=r"file_sha256 \[1\] is no text"):
        MODELS.config({"name": "mine", "file": str(code), "file_sha256": [1]})


def test_a_terminal_does_not_obey_what_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_bytes(b"\x1b[2J\x1b]0;title\x07#\tnice\r\n" + b"y" * 500 + b"\n" + b"\xff\n" * 50)
    with pytest.raises(UntrustedCodeError) as refused:
        MODELS.config({"name": "mine", "file": str(path)})
    text = str(refused.value)
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert len(text.splitlines()) < 20
    assert max(map(len, text.splitlines()[2:])) <= 104


@pytest.mark.parametrize("value", ["abc", "*", "true", "0" * 63 + "g"])
def test_a_variable_that_holds_no_digest_is_told(foreign: Foreign, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(trust.VARIABLE, value)
    with pytest.raises(RecipeError, match=r"GRAPHMILL_TRUST_CODE.* 64 hexadecimal"):
        load_recipe(str(foreign.recipe))
    assert not foreign.ran.exists()


def test_a_home_that_cannot_be_written_says_so(
    foreign: Foreign, home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        "tasks.storage.home_files.trusted_code.write_atomic",
        lambda *_, **__: (_ for _ in ()).throw(OSError("read-only")),
    )
    remember_in_home(home)
    assert load_own_recipe(str(foreign.recipe)).model.name == "damped_mean"
    assert "for this time only" in caplog.text
    shutil.rmtree(home.root)
