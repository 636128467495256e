"""`graphmill doctor`: each line is ok, or says how to mend it."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from configs.errors import GraphmillError, UserError
from configs.values.cluster import ClusterConfig
from flows.services.environment import prepare_environment
from flows.services.health import answers
from flows.terminal.console import format_bytes, out
from flows.terminal.waiting import waiting
from tasks.storage.home import Home

_LITTLE_BYTES = 2 * 10**9

Finding = tuple[str, str, str]
"""`ok`, `note` (works, but look at it) or `broken`; what it is about; and the text, which says how to mend it."""


def examine(home: Home) -> bool:
    """Print all findings; returns whether nothing is broken."""
    prepare_environment(home)
    console = out()
    styles = {"ok": "green", "note": "yellow", "broken": "bold red"}
    sound = True
    for check in CHECKS:
        with waiting(f"looking at {check.__name__.strip('_').replace('_', ' ')}"):
            findings: list[Finding] = []
            try:
                findings += check(home)
            except Exception as error:  # a broken installation breaks in any way it likes
                findings.append(("broken", check.__name__.strip("_"), f"{type(error).__name__}: {error}"))
        for level, subject, text in findings:
            sound &= level != "broken"
            console.print(f"{level:<7}", style=styles[level], end="")
            console.print(f"{subject:<16} {text}", markup=False, soft_wrap=True)
    return sound


def _python(home: Home) -> Iterator[Finding]:
    text = f"{platform.python_version()} at {sys.executable}"
    if (3, 11) <= sys.version_info[:2] < (3, 14):
        yield ("ok", "python", text)
    else:
        yield ("broken", "python", f"{text}; graphmill needs 3.11, 3.12 or 3.13: PYTHON=python3.12 make setup")


def _packages(home: Home) -> Iterator[Finding]:
    from packaging.requirements import Requirement

    wrong = []
    shown = []
    for text in requires("graphmill") or ():
        need = Requirement(text)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = version(need.name)
        except PackageNotFoundError:
            wrong.append(f"{need.name} is missing")
            continue
        if not need.specifier.contains(installed.partition("+")[0], prereleases=True):
            wrong.append(f"{need.name} is {installed}, not {need.specifier}")
        if need.name.lower() in ("prefect", "mlflow", "torch", "dgl", "numpy", "pyarrow", "pymetis", "ogb"):
            shown.append(f"{need.name} {installed}")
    if wrong:
        yield ("broken", "packages", f"{'; '.join(wrong)}; mend it with: make setup")
    else:
        yield ("ok", "packages", ", ".join(shown))


def _dgl(home: Home) -> Iterator[Finding]:
    from models.dgl.adapter import NEWEST_PYTHON

    if sys.version_info[:2] > NEWEST_PYTHON and find_spec("dgl") is None:
        yield ("ok", "dgl", "no wheel for this Python: without the model dgl and `export graph`")
        return
    code = "import models.dgl.adapter as a; a.load_dgl(); print(a.import_mode())"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        yield ("broken", "dgl", "importing it takes more than 2 minutes")
        return
    if done.returncode == 0:
        yield ("ok", "dgl", f"import mode: {done.stdout.strip().splitlines()[-1]}")
    else:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("configs.errors.RecipeError: ")
        yield ("broken", "dgl", f"cannot be imported: {last}; mend it with: make setup")


def _devices(home: Home) -> Iterator[Finding]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for i in range(count):
        properties = torch.cuda.get_device_properties(i)
        yield ("ok", f"cuda:{i}", f"{properties.name}, {format_bytes(properties.total_memory)}")
    if count == 0:
        if shutil.which("nvidia-smi") is not None and torch.version.cuda is None:
            yield ("note", "devices", "CPU only: torch is a CPU build although nvidia-smi is here; make clean setup")
        else:
            yield ("ok", "devices", "CPU (no CUDA device)")


def _machine(home: Home) -> Iterator[Finding]:
    import psutil

    memory = psutil.virtual_memory()
    sizes = f"{format_bytes(memory.available)} of {format_bytes(memory.total)} free"
    text = f"{len(os.sched_getaffinity(0))} cores, {sizes}"
    if memory.available < _LITTLE_BYTES:
        yield ("note", "machine", f"{text}: little memory; close something before a large graph")
    else:
        yield ("ok", "machine", text)
    free = shutil.disk_usage(home.root).free
    text = f"{format_bytes(free)} free under {home.root}"
    if free < _LITTLE_BYTES:
        yield ("broken", "disk", f"{text}: free some (graphmill clean) or take another place (--home DIR)")
    else:
        yield ("ok", "disk", text)


def _home_folder(home: Home) -> Iterator[Finding]:
    """Look at what is for its owner's eyes only: see `docs/pages/security.md`."""
    services, cluster = home.root / "services", home.root / "cluster"
    folders = [home.root, services, services / "logs", home.prefect, cluster]
    secret = [services / "settings.json", services / "mlflow-auth.ini", cluster / "token"]
    files = [home.root / "trusted-code", *secret]
    for path, wanted in [*((folder, 0o700) for folder in folders), *((file, 0o600) for file in files)]:
        name = str(path.relative_to(home.root)) if path != home.root else "home"
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid != os.getuid():
            yield ("broken", name, f"{path} belongs to another user; take a home of your own (--home DIR)")
        elif stat.S_ISLNK(status.st_mode):
            yield ("note", name, f"{path} is a link: see to it that what it leads to is yours alone")
        elif mode & 0o077:
            what = "read" if wanted == 0o600 else "write into" if mode & 0o022 else "look into"
            yield ("broken", name, f"others may {what} {path} ({mode:o}); mend it with: chmod {wanted:o} {path}")
        elif path == home.root:
            yield ("ok", name, f"{path} ({mode:o})")
    try:
        home.secret_key()
        yield ("ok", "secret.key", f"{stat.S_IMODE(home.secret_key_file.stat().st_mode):o}")
    except UserError as error:
        yield ("broken", "secret.key", str(error))


def _cluster(home: Home) -> Iterator[Finding]:
    """Look at the cluster that `--cluster auto` would take."""
    from tasks.cluster.connect import own_node

    if not own_node(home) and not os.environ.get("RAY_ADDRESS"):
        yield ("ok", "cluster", "none is known here: runs take this machine (graphmill cluster start)")
        return
    from tasks.cluster.survey import surveyed

    try:
        machines = surveyed(ClusterConfig(address="auto"), home)
    except GraphmillError as error:
        yield ("broken", "cluster", str(error))
        return
    for one in machines:
        machine = one.machine
        size = f"{machine.cpus:g} CPUs, {machine.gpus:g} GPUs, {format_bytes(machine.memory_bytes)}"
        said = f"{machine.name} ({machine.address}): {size}" + (f"; {one.unlike}" if one.unlike else "")
        yield ("broken" if one.unlike else "ok", "cluster", said)


def _servers(home: Home) -> Iterator[Finding]:
    without = {
        "PREFECT_API_URL": "each run has a server of its own",
        "MLFLOW_TRACKING_URI": f"runs lie in {home.mlflow}",
    }
    for variable, instead in without.items():
        url, subject = os.environ.get(variable, ""), variable.partition("_")[0].lower()
        shown = url.rpartition("@")[2]
        trouble = answers(f"{url.rstrip('/')}/health", by_proxy=True) if url.startswith("http") else ""
        if not url:
            yield ("ok", subject, f"no {variable}: {instead}")
        elif trouble:
            yield ("broken", subject, f"{shown} {trouble}; start it, or unset {variable} to do without")
        else:
            yield ("ok", subject, f"{shown} answers" if url.startswith("http") else f"{variable}={shown}")


CHECKS: tuple[Callable[[Home], Iterator[Finding]], ...] = (
    _python,
    _packages,
    _dgl,
    _devices,
    _machine,
    _home_folder,
    _cluster,
    _servers,
)
