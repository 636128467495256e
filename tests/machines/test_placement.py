"""What a command makes of --hosts, of its recipe and of a scheduler's environment, in this order."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from configs.errors import RecipeError
from configs.load import dump_recipe, load_recipe
from flows.commands.recipes import run
from flows.machines.placement import check_begins_here, place_run, rank_changes
from tasks.storage.home import Home
from tests.flows.conftest import TINY, graphmill, write_recipe
from tests.machines.test_schedulers import POD, STEP

OTHER = "no-such-machine.invalid"
THREADS = "train.threads=1"


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    return str(write_recipe(tmp_path))


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)


def test_alone_nothing_is_said(recipe: str) -> None:
    placed = place_run(recipe, ["train.epochs=2"], None, ssh=False)
    assert (placed.overrides, placed.text) == (["train.epochs=2"], "")


def test_hosts_of_the_command(recipe: str) -> None:
    here = socket.gethostname()
    placed = place_run(recipe, [THREADS], f"{OTHER},{here}", ssh=False)
    train = placed.recipe.train
    assert (train.hosts, train.num_machines, train.machine_rank) == ((OTHER, here), 2, 1)
    assert placed.text == f"machine 1 of 2 ({OTHER}, {here}) by train.hosts; all meet at {OTHER}:29500"
    assert load_recipe(recipe, placed.overrides) == placed.recipe


def test_hosts_of_the_recipe(tmp_path: Path) -> None:
    train = {"threads": 1, "hosts": [OTHER, socket.gethostname()]}
    recipe = str(write_recipe(tmp_path, train={**TINY["train"], **train}))
    assert place_run(recipe, [], None, ssh=False).recipe.train.machine_rank == 1
    # The command's list replaces it, also one of another length.
    placed = place_run(recipe, [], f"{socket.gethostname()},{OTHER},other.invalid", ssh=True)
    train = placed.recipe.train
    assert (train.num_machines, train.machine_rank, train.ssh) == (3, 0, True)


def test_a_machine_can_be_told_its_number(recipe: str) -> None:
    placed = place_run(recipe, [THREADS, "train.machine_rank=1"], f"{OTHER},other.invalid", ssh=False)
    assert placed.recipe.train.machine_rank == 1


def test_one_list_is_enough(recipe: str) -> None:
    with pytest.raises(RecipeError, match="one option"):
        place_run(recipe, [THREADS, "train.hosts=a,b"], "a,b", ssh=False)
    with pytest.raises(RecipeError, match="ssh=true needs the machines"):
        place_run(recipe, [THREADS], None, ssh=True)


@pytest.mark.usefixtures("step")
def test_a_step_of_slurm_is_taken(recipe: str) -> None:
    placed = place_run(recipe, [THREADS], None, ssh=False)
    train = placed.recipe.train
    assert (train.num_machines, train.machine_rank, train.rendezvous) == (3, 2, "node01:29571")
    assert placed.text == "machine 2 of 3 (node01, node02, node03) by Slurm's job 2071; all meet at node01:29571"
    with pytest.raises(RecipeError, match="needs threads"):
        place_run(recipe, [], None, ssh=False)


@pytest.mark.usefixtures("step")
def test_the_first_node_of_a_step_takes_slurms_word(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of nodes need not be names that the machine knows itself by."""
    monkeypatch.setenv("SLURM_NODEID", "0")
    assert place_run(recipe, [THREADS], None, ssh=False).recipe.train.machine_rank == 0


@pytest.mark.usefixtures("step")
@pytest.mark.parametrize(
    "options",
    [
        ["train.hosts=[]"],
        ["train.num_machines=1"],
        ["train.machine_rank=0"],
        ["train={threads: 1, hosts: [a, b], machine_rank: 1}"],
        ["train.num_machines=2", "train.rendezvous=a:1"],
    ],
)
def test_an_option_wins_over_slurm(recipe: str, options: list[str]) -> None:
    placed = place_run(recipe, [THREADS, *options], None, ssh=False)
    assert placed.recipe == load_recipe(recipe, [THREADS, *options])


@pytest.mark.usefixtures("step")
def test_hosts_win_over_slurm(recipe: str) -> None:
    placed = place_run(recipe, [THREADS], f"{socket.gethostname()},{OTHER}", ssh=False)
    assert placed.recipe.train.hosts == (socket.gethostname(), OTHER)


@pytest.mark.usefixtures("step")
def test_a_whole_recipe_says_nothing_of_machines(tmp_path: Path) -> None:
    """One that `graphmill show` wrote has num_machines: 1 and hosts: []."""
    path = tmp_path / "whole.yaml"
    path.write_text(yaml.safe_dump(dump_recipe(load_recipe(str(write_recipe(tmp_path)), [THREADS]))))
    train = place_run(str(path), [], None, ssh=False).recipe.train
    assert (train.num_machines, train.machine_rank) == (3, 2)
    placed = place_run(str(path), [], f"{OTHER},{socket.gethostname()}", ssh=False)
    assert placed.recipe.train.machine_rank == 1


@pytest.mark.usefixtures("step")
def test_a_recipe_of_another_number_of_machines(recipe: str) -> None:
    placed = place_run(recipe, [THREADS, "train.num_machines=3"], None, ssh=False)
    assert placed.recipe.train.num_machines == 3
    with pytest.raises(RecipeError, match=r"train\.num_machines=4, but Slurm's job 2071 gives 3"):
        place_run(recipe, [THREADS, "train.num_machines=4"], None, ssh=False)


def test_a_pod_is_taken(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in POD.items():
        monkeypatch.setenv(name, value)
    placed = place_run(recipe, [THREADS], None, ssh=False)
    train = placed.recipe.train
    assert (train.num_machines, train.machine_rank, train.rendezvous) == (2, 1, POD["GRAPHMILL_RENDEZVOUS"])
    assert placed.text.startswith("machine 1 of 2 by the indexed Job of Kubernetes; all meet at ")


def test_a_run_begins_on_machine_0() -> None:
    options = [THREADS, f"train.hosts={OTHER},{socket.gethostname()}", "train.ssh=true"]
    train = load_recipe("quickstart", options).train
    assert rank_changes(train, options) == ["train.machine_rank=1"]
    assert rank_changes(train, [*options, "train.machine_rank=0"]) == []
    second = load_recipe("quickstart", [*options, "train.machine_rank=1"]).train
    assert rank_changes(second, options) == []
    with pytest.raises(RecipeError, match=rf"begins on {OTHER}, and this is machine 1 of 2"):
        check_begins_here(second)
    check_begins_here(load_recipe("quickstart", [*options, "train.machine_rank=0"]).train)
    own_home = [*options, "train.machine_rank=1", "train.ssh=false", "train.shared_home=false"]
    check_begins_here(load_recipe("quickstart", own_home).train)


def test_the_command_refuses_a_list_without_this_machine(tmp_path: Path, recipe: str) -> None:
    done = graphmill(tmp_path / "home", "run", recipe, THREADS, "--hosts", f"{OTHER},other.invalid", "--json")
    assert done.returncode == 2
    assert f"error: train.hosts: none of {OTHER}, other.invalid is this machine" in done.stderr
    assert json.loads(done.stdout)["status"] == "failed"
    assert not list((tmp_path / "home").glob("artifacts/*/*"))


@pytest.mark.parametrize(
    ("only", "strategy", "over_machines"),
    [
        (["train"], "data_parallel", True),
        (["evaluate"], "partitioned", True),
        (["evaluate"], "data_parallel", False),
        (["ingest", "partition"], "partitioned", False),
    ],
)
def test_a_machine_lends_its_ranks_for_what_all_machines_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: list[str], strategy: str, over_machines: bool
) -> None:
    lent: list[int] = []
    monkeypatch.setattr(run, "lend_ranks", lambda home, recipe, selection: lent.append(recipe.train.machine_rank))
    monkeypatch.setattr(run, "_run_from_cache", lambda *_: SimpleNamespace())
    monkeypatch.setattr(run, "show_outcome", lambda *_: None)
    train = {"threads": 1, "hosts": [OTHER, socket.gethostname()], "strategy": strategy}
    recipe = str(write_recipe(tmp_path, train={**TINY["train"], **train}))
    run.run(Home.open(tmp_path / "home"), run.RunRequest(recipe, only=only))
    assert lent == ([1] if over_machines else [])
