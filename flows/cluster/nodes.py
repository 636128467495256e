"""This machine's part of a Ray cluster: what `ray start` leaves running, known and ended by its process group."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISDIR, S_ISVTX
from types import FrameType

import psutil

from configs.errors import RecipeError, StageError
from tasks.cluster.connect import (
    KNOWN_FILE,
    SAID,
    TOKEN_FILE,
    cluster_folder,
    known_cluster,
    left_workers,
    node_file,
    own_node,
    ray_environment,
    rays_processes,
)
from tasks.cluster.place import cache_folder
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
from tasks.processes.ending import TerminatedError
from tasks.storage.artifacts import file_lock, write_atomic
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import remove_left

_LONGEST_SOCKET = 107
_SOCKETS = "/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"
_RAYS_NAMES = ("session_", "ray_", "prom_")
"""How files in Ray's folder begin."""
_TOKEN_BYTES = 32
_LEAST_BYTES = 100e6
"""Of disk for Ray's logs."""


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
    with ExitStack() as stack:
        stack.enter_context(_locked(home, say))
        check_not_running(home)
        options = replace(options, node_ip=_own_address(options.node_ip))
        _make_token(home, options)
        _check_ports(options)
        check_parent(temp_dir)
        stack.enter_context(file_lock(temp_dir.parent / "lock"))  # another home's may begin in the same folder
        _end(-1, str(temp_dir))  # what a Ray that has ended left there
        temp_dir = _own_folder(temp_dir)
        remove_left(Home(cache_folder()))
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
            address = options.address or f"{options.node_ip or socket.gethostname()}:{options.port}"
            node = {"address": address, "group": process.pid, "temp_dir": str(temp_dir)}
            try:
                write_atomic(node_file(home), json.dumps(node).encode(), 0o600)  # `stop` ends what a kill leaves here
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(process.pid).rlimit(psutil.RLIMIT_CORE, (0, 0))  # a core would hold the token
                if process.wait(timeout=4 * ANSWER_SECONDS):
                    raise StageError(f"Ray did not start: {_reason(log)}; all it said is in {log}")
                if ip := _said_address(log):
                    node |= {"node_ip": ip, "address": options.address or f"{ip}:{options.port}"}
                    write_atomic(node_file(home), json.dumps(node).encode(), 0o600)
                    if options.node_ip not in (None, ip):
                        say(f"warning: Ray goes by {ip} here, and not by --node-ip {options.node_ip}")
                if options.address is None:
                    keep_known(home, str(node["address"]), is_head=True)
            except BaseException as error:
                _end(process.pid, str(temp_dir))
                node_file(home).unlink(missing_ok=True)
                if not isinstance(error, Exception):
                    shutil.rmtree(temp_dir, ignore_errors=True)
                if isinstance(error, subprocess.TimeoutExpired):
                    why = f"Ray did not start within {4 * ANSWER_SECONDS:.0f} seconds; see {log}"
                    raise StageError(why) from error
                raise
    return str(node["address"])


def stop(home: Home, say: Callable[[str], None]) -> bool:
    """End this machine's Ray, and nobody else's; return whether there was one."""
    if not cluster_folder(home).is_dir():
        return False
    with _locked(home, say):
        node = own_node(home)
        if not node:
            return False
        ended, temp_dir = _end(node["group"], node["temp_dir"]), Path(node["temp_dir"])
        if list(temp_dir.glob("session_*")) and not _others_files(temp_dir) and not _in_use(temp_dir):
            shutil.rmtree(temp_dir, ignore_errors=True)
        node_file(home).unlink(missing_ok=True)
        remove_left(Home(cache_folder()))
    return ended


def _locked(home: Home, say: Callable[[str], None]) -> AbstractContextManager[None]:
    waiting = "waiting for another `graphmill cluster start`, join or stop in this home"
    return file_lock(cluster_folder(home) / "lock", lambda: say(waiting))


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Have SIGTERM and SIGHUP unwind the main thread during the block, as Ctrl-C does: once, for that has to end."""
    numbers = (signal.SIGTERM, signal.SIGHUP)

    def end(_number: int, _frame: FrameType | None) -> None:
        for number in (*numbers, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise TerminatedError

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check_not_running(home: Home) -> None:
    """Raise RecipeError where this machine's Ray runs."""
    if node := running(home):
        raise RecipeError(
            f"this machine's Ray runs already (cluster {node['address']}); end it first: graphmill cluster stop"
        )


def running(home: Home) -> dict[str, object]:
    """Return what is known of this machine's Ray where it runs."""
    node = own_node(home)
    return node if node and rays_processes(int(node["group"]), str(node["temp_dir"])) else {}


def _end(group: int, temp_dir: str) -> bool:
    """End Ray's processes, by their ids: SIGTERM, then SIGKILL (Ray's store of the cluster ignores the first)."""

    def there() -> list[psutil.Process]:
        return rays_processes(group, temp_dir) + left_workers(temp_dir)

    left = found = there()
    for number, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        until = time.monotonic() + patience
        while (left := there()) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        if not left:
            break
    return bool(found)


def _make_token(home: Home, options: NodeOptions) -> None:
    path = cluster_folder(home) / TOKEN_FILE
    if options.address is None:
        for name in SAID:  # a cluster's token is that of its head's home
            os.environ.pop(name, None)
        if not path.exists() or not known_cluster(home).get("head", True):  # who knows that one has not to know this
            _write_token(home, secrets.token_hex(_TOKEN_BYTES))
    elif "RAY_AUTH_MODE" not in ray_environment(home):
        raise RecipeError(
            f"the token of the cluster at {options.address} is needed: --token-file FILE, a copy of the file that "
            "`graphmill cluster start` has named there"
        )


def keep_token(home: Home, token: str, address: str) -> None:
    """Keep the token of a cluster that this machine joins in the home, for its owner alone, and have Ray read that
    file, which stays. Raises RecipeError: another machine is in another cluster by this home."""
    _write_token(home, token)
    for name in SAID:
        os.environ.pop(name, None)
    keep_known(home, address, is_head=False)


def _write_token(home: Home, token: str) -> None:
    path = cluster_folder(home) / TOKEN_FILE
    others = set(path.parent.glob("*.json")) - {node_file(home), path.with_name(KNOWN_FILE)}
    if others and path.exists() and path.read_text() != token:
        raise RecipeError(
            f"this home has the token of a cluster in which another machine is, as {min(others)} says: end Ray there "
            "(graphmill cluster stop; where the machine is no more, remove the file), or take another --home"
        )
    write_atomic(path, token.encode(), 0o600)


def keep_known(home: Home, address: str, *, is_head: bool) -> None:
    """Keep of which cluster the home's token is."""
    write_atomic(cluster_folder(home) / KNOWN_FILE, json.dumps({"address": address, "head": is_head}).encode(), 0o600)


def _own_address(name: str | None) -> str | None:
    """Return the address that a name or an address of this machine stands for. Raises RecipeError."""
    try:
        return None if name is None else str(socket.getaddrinfo(name, None)[0][4][0])
    except OSError as error:
        raise RecipeError(f"--node-ip {name} is neither an address nor a known name: {error.strerror}") from error


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
        with socket.socket(socket.AF_INET6 if ":" in (options.node_ip or "") else socket.AF_INET) as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                free.bind((options.node_ip or "", port))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise RecipeError(f"--node-ip {options.node_ip} is no address of this machine") from error
                raise RecipeError(
                    f"port {port} ({name}) of this machine cannot be had: {error.strerror}; another Ray may run here "
                    "(two jobs of Slurm on one node, say): end it, or take other ports: --port and --shift-ports"
                ) from error


def _node_ports(options: NodeOptions) -> dict[str, int]:
    return {name: port + options.shift for name, port in {**NODE_PORTS, **AGENT_PORTS}.items()}


def check_parent(temp_dir: Path) -> None:
    """See that Ray's folder is to lie in one that nobody else may enter: Ray opens its own to everybody."""
    if len(str(temp_dir) + _SOCKETS) > _LONGEST_SOCKET:
        raise RecipeError(
            f"--temp-dir {temp_dir} is too long a name: sockets lie there, whose paths may have {_LONGEST_SOCKET} "
            "characters; take a short one on a disk of this machine"
        )
    parent = temp_dir.parent
    with contextlib.suppress(FileExistsError):  # no folder, or a link to nothing
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = parent.lstat()
    is_own = S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
    if parent != parent.resolve() or not is_own:
        raise RecipeError(
            f"{parent} has to be a folder of yours that nobody else may enter (mode 0700), and no link; name another "
            "by --temp-dir"
        )
    if (free := shutil.disk_usage(parent).free) < _LEAST_BYTES:
        raise RecipeError(f"{parent} has {free / 1e6:.0f} MB left, too few for Ray; name another place by --temp-dir")
    for above in parent.parents:
        status = above.stat()
        if status.st_uid not in (os.geteuid(), 0) or (status.st_mode & 0o022 and not status.st_mode & S_ISVTX):
            raise RecipeError(f"{above} lets others exchange {parent}; name another place by --temp-dir")


def _own_folder(temp_dir: Path) -> Path:
    """Return an empty folder for Ray. Raises RecipeError: another Ray uses it, or it is somebody's."""
    if temp_dir.exists() or temp_dir.is_symlink():
        if _others_files(temp_dir):
            raise RecipeError(
                f"--temp-dir {temp_dir} holds more than Ray's files, and would be emptied; name a new folder"
            )
        if _in_use(temp_dir):
            raise RecipeError(f"--temp-dir {temp_dir} is in use by another Ray; name a new folder")
        shutil.rmtree(temp_dir)
    temp_dir.mkdir()
    return temp_dir


def _others_files(temp_dir: Path) -> bool:
    """Whether there is something that Ray has not made for this user."""
    if temp_dir.is_symlink() or not temp_dir.is_dir() or temp_dir.stat().st_uid != os.geteuid():
        return True
    return any(not path.name.startswith(_RAYS_NAMES) for path in temp_dir.iterdir())


def _in_use(temp_dir: Path) -> bool:
    """Whether a process of this user has files there; anybody may call one of theirs so."""
    return any(
        process.info["uids"].real == os.geteuid() and f"{temp_dir}/" in " ".join(process.info["cmdline"] or ())
        for process in psutil.process_iter(["cmdline", "uids"])
    )


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
