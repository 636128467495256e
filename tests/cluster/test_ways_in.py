"""Which cluster is meant, by which token it is entered, and what `graphmill cluster` refuses before it begins Ray."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from configs.errors import RecipeError, StageError
from configs.values.cluster import ClusterConfig
from flows.cluster.nodes import NodeOptions, _make_token, _own_folder, check_parent, keep_known, keep_token, start, stop
from tasks.cluster.connect import (
    TOKEN_FILE,
    check_reached,
    check_token,
    choose_token,
    cluster_address,
    cluster_folder,
    node_file,
    ray_environment,
    read_token,
)
from tasks.cluster.survey import surveyed
from tasks.storage.home import Home
from tests.cluster.raylets import free_shift
from tests.flows.conftest import graphmill, write_recipe

AUTO = ClusterConfig(address="auto")


@pytest.fixture(autouse=True)
def _nothing_of_rays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "rays"))


def test_the_nearest_cluster_is_meant(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"RAY_ADDRESS is not set.*`graphmill cluster start`.*--cluster HOST:6379"
    with pytest.raises(RecipeError, match=message):
        cluster_address(AUTO, home)
    rays_own = tmp_path / "rays" / "ray" / "ray_current_cluster"
    rays_own.parent.mkdir(parents=True)
    rays_own.write_text("10.0.0.1:6379\n")
    assert cluster_address(AUTO, home) == "10.0.0.1:6379"
    cluster_folder(home).mkdir()
    node_file(home).write_text(json.dumps({"address": "10.0.0.2:6379", "group": 1, "temp_dir": "/t"}))
    assert cluster_address(AUTO, home) == "10.0.0.2:6379"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.3:6379")
    assert cluster_address(AUTO, home) == "10.0.0.3:6379"
    monkeypatch.setenv("RAY_ADDRESS", "ray://node5:10001")
    with pytest.raises(RecipeError, match=r"^'ray://node5:10001' is neither auto nor host:port.* outside of a cluster"):
        cluster_address(AUTO, home)


def test_a_recipe_sends_the_token_to_no_cluster_that_nobody_has_chosen(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = ClusterConfig(address="node4:7000")
    cluster_folder(home).mkdir()
    with pytest.raises(RecipeError, match=r"would be sent its token.*--cluster node4:7000 on the command line"):
        cluster_address(named, home)
    keep_token(home, "x" * 32, "node4:7000")
    assert cluster_address(named, home) == "node4:7000"
    with pytest.raises(RecipeError, match="would be sent its token"):
        cluster_address(ClusterConfig(address="node5:7000"), home)
    monkeypatch.setenv("RAY_ADDRESS", "node5:7000")
    assert cluster_address(ClusterConfig(address="node5:7000"), home) == "node5:7000"
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with pytest.raises(RecipeError, match="RAY_ADDRESS is not set"):
        cluster_address(AUTO, home)


def test_a_pipe_in_the_place_of_rays_own_file_is_not_waited_for(home: Home, tmp_path: Path) -> None:
    (tmp_path / "rays" / "ray").mkdir(parents=True)
    os.mkfifo(tmp_path / "rays" / "ray" / "ray_current_cluster")
    with pytest.raises(RecipeError, match="no cluster is known here"):
        cluster_address(AUTO, home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_cluster_that_another_user_tells_of_is_none(home: Home, tmp_path: Path) -> None:
    rays_own = tmp_path / "rays" / "ray" / "ray_current_cluster"
    rays_own.parent.mkdir(parents=True)
    rays_own.write_text("10.0.0.1:6379")
    os.chown(rays_own, 23456, 23456)
    with pytest.raises(RecipeError, match="no cluster is known here"):
        cluster_address(AUTO, home)


def test_a_token_is_that_of_the_variables_else_the_homes(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"} & set(ray_environment(home))
    check_token(home)
    token = cluster_folder(home) / TOKEN_FILE
    token.parent.mkdir()
    token.write_text("a")
    assert ray_environment(home)["RAY_AUTH_TOKEN_PATH"] == str(token)
    assert ray_environment(home)["RAY_AUTH_MODE"] == "token"
    with pytest.raises(RecipeError, match=r"holds no token.*RAY_AUTH_TOKEN_PATH=FILE"):
        check_token(home)
    token.write_text("0123456789abcdef\n")
    check_token(home)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
    assert "RAY_AUTH_TOKEN_PATH" not in ray_environment(home)
    with pytest.raises(RecipeError, match=r"cannot be read from /nowhere"):
        check_token(home)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    check_token(home)


def test_what_is_no_token_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "copy"
    for content in (b"", b"short", b"two words of many letters", "größer als vier Kilobyte".encode(), b"x" * 5000):
        source.write_bytes(content)
        with pytest.raises(RecipeError, match="holds no token"):
            read_token(source)
    source.write_bytes(b"\xff")
    with pytest.raises(RecipeError, match="can't decode"):
        read_token(source)
    os.mkfifo(tmp_path / "pipe")
    for path, words in ((tmp_path / "missing", "No such file"), (tmp_path, "holds no token|Is a directory")):
        with pytest.raises(RecipeError, match=words):
            read_token(path)
    with pytest.raises(RecipeError, match="holds no token"):
        read_token(tmp_path / "pipe")


def test_a_token_is_kept_for_its_owner_alone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cluster_folder(home) / TOKEN_FILE
    kept.parent.mkdir()
    keep_token(home, "x" * 32, "node1:6379")
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("x" * 32, 0o600)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of another cluster")
    _make_token(home, NodeOptions(None))  # a head's own: who has the other cluster's does not get into this one
    own = kept.read_text()
    assert len(own) == 64
    assert "RAY_AUTH_TOKEN" not in os.environ
    keep_known(home, "node2:6379", is_head=True)
    _make_token(home, NodeOptions(None))
    assert kept.read_text() == own


def test_ray_reads_the_homes_copy_of_a_token_that_is_kept(home: Home, tmp_path: Path) -> None:
    """The file that came from elsewhere may be removed while Ray runs."""
    (tmp_path / "copy").write_text("x" * 32)
    cluster_folder(home).mkdir()
    keep_token(home, choose_token(tmp_path / "copy"), "node1:6379")
    assert "RAY_AUTH_TOKEN_PATH" not in os.environ
    assert ray_environment(home)["RAY_AUTH_TOKEN_PATH"] == str(cluster_folder(home) / TOKEN_FILE)


def test_a_token_by_which_another_machine_is_in_a_cluster_stays(home: Home) -> None:
    cluster_folder(home).mkdir()
    keep_token(home, "x" * 32, "node1:6379")
    other = node_file(home).with_name("node2-0.json")
    other.write_text("{}")
    keep_token(home, "x" * 32, "node1:6379")
    with pytest.raises(RecipeError, match=f"as {other} says: .*cluster stop.*--home"):
        keep_token(home, "y" * 32, "node3:6379")
    with pytest.raises(RecipeError, match="another machine is"):
        _make_token(home, NodeOptions(None))
    assert (cluster_folder(home) / TOKEN_FILE).read_text() == "x" * 32


def test_a_token_that_is_refused_takes_the_place_of_none(home: Home, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("y" * 32)
    cluster_folder(home).mkdir()
    keep_token(home, "x" * 32, "node1:6379")
    address = f"127.0.0.1:{6379 + free_shift()}"
    refused = graphmill(home.root, "cluster", "join", address, "--token-file", str(tmp_path / "other"))
    assert f"no cluster answers at {address}" in refused.stderr
    assert (cluster_folder(home) / TOKEN_FILE).read_text() == "x" * 32


def test_a_damaged_file_of_this_machines_ray_is_named_and_removes_nothing(home: Home, tmp_path: Path) -> None:
    cluster_folder(home).mkdir()
    node = node_file(home)
    for content in ('{"address"', '{"address": "x:1"}'):
        node.write_text(content)
        with pytest.raises(RecipeError, match=r"is damaged; end Ray's processes"):
            stop(home, print)
    (tmp_path / "precious").mkdir()
    node.write_text(json.dumps({"address": "x:1", "group": 999999, "temp_dir": str(tmp_path / "precious")}))
    assert not stop(home, print)
    assert (tmp_path / "precious").exists()
    assert not node.exists()


def test_a_ray_that_has_ended_is_said_at_once_of_its_own_cluster_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_folder(home).mkdir()
    node_file(home).write_text(json.dumps({"address": "node1:6379", "group": 999999, "temp_dir": "/t"}))
    with pytest.raises(StageError, match=r"has ended, .*: `graphmill cluster join node1:6379`, or"):
        surveyed(AUTO, home)
    address = f"127.0.0.1:{6379 + free_shift()}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(StageError, match=f"no cluster answers at {address}"):
        surveyed(AUTO, home)


def test_rays_folder_is_empty_and_in_one_that_nobody_else_may_enter(short_folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"too long a name.* 107 characters"):
        check_parent(short_folder / ("x" * 30))
    for mode in (0o755, 0o710, 0o701):
        short_folder.chmod(mode)
        with pytest.raises(RecipeError, match=r"nobody else may enter \(mode 0700\)"):
            check_parent(short_folder / "r")
    short_folder.chmod(0o777)
    with pytest.raises(RecipeError, match=f"^{short_folder} lets others exchange .*--temp-dir"):
        check_parent(short_folder / "new" / "r")
    short_folder.chmod(0o755)
    check_parent(short_folder / "new" / "r")
    for name, place in (("link", "new"), ("nowhere", "missing")):
        (short_folder / name).symlink_to(short_folder / place)
    (short_folder / "file").touch()
    for name in ("nowhere", "file"):
        with pytest.raises(RecipeError, match="has to be a folder of yours"):
            check_parent(short_folder / name / "r")
    with pytest.raises(RecipeError, match="and no link"):
        check_parent(short_folder / "link" / "r")
    made = _own_folder(short_folder / "new" / "r")
    assert made.parent.stat().st_mode & 0o777 == 0o700
    (made / "session_latest").touch()
    assert not list(_own_folder(made).iterdir())
    (made / "thesis.tex").touch()
    with pytest.raises(RecipeError, match="holds more than Ray's files"):
        _own_folder(made)
    assert (made / "thesis.tex").exists()


def test_a_port_that_is_taken_is_named(home: Home, short_folder: Path) -> None:
    shift = free_shift()
    options = NodeOptions(None, port=6379 + shift, shift=shift, node_ip="127.0.0.1")
    with socket.create_server(("127.0.0.1", 6381 + shift)):
        message = rf"^port {6381 + shift} \(object-manager-port\) .*Address already in use.*--port and --shift-ports$"
        with pytest.raises(RecipeError, match=message):
            start(home, options, short_folder / "r", print)
    assert not (short_folder / "r").exists()


def test_nothing_that_answers_is_said_at_once(home: Home) -> None:
    address = f"127.0.0.1:{6379 + free_shift()}"
    with pytest.raises(StageError, match=rf"^no cluster answers at {address}: Connection refused"):
        check_reached(address, ClusterConfig(address=address), home)


def test_a_run_that_finds_all_needs_no_cluster(tmp_path: Path) -> None:
    words = ["run", str(write_recipe(tmp_path)), "--only", "ingest,preprocess"]
    for more in ((), ("--cluster", "auto")):
        done = graphmill(tmp_path / "home", *words, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "preprocess  cached" in done.stderr
