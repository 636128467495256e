"""Which cluster is meant, by which token it is entered, and what `graphmill cluster` refuses before it begins Ray."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from configs.errors import RecipeError, StageError
from configs.values.cluster import ClusterConfig
from flows.cluster.nodes import NodeOptions, _own_folder, keep_token, start
from tasks.cluster.connect import (
    TOKEN_FILE,
    check_reached,
    check_token,
    cluster_address,
    cluster_folder,
    node_file,
    ray_environment,
)
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
    node_file(home).write_text(json.dumps({"address": "10.0.0.2:6379"}))
    assert cluster_address(AUTO, home) == "10.0.0.2:6379"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.3:6379")
    assert cluster_address(AUTO, home) == "10.0.0.3:6379"
    assert cluster_address(ClusterConfig(address="node4:7000"), home) == "node4:7000"
    monkeypatch.setenv("RAY_ADDRESS", "ray://node5:10001")
    with pytest.raises(RecipeError, match=r"^'ray://node5:10001' is neither auto nor host:port.* outside of a cluster"):
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
    token.write_text("")
    assert ray_environment(home)["RAY_AUTH_TOKEN_PATH"] == str(token)
    assert ray_environment(home)["RAY_AUTH_MODE"] == "token"
    with pytest.raises(RecipeError, match=r"is empty.*RAY_AUTH_TOKEN_PATH=FILE"):
        check_token(home)
    token.write_text("abc\n")
    check_token(home)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
    assert "RAY_AUTH_TOKEN_PATH" not in ray_environment(home)
    with pytest.raises(RecipeError, match=r"cannot be read: .*/nowhere"):
        check_token(home)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    check_token(home)


def test_a_token_is_kept_for_its_owner_alone(home: Home, tmp_path: Path) -> None:
    source = tmp_path / "copy"
    for content, words in ((b"", "holds no token"), (b"two words", "holds no token"), (b"\xff", "can't decode")):
        source.write_bytes(content)
        with pytest.raises(RecipeError, match=words):
            keep_token(home, source)
    with pytest.raises(RecipeError, match="No such file"):
        keep_token(home, tmp_path / "missing")
    assert not (cluster_folder(home) / TOKEN_FILE).exists()
    source.write_text("abc\n")
    keep_token(home, source)
    kept = cluster_folder(home) / TOKEN_FILE
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("abc", 0o600)


def test_rays_folder_is_empty_and_in_one_that_nobody_else_may_enter(short_folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"too long a name.* 107 characters"):
        _own_folder(short_folder / ("x" * 30))
    for mode in (0o755, 0o710, 0o701):
        short_folder.chmod(mode)
        with pytest.raises(RecipeError, match=r"nobody else may enter \(mode 0700\)"):
            _own_folder(short_folder / "r")
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
