"""A model that somebody else has registered: its files can be had without running them, its use has to be allowed."""

from __future__ import annotations

import datetime
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from configs import trust
from configs.errors import UntrustedCodeError
from flows import cli
from flows.apply.model_use import Data, ModelUse
from flows.commands.installation import trust as trust_commands
from flows.terminal.options import global_options
from tasks.apply.model.files import write_tensors
from tasks.apply.model.needs import DataNeeds
from tasks.apply.run import OutputKind, OutputRequest
from tasks.publish.gate.rules import Decision
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.model_registry import ModelRegistry
from tasks.storage.home import Home

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def digest(tracked_home: Home, tmp_path: Path) -> str:
    """Register `theirs`, whose code leaves a file when it runs; returns the code's digest."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    code = f"__import__('pathlib').Path({str(tmp_path / 'ran')!r}).touch()\n".encode()
    digest = hashlib.sha256(code).hexdigest()
    (folder / "model.py").write_bytes(code)
    model = {"name": "theirs", "file": "/home/them/theirs.py", "file_sha256": digest}
    recipe = {"name": "theirs", "dataset": {"name": "synthetic"}, "model": model}
    for name, content in (("model", {"config": model, "facts": {"task": "node"}}), ("recipe", recipe), ("lineage", {})):
        (folder / f"{name}.json").write_text(json.dumps(content))
    write_tensors(folder / "model.safetensors", {"weight": torch.zeros(1)}, ("format", "pt"))
    DataNeeds("node", "node", (), (), 2, None, {}, ()).write(folder)
    tracker = Tracker(tracked_home, "test")
    tracker.open_run("key", "theirs")
    registry = ModelRegistry(tracker, "theirs")
    registry.publish(tracker.log_model(folder, "theirs", "1", {}), {}, "", lambda *_: Decision(True, "the first"))
    return digest


def serving(home: Home, tmp_path: Path, what: OutputKind) -> ModelUse:
    output = tmp_path / ("out" if what == "model" else "out.parquet")
    return ModelUse("theirs@champion", OutputRequest(what, str(output)), Data(), str(home.root), NOW)


def test_its_files_are_copied_and_nothing_runs(
    tracked_home: Home, tmp_path: Path, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving(tracked_home, tmp_path, "model").run()
    assert hashlib.sha256((tmp_path / "out" / "model.py").read_bytes()).hexdigest() == digest
    ModelRegistry(Tracker(tracked_home, "test"), "theirs").promote("1")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("what", ["predictions", "embeddings"])
def test_using_it_has_to_be_allowed(
    tracked_home: Home, tmp_path: Path, digest: str, what: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UntrustedCodeError, match="nobody has allowed") as refused:
        serving(tracked_home, tmp_path, what)
    assert not (tmp_path / "ran").exists()
    assert cli._report(refused.value) == 2
    said = capsys.readouterr().err
    for part in (
        f"{tracked_home.downloads}/models/",
        "model.py",
        digest,
        "__import__('pathlib')",
        "To go on: graphmill ",
    ):
        assert part in said
    trust.allow([digest])
    with pytest.raises(ValueError, match="registers no model 'theirs'"):
        serving(tracked_home, tmp_path, what)
    assert (tmp_path / "ran").exists()


def test_the_command_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_options, "opened", Path("/my home"))
    monkeypatch.setattr(global_options, "takes_trust", True)
    words = ["predict", "--model", "a b@1"]
    assert trust_commands.how_to_go_on(words, "abc") == "graphmill predict --model 'a b@1' --trust-code abc"
    monkeypatch.setattr(global_options, "takes_trust", False)
    assert trust_commands.how_to_go_on(["plan", "x"], "abc") == (
        "graphmill --home '/my home' trust abc && graphmill plan x"
    )


def test_the_command_keeps_account(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = tmp_path / "mine.py"
    code.write_text("x = 1\n")
    digest = hashlib.sha256(code.read_bytes()).hexdigest()

    def said(*words: str, **options: bool) -> str:
        trust_commands.trust(list(words) or None, home=home.root, as_json=False, forget=options.get("forget", False))
        return capsys.readouterr().out

    assert said(str(code)) == f"may run   {digest}  {code}\n"
    assert said("A" * 64).startswith(f"may run   {'a' * 64}")
    assert len(said().splitlines()) == 2
    assert said(digest, forget=True).startswith("forgotten")
    assert said(digest, forget=True).startswith("not known")
    assert digest not in said()
    mistakes = {"none.py": "there is no such file", "./none": "there is no such file", "abc": "trust 'abc': a sha256"}
    for wrong, message in {**mistakes, "/dev/zero": "is a device", str(tmp_path): "is a folder"}.items():
        with pytest.raises(ValueError, match=message):
            said(wrong)


def test_ranks_and_workers_may_run_what_their_parent_may(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from configs.load import load_recipe
    from tasks.train.ranks.launch import launcher_of

    recipe = load_recipe("quickstart")
    assert trust.VARIABLE not in launcher_of(recipe, home, home.work).environment
    trust.allow(["b" * 64])
    monkeypatch.setenv(trust.VARIABLE, "a" * 64)
    assert launcher_of(recipe, home, home.work).environment[trust.VARIABLE] == f"{'a' * 64},{'b' * 64}"
