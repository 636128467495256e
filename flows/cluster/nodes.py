"""This machine's part of a Ray cluster: what `ray start` leaves running, known and ended by its process group."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from configs.errors import RecipeError, StageError
from tasks.cluster.connect import TOKEN_FILE, cluster_folder, node_file, own_node, ray_environment
from tasks.cluster.settings import (
    AGENT_PORTS,
    ANSWER_SECONDS,
    DASHBOARD_PORT,
    HEAD_PORT,
    HEALTH,
    LOOK_SECONDS,
    NODE,
    NODE_PORTS,
    WORKER_PORTS,
)
from tasks.storage.artifacts import file_lock, write_atomic
from tasks.storage.home import Home

_LONGEST_SOCKET = 107
_SOCKETS = "/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"
_RAYS_NAMES = ("session_", "ray_", "prom_")
"""How files in Ray's folder begin."""
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class NodeOptions:
    """How this machine takes part."""

    address: str | None = None
    """host:port of the head; None: this machine is the head."""
    port: int = HEAD_PORT
    """Of the head."""
    node_ip: str | None = None
    """Address by which the others reach this machine; None: Ray finds one."""
    cpus: int | None = None
    gpus: int | None = None
    dashboard: bool = False
    """Serve Ray's dashboard, on loopback."""
    shift: int = 0
    """Added to all ports but the head's: several machines that are one, in tests."""


def start(home: Home, options: NodeOptions, temp_dir: Path, say: Callable[[str], None]) -> str:
    """Begin this machine's Ray; return host:port of the head.

    Raises RecipeError: one runs already, or there is no token to join with; StageError: it did not start.
    """
    folder = cluster_folder(home)
    folder.mkdir(mode=0o700, exist_ok=True)
    with file_lock(folder / "lock"):
        if node := running(home):
            raise RecipeError(
                f"this machine's Ray runs already (cluster {node['address']}); end it first: graphmill cluster stop"
            )
        _make_token(home, options)
        _check_ports(options)
        temp_dir = _own_folder(temp_dir)
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *_arguments(options, temp_dir)]
        log = folder / "ray.log"
        say("starting Ray")
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **ray_environment(home), **HEALTH, **NODE},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout=4 * ANSWER_SECONDS)
            except subprocess.TimeoutExpired as error:
                _end(process.pid, str(temp_dir))
                raise StageError(f"Ray did not start within {4 * ANSWER_SECONDS:.0f} seconds; see {log}") from error
            except BaseException:
                _end(process.pid, str(temp_dir))
                raise
        if code:
            _end(process.pid, str(temp_dir))
            raise StageError(f"Ray did not start: {_reason(log)}; all it said is in {log}")
        address = options.address or f"{_said_address(log) or socket.gethostname()}:{options.port}"
        node = {"address": address, "group": process.pid, "temp_dir": str(temp_dir), "head": options.address is None}
        if ip := _said_address(log) or options.node_ip:
            node["node_ip"] = ip
        write_atomic(node_file(home), json.dumps(node).encode(), 0o600)
    return address


def stop(home: Home) -> bool:
    """End this machine's Ray, and nobody else's; return whether there was one."""
    with file_lock(cluster_folder(home) / "lock"):
        node = own_node(home)
        if not node:
            return False
        ended = _end(int(node["group"]), str(node["temp_dir"]))
        shutil.rmtree(node["temp_dir"], ignore_errors=True)
        node_file(home).unlink(missing_ok=True)
    return ended


def running(home: Home) -> dict[str, object]:
    """Return what is known of this machine's Ray where it runs; what was left of one that ended is removed."""
    node = own_node(home)
    if node and not _processes(int(node["group"]), str(node["temp_dir"])):
        node_file(home).unlink(missing_ok=True)
        return {}
    return node


def _processes(group: int, temp_dir: str) -> list[psutil.Process]:
    """Return the processes of a group that are Ray's: the number may be another's since."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and _is_rays(process, temp_dir):
                found.append(process)
    return found


def _is_rays(process: psutil.Process, temp_dir: str) -> bool:
    if any(temp_dir in part for part in process.cmdline()):
        return True
    with contextlib.suppress(psutil.Error):  # workers and agents have names of their own
        return process.uids().real == os.geteuid() and any(part.startswith("ray::") for part in process.cmdline())
    return False


def _end(group: int, temp_dir: str) -> bool:
    """End a group of processes, by their ids: SIGTERM, then SIGKILL (Ray's store of the cluster ignores the first)."""
    there = _processes(group, temp_dir)
    for number, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        for process in _processes(group, temp_dir):
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        until = time.monotonic() + patience
        while (left := _processes(group, temp_dir)) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        if not left:
            break
    return bool(there)


def _make_token(home: Home, options: NodeOptions) -> None:
    path = cluster_folder(home) / TOKEN_FILE
    if options.address is None:
        if not path.exists():
            write_atomic(path, secrets.token_hex(_TOKEN_BYTES).encode(), 0o600)
    elif "RAY_AUTH_MODE" not in ray_environment(home):
        raise RecipeError(
            f"the token of the cluster at {options.address} is needed: --token-file FILE, a copy of the file that "
            "`graphmill cluster start` has named there"
        )


def keep_token(home: Home, source: Path) -> None:
    """Keep a copy of a token in the home, for its owner alone. Raises RecipeError."""
    try:
        content = source.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"--token-file {source}: {error}") from error
    if not content or len(content.split()) != 1:
        raise RecipeError(f"--token-file {source} holds no token: one word is expected there")
    write_atomic(cluster_folder(home) / TOKEN_FILE, content.encode(), 0o600)


def _check_ports(options: NodeOptions) -> None:
    """Raise RecipeError where a port is taken: Ray would say so minutes later, in a log."""
    ports = {"port": options.port} if options.address is None else {}
    first, last = (port + options.shift for port in WORKER_PORTS)
    if options.address is None and (options.port in _node_ports(options).values() or first <= options.port <= last):
        raise RecipeError(
            f"--port {options.port} is among the ports of this machine's own processes ({first} to {last}, and "
            f"{', '.join(map(str, _node_ports(options).values()))}); take another, or another --shift-ports"
        )
    for name, port in {**ports, **_node_ports(options)}.items():
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                free.bind((options.node_ip or "", port))
            except OSError as error:
                raise RecipeError(
                    f"port {port} ({name}) of this machine cannot be had: {error.strerror}; another Ray may run here "
                    "(two jobs of Slurm on one node, say): end it, or take other ports: --port and --shift-ports"
                ) from error


def _node_ports(options: NodeOptions) -> dict[str, int]:
    return {name: port + options.shift for name, port in {**NODE_PORTS, **AGENT_PORTS}.items()}


def _own_folder(temp_dir: Path) -> Path:
    """Return an empty folder for Ray in a folder that nobody else may enter: Ray opens its own to everybody."""
    if len(str(temp_dir) + _SOCKETS) > _LONGEST_SOCKET:
        raise RecipeError(
            f"--temp-dir {temp_dir} is too long a name: sockets lie there, whose paths may have {_LONGEST_SOCKET} "
            "characters; take a short one on a disk of this machine"
        )
    temp_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = temp_dir.parent.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise RecipeError(f"{temp_dir.parent} has to be a folder of yours that nobody else may enter (mode 0700)")
    if temp_dir.exists():
        if not temp_dir.is_dir() or any(not path.name.startswith(_RAYS_NAMES) for path in temp_dir.iterdir()):
            raise RecipeError(
                f"--temp-dir {temp_dir} holds more than Ray's files, and would be emptied; name a new folder"
            )
        if any(
            f"{temp_dir}/" in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
        ):
            raise RecipeError(f"--temp-dir {temp_dir} is in use by another Ray; name a new folder")
        shutil.rmtree(temp_dir)
    temp_dir.mkdir()
    return temp_dir


def _arguments(options: NodeOptions, temp_dir: Path) -> list[str]:
    arguments = [f"--temp-dir={temp_dir}", "--disable-usage-stats", "--include-log-monitor=false"]
    if options.address is None:
        # Ray's autoscaler, which is left out, would serve its metrics to everybody.
        arguments += ["--head", f"--port={options.port}", "--no-monitor"]
        arguments += [f"--include-dashboard={str(options.dashboard).lower()}"]
        arguments += ["--dashboard-host=127.0.0.1", f"--dashboard-port={DASHBOARD_PORT}"]
    else:
        arguments += [f"--address={options.address}"]
    first, last = (port + options.shift for port in WORKER_PORTS)
    arguments += [f"--{name}={port}" for name, port in _node_ports(options).items()]
    arguments += [f"--min-worker-port={first}", f"--max-worker-port={last}"]
    arguments += [f"--node-ip-address={options.node_ip}"] if options.node_ip else []
    arguments += [f"--num-cpus={options.cpus}"] if options.cpus is not None else []
    arguments += [f"--num-gpus={options.gpus}"] if options.gpus is not None else []
    return arguments


def _said_address(log: Path) -> str:
    """Return the address that Ray has chosen, as it says."""
    for line in log.read_text(errors="replace").splitlines():
        _, found, rest = line.partition("Local node IP:")
        if found:
            return rest.replace("\x1b[0m", "").replace("\x1b[1m", "").strip().split()[0]
    return ""


def _reason(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if "error" in line.lower()] or lines or ["it said nothing"]
    return said[-1][:300]
