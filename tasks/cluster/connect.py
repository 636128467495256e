"""Find a Ray cluster, see that it lets us in and nobody else, and connect to it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import Any

import psutil
from pydantic import ValidationError

from configs.errors import RecipeError, StageError
from configs.values.cluster import ClusterConfig
from tasks.cluster.settings import ANSWER_SECONDS, REACH_SECONDS
from tasks.processes.children import ROOT
from tasks.storage.file_names import file_name
from tasks.storage.home import Home

TOKEN_FILE, KNOWN_FILE = "token", "known.json"
_MACHINE_ID = Path("/etc/machine-id")
_TOKEN_TEXT = re.compile(r"[!-~]{16,4096}")
_MODE, _TOKEN, _TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
SAID = (_MODE, _TOKEN, _TOKEN_PATH)
"""Variables by which Ray finds a token."""
_NAMES_AS_OTHERS = {"GRPC_DNS_RESOLVER": "native"}
"""Ray's own resolver waits for a name server that does not answer, also for names that /etc/hosts has."""
_WAY_IN = (
    "give the token that `graphmill cluster start` has printed the path of: `cluster join --token-file FILE`, else "
    "RAY_AUTH_TOKEN_PATH=FILE (mode 0600)"
)


def cluster_folder(home: Home) -> Path:
    """Return where a home keeps the token and what of Ray runs on this machine."""
    return home.root / "cluster"


def node_file(home: Home) -> Path:
    """Return the file that tells of this machine's Ray; several machines may have one home, and even one name."""
    try:
        machine = hashlib.sha256(_MACHINE_ID.read_bytes()).hexdigest()[:8]
    except OSError:
        machine = "unknown"
    return cluster_folder(home) / file_name(f"{socket.gethostname()}-{machine}.json")


def own_node(home: Home) -> dict[str, Any]:
    """Return what `graphmill cluster start` or join has written of this machine's Ray; nothing: they have not.

    Raises RecipeError: the file is damaged.
    """
    path = node_file(home)
    try:
        node: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {**node, "address": str(node["address"]), "group": int(node["group"]), "temp_dir": str(node["temp_dir"])}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise RecipeError(f"{path} is damaged; end Ray's processes, if there are any, and remove it") from error


def rays_processes(group: int, temp_dir: str) -> list[psutil.Process]:
    """Return the processes of a group that are Ray's: the number may be another's since."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            is_own = os.getpgid(process.pid) == group and process.uids().real == os.geteuid()
            # Workers and agents have names of their own.
            if is_own and any(temp_dir in part or part.startswith("ray::") for part in process.cmdline()):
                found.append(process)
    return found


def left_workers(temp_dir: str) -> list[psutil.Process]:
    """Return Ray's workers with files in its folder: they have groups of their own, and may outlive what began them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_own = process.uids().real == os.geteuid() and "".join(process.cmdline()[:1]).startswith("ray::")
            if is_own and any(file.path.startswith(f"{temp_dir}/") for file in process.open_files()):
                found.append(process)
    return found


def check_own_ray(address: str, home: Home) -> None:
    """Raise StageError where this machine's Ray, of that cluster, has ended: Ray would wait for it by the minute."""
    node = own_node(home)
    if node.get("address") == address and not rays_processes(node["group"], node["temp_dir"]):
        raise StageError(
            f"this machine's Ray has ended, which was in the cluster of {address}: `graphmill cluster join {address}`, "
            "or `graphmill cluster start` where it is the head"
        )


def known_cluster(home: Home) -> dict[str, Any]:
    """Return `address` of the cluster whose token the home has, and whether this is its `head`; nothing: of none."""
    try:
        known: dict[str, Any] = json.loads((cluster_folder(home) / KNOWN_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return known


def named_cluster(address: str) -> ClusterConfig:
    """Return the section of a cluster that is not named by a recipe. Raises RecipeError: it is no address."""
    try:
        return ClusterConfig(address=address)
    except ValidationError as error:
        raise RecipeError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


def choose_cluster(address: str) -> ClusterConfig:
    """As `named_cluster`, of the one that who runs this command has named. Raises RecipeError."""
    config = named_cluster(address)
    if address != "auto":
        os.environ["RAY_ADDRESS"] = address
    return config


def choose_token(path: Path) -> str:
    """Return the token of a file, and let this process come with it and no other. Raises RecipeError."""
    token = read_token(path)
    for name in SAID:
        os.environ.pop(name, None)
    os.environ |= {_MODE: "token", _TOKEN_PATH: str(path.absolute())}
    return token


def cluster_address(config: ClusterConfig, home: Home) -> str:
    """Return host:port of the head that `cluster.address` means.

    Raises RecipeError: none is known; or a recipe names one that nobody here has chosen: it would be sent the token.
    """
    assert config.address is not None
    chosen, node = os.environ.get("RAY_ADDRESS") or "auto", own_node(home)
    if config.address != "auto":
        if config.address not in (chosen, node.get("address"), known_cluster(home).get("address")):
            raise RecipeError(
                f"cluster.address={config.address} is no cluster that this home has begun or joined, and would be sent "
                f"its token; where it is yours: --cluster {config.address} on the command line, or RAY_ADDRESS"
            )
        return config.address
    if chosen != "auto":
        return named_cluster(chosen).address or ""
    if node:
        return str(node["address"])
    rays_own = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # anybody may have put a pipe there
    with contextlib.suppress(OSError), os.fdopen(os.open(rays_own, flags)) as file:
        status = os.fstat(file.fileno())
        if status.st_uid == os.geteuid() and S_ISREG(status.st_mode):
            return named_cluster(file.read(300).strip()).address or ""
    raise RecipeError(
        "cluster.address=auto, and no cluster is known here: RAY_ADDRESS is not set, and neither graphmill nor Ray has "
        "begun one on this machine. Begin one with `graphmill cluster start`, or name its head: --cluster HOST:6379"
    )


def ray_environment(home: Home) -> dict[str, str]:
    """Return the variables that Ray is to find before it is imported: by which token, and nothing to its makers."""
    variables = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    variables |= _NAMES_AS_OTHERS
    if os.environ.get(_MODE) or os.environ.get(_TOKEN) or os.environ.get(_TOKEN_PATH):
        return {_MODE: "token", **variables}
    own = cluster_folder(home) / TOKEN_FILE
    return {_MODE: "token", _TOKEN_PATH: str(own), **variables} if own.exists() else variables


def check_token(home: Home) -> None:
    """Raise RecipeError where the file of a token cannot be read: Ray would abort the process."""
    path = {**os.environ, **ray_environment(home)}.get(_TOKEN_PATH)
    if not os.environ.get(_TOKEN) and path is not None:
        read_token(Path(path))


def read_token(path: Path) -> str:
    """Return the token that a file holds. Raises RecipeError."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe is not waited for
            is_file = S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(5000).decode().strip() if is_file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"the token of the cluster cannot be read from {path}: {error}; {_WAY_IN}") from error
    if not _TOKEN_TEXT.fullmatch(content):
        raise RecipeError(f"{path} holds no token, which is one word of 16 letters and digits or more; {_WAY_IN}")
    return content


def check_reached(address: str, config: ClusterConfig, home: Home, *, here: bool = False) -> None:
    """See that a cluster is there, that it lets us in, and that it asks for a token.

    `here`: this process is the cluster's, and may load Ray now. Raises StageError: nothing answers; RecipeError: the
    token is wrong, or the cluster asks for none.
    """
    check_head(address)
    check_token(home)
    own = {name: os.environ[name] for name in SAID if name in os.environ} | ray_environment(home)
    if here:
        os.environ |= own
    with ThreadPoolExecutor() as threads:  # a second each
        strangers = threads.submit(_asked, address, {}) if config.require_token else None
        answer = answer_of(address) if here else _asked(address, own)
        open_to_all = strangers is not None and strangers.result() == "in"
    if answer == "token":
        fault = "has another token" if _MODE in ray_environment(home) else "asks for a token, and there is none here"
        raise RecipeError(f"the cluster at {address} {fault}; {_WAY_IN}")
    if answer != "in":
        raise StageError(f"what answers at {address} is no cluster that this Ray can talk to: {answer}")
    if open_to_all:
        raise RecipeError(
            f"the cluster at {address} asks for no token: who reaches its ports can run programs as you. Begin it with "
            "`graphmill cluster start`, or with RAY_AUTH_MODE=token; on a network where nobody else is, "
            "cluster.require_token=false takes it as it is"
        )


def check_head(address: str) -> None:
    """Raise StageError where nothing listens at the head's address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except (OSError, ValueError) as error:  # ValueError: a name that none can be
        why = getattr(error, "strerror", None) or error
        raise StageError(
            f"no cluster answers at {address}: {why}; see `graphmill cluster status` there, and that this machine may "
            "reach the port"
        ) from error


def answer_of(address: str) -> str:
    """Return what a head says to this process: `in`, `token` (it has a wrong one or none), or an error's line.

    Loads Ray, which reads its variables then and never again.
    """
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    try:
        GcsClient(address=address).get_all_node_info(timeout=REACH_SECONDS)
    except Exception as error:
        return "token" if type(error).__name__ == "AuthenticationError" else first_line(str(error))
    return "in"


_ASK = "import sys; from tasks.cluster.connect import answer_of; print(answer_of(sys.argv[1]))"


def _asked(address: str, variables: dict[str, str]) -> str:
    """Return what a head says to a process with these variables of Ray's."""
    kept = {name: value for name, value in os.environ.items() if not re.match("RAY_(?!USE_TLS|TLS_)", name)}
    environment = kept | _NAMES_AS_OTHERS | variables
    command = [sys.executable, "-c", _ASK, address]
    try:
        asked = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {ANSWER_SECONDS:.0f} seconds"
    return (asked.stdout.strip().splitlines() or [first_line(asked.stderr) or "it says nothing"])[-1]


@contextmanager
def connected(address: str, home: Home) -> Iterator[None]:
    """Be a driver of the cluster during the block; this machine has to be one of its own. Raises StageError.

    Nothing may import Ray before: it reads its variables once.
    """
    os.environ |= ray_environment(home)
    import ray

    node = own_node(home)
    place = {"_node_ip_address": node["node_ip"]} if node.get("address") == address and "node_ip" in node else {}
    try:
        # Ray has the driver's folder searched first for modules, under the same name on every machine.
        with contextlib.chdir("/"):
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **place)
    except Exception as error:
        raise StageError(
            f"this machine could not join the cluster at {address}: {first_line(str(error))}. Who begins a run has to "
            "be one of the cluster's machines: `graphmill cluster join` here, or begin it on one of them"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def first_line(text: str) -> str:
    """Return the first line that says something."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]
    return "".join(letter if letter.isprintable() else "?" for letter in line)
