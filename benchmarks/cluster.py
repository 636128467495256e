"""A Ray cluster of two on this machine: what files, the first step and shards cost there.

    python -m benchmarks.cluster [--parts fetch,memory,step,shards] [--file-gb 2] [--csv-gb 1] [--rounds 3]

Both are raylets on loopback, the second with a home of its own, on the second core where shards are measured. `fetch`:
a file from the home into the other's cache, beside a plain socket into a file. `memory`: that Ray takes on each while
nothing runs. `step`: from the command to the first step of a training of two ranks whose graph is there, beside the
same two without a cluster. `shards`: preprocess of a table of edges on one core, and on two machines of one core each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from benchmarks.gnn_report import keep, machine, print_machine
from benchmarks.machines import ROOT
from tasks.cluster.connect import connected, own_node
from tasks.cluster.files import FetchedFiles, home_files
from tasks.cluster.machines import alive
from tasks.storage.home import Home

RESULTS = Path(__file__).parent / "results"
_PORT = 7379
_SECOND = "127.0.0.2"


def command(home: Path, *words: str, core: int | None = None) -> list[str]:
    """Return a command of graphmill's, on one core or on all."""
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    return [*pinned, sys.executable, "-m", "flows.cli", "--home", str(home), *words]


@contextmanager
def cluster(folder: Path, *, cores: bool = False) -> Iterator[str]:
    """Have a cluster of two with a CPU each; `cores`: each is held to a core of its own."""
    homes, address = (folder / "home", folder / "second"), ""
    try:
        for number, home in enumerate(homes):
            words = ["start", "--port", str(_PORT), "--shift-ports", "1000"]
            if number:
                token = str(homes[0] / "cluster" / "token")
                words = ["join", address, "--token-file", token, "--node-ip", _SECOND, "--shift-ports", "1300"]
            words += ["--cpus", "1", "--temp-dir", str(folder / f"t{number}")]
            subprocess.run(command(home, "cluster", *words, core=number if cores else None), check=True, cwd=ROOT)
            address = str(own_node(Home(homes[0]))["address"])
        yield address
    finally:
        for home in homes:
            subprocess.run(command(home, "cluster", "stop"), check=False, cwd=ROOT)


class Fetching:
    """Fetches on the second machine, as ranks' places do."""

    def fetch(self, files: Any, home: str, folder: str, name: str) -> tuple[float, int]:
        """Return seconds, and what the most memory of this process grew by, of a file that is not there yet."""
        import resource

        shutil.rmtree(folder, ignore_errors=True)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        fetched = FetchedFiles(files, home, Path(folder), Path(folder) / "scratch", 1e12)
        began = time.perf_counter()
        fetched.fetch(Path(folder) / name)
        return time.perf_counter() - began, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def by_socket(source: Path, target: Path) -> float:
    """Return the seconds that a file takes through a socket on loopback into another, checked by nothing."""
    listening = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        with listening.accept()[0] as taken, source.open("rb") as file:
            taken.sendfile(file)

    sending = threading.Thread(target=send)
    sending.start()
    began = time.perf_counter()
    with socket.create_connection(listening.getsockname()) as asked, target.open("wb") as file:
        buffer = memoryview(bytearray(1 << 23))
        while count := asked.recv_into(buffer):
            file.write(buffer[:count])
        file.flush()
        os.fsync(file.fileno())
    sending.join()
    listening.close()
    return time.perf_counter() - began


def measure_fetch(folder: Path, address: str, num_bytes: int, rounds: int) -> dict[str, Any]:
    home, name = folder / "home", "bench/file/data.npy"
    path = home / "artifacts" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        block = np.random.default_rng(1).integers(0, 256, 1 << 26, np.uint8)
        for _ in range(-(-num_bytes // len(block))):
            file.write(block.data)
    from tasks.storage.artifacts import file_digest

    manifest = {"files": {path.name: {"sha256": file_digest(path), "size": path.stat().st_size}}}
    (path.parent / "manifest.json").write_text(json.dumps(manifest))
    ours, plain, peaks = [], [], []
    with connected(address, Home(home)):
        import ray

        own, second = alive(free=False)
        files = home_files(own, str(home), str(home))
        for _ in range(rounds):
            placed = ray.remote(Fetching).options(num_cpus=0, resources={second.place: 0.001}).remote()
            seconds, peak = ray.get(placed.fetch.remote(files, str(home), str(folder / "cache"), name))
            ray.kill(placed)
            ours.append(path.stat().st_size / seconds)
            peaks.append(peak)
            plain.append(path.stat().st_size / by_socket(path, folder / "plain"))
    return {"bytes_a_second": ours, "socket_bytes_a_second": plain, "peak_bytes": peaks}


def measure_memory(folder: Path) -> dict[str, Any]:
    time.sleep(10)  # what is started on demand has ended
    groups = [int(own_node(Home(folder / name))["group"]) for name in ("home", "second")]
    found = dict.fromkeys(("head", "joined"), 0)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            group = os.getpgid(process.pid)
            if group in groups:
                found["joined" if groups.index(group) else "head"] += process.memory_full_info().pss
    return found


def seconds_to(text: str, words: list[str]) -> float:
    """Return the seconds from a command's start to the first line with a text in it; it runs to its end."""
    began = time.perf_counter()
    taken = 0.0
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if text in line and not taken:
                taken = time.perf_counter() - began
    if process.returncode or not taken:
        raise SystemExit("".join(said[-20:]))
    return taken


def measure_step(folder: Path, rounds: int) -> dict[str, Any]:
    home = folder / "home"
    options = ["quickstart", "train.num_ranks=2", "train.threads=1", "train.epochs=2", "tracking.system_metrics=false"]
    until = ["--only", "ingest,preprocess,components,partition"]
    subprocess.run(command(home, "run", *options, *until), check=True, cwd=ROOT, capture_output=True)
    again = ["--only", "train", "--force", "train"]
    sides: dict[str, list[str]] = {"one machine": [], "cluster": ["--cluster", "auto"]}
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, more in sides.items():
            taken[side].append(seconds_to("steps", command(home, "run", *options, *again, *more)))
    return taken


def measure_shards(folder: Path, csv_gb: float, rounds: int) -> dict[str, Any]:
    home, table = folder / "home", folder / "edges.csv"
    rng, num_nodes = np.random.default_rng(1), 2_000_000
    with table.open("w") as file:
        file.write("source,target,weight\n")
        while file.tell() < csv_gb * 1e9:
            ends = rng.integers(0, num_nodes, (1_000_000, 2))
            weights = rng.random(len(ends))
            file.writelines(f"{a},{b},{w:.6f}\n" for (a, b), w in zip(ends.tolist(), weights.tolist(), strict=True))
    recipe = folder / "shards.yaml"
    recipe.write_text(
        yaml.safe_dump(
            {
                "name": "shards",
                "dataset": {
                    "name": "tables",
                    "task": "link",
                    "edges": {"files": str(table), "source": "source", "target": "target"},
                },
                "model": "prone",
                "preprocess": {"workers": 1},
            }
        )
    )
    subprocess.run(command(home, "run", str(recipe), "--only", "ingest"), check=True, cwd=ROOT)
    sides: dict[str, Callable[[], list[str]]] = {"one": list, "two": lambda: ["--cluster", "auto"]}
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, more in sides.items():
            shutil.rmtree(home / "cache", ignore_errors=True)
            words = ["run", str(recipe), "--only", "preprocess", "--force", "preprocess", *more(), "--json"]
            done = subprocess.run(command(home, *words, core=0), check=True, cwd=ROOT, capture_output=True, text=True)
            stages = json.loads(done.stdout.splitlines()[-1])["stages"]
            taken[side] += [stage["seconds"] for stage in stages if stage["name"] == "preprocess"]
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="fetch,memory,step,shards")
    parser.add_argument("--file-gb", type=float, default=2.0)
    parser.add_argument("--csv-gb", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    facts, found, parts = machine(), {}, args.parts.split(",")
    print_machine(facts)
    with tempfile.TemporaryDirectory(prefix="gm-") as scratch:
        folder = Path(scratch)
        with cluster(folder) as address:
            if "memory" in parts:
                found["memory"] = measure_memory(folder)
            if "fetch" in parts:
                found["fetch"] = measure_fetch(folder, address, int(args.file_gb * 1e9), args.rounds)
            if "step" in parts:
                found["step"] = measure_step(folder, args.rounds)
        if "shards" in parts:
            with cluster(folder, cores=True):
                found["shards"] = measure_shards(folder, args.csv_gb, args.rounds)
    for part, values in found.items():
        for what, numbers in values.items():
            each = numbers if isinstance(numbers, list) else [numbers]
            print(f"{part:7s} {what:24s} median {statistics.median(each):,.1f}  of {[round(n, 1) for n in each]}")
    keep(args, "cluster", facts, results=found)


if __name__ == "__main__":
    main()
