"""How preparing a graph grows with its edges: generated graphs through ingest, preprocess, components and partition.

    python -m benchmarks.ladder [--edges 20,200,1000] [--parts 16] [--home FOLDER] [--keep] [--plot]

`--edges` are millions of directed edges; a graph has 1/25 as many nodes, 16 features and 16 classes. Each stage is run
by the command, one after the other, in a home of its own below --home, which is emptied after each graph (--keep leaves
it): 1,000 million edges take 40 GB of disk while they are prepared. Then an epoch of GraphSAGE on the sampled
neighbourhoods of 2 % of the nodes. For each stage: its seconds and peak memory (of all processes, without the kernel's
cache of files), CPU seconds of the whole command, the size of what it leaves, and the most that the home held. Of each
the slope against edges, both as logarithms: 1 is straight, 0 does not grow. What is there so far is written to
ladder.json in --out after every stage, and graphs in it are not run again; --plot only draws and prints it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gnn_report import machine, print_machine
from configs.load import build_recipe, dump_recipe
from tasks.processes.memory import Watch
from tasks.storage.artifacts import write_atomic

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
STAGES = ("ingest", "preprocess", "components", "partition", "train")
MEASURES = {
    "seconds": "seconds",
    "cpu_seconds": "CPU seconds of the command",
    "peak_bytes": "peak memory, bytes",
    "disk_bytes": "most of the home, bytes",
}
_NODES_PER_EDGE = 1 / 25


def recipe_of(directed_edges: int, parts: int) -> dict[str, Any]:
    """The graph and what is done with it; 2 % of the nodes train, 0.05 % validate."""
    sections = {
        "name": "ladder",
        "dataset": {
            "name": "synthetic",
            "num_nodes": int(directed_edges * _NODES_PER_EDGE),
            "num_edges": directed_edges // 2,
            "num_classes": 16,
            "feature_dim": 16,
            "valid_share": 0.0005,
            "test_share": 0.9795,
        },
        "partition": {"name": "auto", "num_parts": parts},
        "model": {"name": "graphsage", "hidden_dim": 32, "num_layers": 2},
        "train": {"loader": {"name": "neighbor", "fanout": [10, 5], "batch_size": 1024}, "epochs": 1},
    }
    return dump_recipe(build_recipe(sections, []))


class DiskUse(Watch):
    """Looks at a folder again and again; `most_bytes` is the most that it held."""

    seconds = 1.0

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.most_bytes, self._folder = 0, folder

    def look(self) -> None:
        """Add the files up."""
        self.most_bytes = max(self.most_bytes, folder_bytes(self._folder))


def folder_bytes(folder: Path) -> int:
    """Return what a folder's files take on disk, each once however many names it has."""
    sizes: dict[int, int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                state = os.stat(os.path.join(parent, name), follow_symlinks=False)  # noqa: PTH116, PTH118
            except FileNotFoundError:  # it went meanwhile
                continue
            sizes[state.st_ino] = 512 * state.st_blocks
    return sum(sizes.values())


def run_stage(stage: str, recipe: Path, home: Path) -> dict[str, float]:
    """Run one stage by the command; returns what it took. Raises SystemExit with the command's words where it fails."""
    command = [sys.executable, "-m", "flows.cli", "run", str(recipe), "--only", stage, "--home", str(home)]
    log = home.with_suffix(f".{stage}.log")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with DiskUse(home) as disk, log.open("wb") as file:
        child = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{stage} failed:\n{log.read_text()[-3000:]}")
    log.unlink()
    [path] = (home / "artifacts" / stage).glob("*/manifest.json")
    manifest = json.loads(path.read_bytes())
    found = {
        "seconds": manifest["seconds"],
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": manifest["peak_bytes"],
        "artifact_bytes": folder_bytes(path.parent),
        "disk_bytes": max(disk.most_bytes, folder_bytes(home)),
    }
    kept = ("edge_cut", "node_balance", "partitioner", "num_edges", "num_nodes", "seeds_per_second", "rows", "warnings")
    return found | {name: manifest[name] for name in kept if name in manifest}


def climb(million: float, args: argparse.Namespace, found: dict[str, Any]) -> None:
    """Take one graph through all stages that `found` does not have yet, and write what they took."""
    done = found["graphs"].setdefault(f"{million:g}", {})
    if set(done) == set(STAGES):
        return
    home = args.home / f"ladder-{million:g}m"
    home.mkdir(parents=True, exist_ok=True)
    recipe = args.home / f"ladder-{million:g}m.yaml"
    recipe.write_text(json.dumps(recipe_of(int(million * 1e6), args.parts)))  # JSON is YAML
    for stage in STAGES:
        print(f"{million:g} M edges: {stage} ...", file=sys.stderr, flush=True)
        done[stage] = run_stage(stage, recipe, home)
        write_atomic(args.out / "ladder.json", json.dumps(found, indent=1).encode())
    if not args.keep:
        shutil.rmtree(home)
        recipe.unlink()


def slope(edges: list[float], values: list[float]) -> float:
    """Return the least-squares slope of log(value) against log(edges)."""
    return float(np.polyfit(np.log(edges), np.log(values), 1)[0])


def series(found: dict[str, Any], stage: str, measure: str) -> tuple[list[float], list[float]]:
    """Return edges (in millions) and what a stage took of them, from few edges to many."""
    graphs = sorted((float(million), stages) for million, stages in found["graphs"].items() if stage in stages)
    return [million for million, _ in graphs], [stages[stage][measure] for _, stages in graphs]


def table(found: dict[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| stage | M edges | s | CPU s | peak GB | artifact GB | disk GB |", "|---|---|---|---|---|---|---|"]
    for stage in STAGES:
        edges, _ = series(found, stage, "seconds")
        for million in edges:
            at = found["graphs"][f"{million:g}"][stage]
            sizes = " | ".join(f"{at[name] / 1e9:.2f}" for name in ("peak_bytes", "artifact_bytes", "disk_bytes"))
            lines.append(f"| {stage} | {million:g} | {at['seconds']:.1f} | {at['cpu_seconds']:.1f} | {sizes} |")
        if len(edges) > 1:
            grown = [slope(edges, series(found, stage, name)[1]) for name in MEASURES]
            seconds, cpu, peak, disk = (f"{value:.2f}" for value in grown)
            lines.append(f"| {stage} | slope | {seconds} | {cpu} | {peak} | | {disk} |")
    for million in series(found, "partition", "seconds")[0]:
        at = found["graphs"][f"{million:g}"]["partition"]
        lines.append(
            f"\n{million:g} M: {at['num_nodes']:,} nodes, {at['num_edges']:,} edges; {at['partitioner']} cuts "
            f"{100 * at['edge_cut']:.2f} %, largest part {at['node_balance']:.3f} of the mean"
        )
    for million in series(found, "train", "seconds")[0]:
        at = found["graphs"][f"{million:g}"]["train"]
        seconds = at["rows"] / at["seeds_per_second"]
        lines.append(f"\n{million:g} M: an epoch of {at['rows']:,} seeds in {seconds:.1f} s of steps")
    return "\n".join(lines) + "\n"


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw every measure against edges, a line a stage, both axes logarithmic."""
    from tasks.publish.plots.figures import COLORS, styled

    @styled
    def paint() -> None:
        import matplotlib.pyplot as plt

        figure, panels = plt.subplots(1, len(MEASURES), figsize=(4 * len(MEASURES), 3.6), layout="constrained")
        for panel, (name, title) in zip(panels, MEASURES.items(), strict=True):
            for stage, color in zip(STAGES, COLORS, strict=False):
                edges, values = series(found, stage, name)
                panel.loglog(edges, values, "o-", color=color, label=stage)
            panel.set_title(title)
            panel.set_xlabel("million directed edges")
        panels[0].legend()
        figure.savefig(path, dpi=110)
        plt.close(figure)

    paint()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", default="20,200,1000", help="millions of directed edges, comma-separated")
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--home", type=Path, default=RESULTS / "ladder-homes", help="folder on a disk with room")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--keep", action="store_true", help="leave the prepared graphs there")
    parser.add_argument("--plot", action="store_true", help="run nothing")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "ladder.json"
    found = json.loads(path.read_bytes()) if path.exists() else {"machine": machine(), "graphs": {}}
    print_machine(found["machine"])
    if not args.plot:
        for million in args.edges.split(","):
            climb(float(million), args, found)
    print(table(found))
    (args.out / "ladder.md").write_text(table(found))
    draw(found, args.out / "ladder.png")


if __name__ == "__main__":
    main()
