"""A list of machines: what it may hold, what follows from it, and which of them this one is."""

from __future__ import annotations

import ipaddress
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe, dump_recipe, load_recipe
from flows.machines import own_rank as own_rank_module
from flows.machines.own_rank import own_rank, read_hosts
from tasks.train.job import stage_config
from tasks.train.ranks import interface

THREADS = "train.threads=1"


def _train(*overrides: str) -> Any:
    return load_recipe("quickstart", [THREADS, *overrides]).train


@pytest.mark.parametrize("text", ["a,b.example.org,10.0.0.3", "[a, b.example.org, 10.0.0.3]"])
def test_hosts_say_the_machines(text: str) -> None:
    train = _train(f"train.hosts={text}")
    assert train.hosts == ("a", "b.example.org", "10.0.0.3")
    assert (train.num_machines, train.rendezvous, train.machine_rank) == (3, "a:29500", 0)


def test_an_explicit_rendezvous_wins() -> None:
    assert _train("train.hosts=a,b", "train.rendezvous=c:1").rendezvous == "c:1"
    assert _train("train.hosts=['fd00::1',b]").rendezvous == "[fd00::1]:29500"


def test_a_recipe_with_hosts_is_read_back() -> None:
    recipe = load_recipe("quickstart", [THREADS, "train.hosts=a,b", "train.machine_rank=1"])
    assert build_recipe(dump_recipe(recipe)) == recipe


def test_where_ranks_run_decides_nothing() -> None:
    """Three machines are three machines, however they are called and whoever starts them."""
    plain = ["train.num_machines=3", "train.rendezvous=x:1", "train.machine_rank=2"]
    named = ["train.hosts=a,b,c", "train.ssh=true"]
    keys = [stage_config(load_recipe("quickstart", [THREADS, *texts])) for texts in (plain, named)]
    assert keys[0] == keys[1]
    assert stage_config(load_recipe("quickstart", [THREADS, "train.hosts=a,b"])) != keys[0]
    alone = stage_config(load_recipe("quickstart", [THREADS]))
    assert not {"hosts", "ssh", "rendezvous", "machine_rank"} & alone["train"].keys()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["train.hosts=a,b", "train.num_machines=3"],
            r"num_machines=3, but hosts names 2: a, b; leave",
        ),
        (["train.hosts=a,b,A"], r"train\.hosts: a is listed twice"),
        (["train.hosts=a,-oProxyCommand=x"], r"'-oProxyCommand=x' is neither a machine's name nor an address"),
        (["train.hosts=a,me@b"], r"'me@b' is neither"),
        (["train.hosts=a,b:22"], r"'b:22' is neither"),
        (["train.ssh=true"], r"ssh=true needs the machines that are to be started: hosts=node1,node2"),
        (["train.hosts=a", "train.ssh=true"], r"ssh=true needs the machines"),
    ],
)
def test_mistakes_are_told(overrides: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        _train(*overrides)


def test_several_machines_need_threads() -> None:
    with pytest.raises(RecipeError, match=r"num_machines > 1 needs threads"):
        load_recipe("quickstart", ["train.hosts=a,b", "train.threads=0"])


def test_a_file_of_hosts(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# the rack\nnode1\n\n  node2  # with the large disk\n")
    assert read_hosts(str(path)) == ["node1", "node2"]
    assert read_hosts("node1, node2,") == ["node1", "node2"]
    path.write_text("node1\nnode2 slots=8\n")
    with pytest.raises(RecipeError, match=rf"{path}, line 2: 'node2 slots=8' is more than a name"):
        read_hosts(str(path))
    path.write_text("node1\nno_de!\n")
    with pytest.raises(RecipeError, match=rf"{path}: 'no_de!' is neither"):
        read_hosts(str(path))
    path.write_text("# nobody\n")
    with pytest.raises(RecipeError, match="names no machine"):
        read_hosts(str(path))
    with pytest.raises(RecipeError, match="No such file"):
        read_hosts(str(tmp_path / "none"))


def test_this_machine_by_its_name() -> None:
    name = socket.gethostname()
    assert own_rank(["no-such-machine.invalid", name.upper()]) == 1


def test_this_machine_by_an_address() -> None:
    found = [
        item.address for items in psutil.net_if_addrs().values() for item in items if item.family == socket.AF_INET
    ]
    address = next((text for text in found if not ipaddress.ip_address(text).is_loopback), None)
    if address is None:
        pytest.skip("no interface but the loopback")
    assert own_rank(["192.0.2.7", address]) == 1
    assert own_rank(["127.0.0.1", "192.0.2.7"]) == 0


def test_a_machine_that_is_not_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_rank_module.socket, "gethostname", lambda: "node9.example.org")
    with pytest.raises(RecipeError) as caught:
        own_rank(["192.0.2.7", "no-such-machine.invalid"])
    text = str(caught.value)
    assert "none of 192.0.2.7, no-such-machine.invalid is this machine" in text
    assert "(no-such-machine.invalid: no address is known here)" in text
    assert "this machine is node9 or node9.example.org, at " in text
    assert "train.machine_rank=N" in text


def test_two_names_of_one_machine() -> None:
    with pytest.raises(RecipeError, match=r"127\.0\.0\.1 and 127\.0\.0\.2 are one machine"):
        own_rank(["127.0.0.1", "127.0.0.2"])


def test_hosts_are_json_in_overrides() -> None:
    assert _train(f"train.hosts={json.dumps(['1.5', 'b'])}").hosts == ("1.5", "b")


@pytest.mark.parametrize(
    ("rank", "addresses", "expected"),
    [
        (0, {"a": "10.0.0.1", "b": "10.1.0.1"}, "eth0"),
        (0, {"a": "127.0.0.1", "b": "10.1.0.1"}, "eth1"),
        (0, {"a": "127.0.0.1", "c": "10.1.0.1"}, "eth1"),
        (0, {"a": "127.0.0.1"}, "lo"),
        (1, {"a": "127.0.0.1", "b": "10.1.0.1"}, "lo"),
        (1, {"a": "10.0.0.1"}, "eth0"),
        (1, {}, None),
    ],
)
def test_ranks_talk_by_an_interface_that_others_reach(
    monkeypatch: pytest.MonkeyPatch, rank: int, addresses: dict[str, str], expected: str | None
) -> None:
    """Debian's /etc/hosts leads a machine's own name to 127.0.1.1."""
    there = {"lo": "127.0.0.1", "eth0": "10.0.0.1", "eth1": "10.1.0.1"}
    found = {name: [SimpleNamespace(address=address)] for name, address in there.items()}
    monkeypatch.setattr(interface, "_own_address", lambda host: addresses.get(host, ""))
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)
    assert interface.own_interface(_train("train.hosts=a,b,c", f"train.machine_rank={rank}")) == expected
