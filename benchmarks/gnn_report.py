"""Lines of the GNN benchmark: printed as a table, kept as JSON, drawn as bars with the targets beside them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gnn_children import Timing, ratio
from tasks.storage.artifacts import write_atomic


class Head(NamedTuple):
    """What a line compares."""

    graph: str
    measure: str
    ours: str
    peer: str
    target: float | None
    """So many times as fast (as small) at least."""


@dataclass
class Line:
    """One comparison that was measured."""

    head: Head
    ratio: float
    """Above 1: graphmill is faster (smaller, better)."""
    cpu_ratio: float | None
    ours: float
    peer: float
    unit: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Whether the target was reached."""
        target = self.head.target
        return "" if target is None else "reached" if self.ratio >= target else "below"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        values = {"ratio": self.ratio, "cpu_ratio": self.cpu_ratio, "ours_value": self.ours, "peer_value": self.peer}
        return {**self.head._asdict(), **values, "unit": self.unit, "verdict": self.verdict, "details": self.details}


def timing_line(head: Head, mine: Timing, theirs: Timing) -> Line:
    """Compare seconds a unit, round by round."""
    values = [1000 * statistics.median(timing.wall) for timing in (mine, theirs)]
    return Line(head, ratio(theirs, mine, "wall"), ratio(theirs, mine, "cpu"), values[0], values[1], "ms")


def memory_line(head: Head, mine: dict[str, int], theirs: dict[str, int], what: str) -> Line:
    """Compare peaks of memory."""
    values = [found[what] / 1e6 for found in (mine, theirs)]
    details = {"ours": mine, "peer": theirs}
    return Line(head, values[1] / max(values[0], 1e-6), None, values[0], values[1], "MB", details)


def machine() -> dict[str, Any]:
    """What it ran on."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("model name", "flags"))]
    flags = next((line.split() for line in cpu if line.startswith("flags")), [])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    names = (
        *("torch", "dgl", "torch_geometric", "pyg_lib", "torch_sparse", "numba", "numpy", "scipy", "triton"),
        *("pandas", "pyarrow", "ogb", "pymetis"),
    )
    return {
        "cpu": next((line.split(":")[1].strip() for line in cpu if line.startswith("model name")), platform.machine()),
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "bfloat16": "avx512_bf16" in flags or "amx_bf16" in flags,
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "versions": {name: found for name in names if (found := version(name))},
    }


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def print_machine(facts: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    bf16 = "with" if facts["bfloat16"] else "WITHOUT"
    print(f"{facts['cpu']}, {facts['cores']} cores {bf16} bfloat16 instructions, {facts['memory_bytes'] / 1e9:.0f} GB")
    print(f"Python {facts['python']}, {versions}; load before the start {facts['load'][0]:.1f}", flush=True)


def keep(args: Any, name: str, facts: dict[str, Any], lines: list[Line] | None = None, **more: Any) -> None:
    """Write what was found to a JSON file in --out, beside the machine and the options; lines are drawn too."""
    args.out.mkdir(parents=True, exist_ok=True)
    content = {"machine": facts, "options": {option: str(value) for option, value in vars(args).items()}}
    if lines is not None:
        content["lines"] = [line.as_json() for line in lines]
    write_atomic(args.out / f"{name}.json", json.dumps({**content, **more}, indent=1).encode())
    if lines:
        draw(args.out / f"{name}.png", lines)


def markdown(lines: list[Line]) -> str:
    """The table."""
    rows = [
        "| graph | measure | graphmill | against | ratio | CPU ratio | target | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for line in lines:
        head = line.head
        cpu = "" if line.cpu_ratio is None else f"{line.cpu_ratio:.2f}x"
        target = "" if head.target is None else f"{head.target:.3g}x"
        mine, theirs = (f"{value:,.4g} {line.unit}".rstrip() for value in (line.ours, line.peer))
        rows.append(
            f"| {head.graph} | {head.measure} | {head.ours.removeprefix('graphmill ')}: {mine} | {head.peer}: {theirs} "
            f"| {line.ratio:.2f}x | {cpu} | {target} | {line.verdict} |"
        )
    return "\n".join(rows)


def write(folder: Path, facts: dict[str, Any], options: dict[str, Any], lines: list[Line]) -> None:
    """Write gnn.json, gnn.md and gnn.png."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"machine": facts, "options": options, "lines": [line.as_json() for line in lines]}
    (folder / "gnn.json").write_text(json.dumps(content, indent=1))
    (folder / "gnn.md").write_text(markdown(lines) + "\n")
    if lines:
        draw(folder / "gnn.png", lines)


def draw(path: Path, lines: list[Line]) -> None:
    """Bars of ratios on a logarithmic axis; a black tick is the target."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.28 * len(lines)), layout="constrained")
    for at, line in enumerate(reversed(lines)):
        colour = {"reached": "tab:green", "below": "tab:orange"}.get(line.verdict, "tab:blue")
        axes.barh(at, line.ratio, color=colour)
        # Beside the axes, where no target's tick is.
        axes.text(1.01, at, f"{line.ratio:.2g}x", va="center", fontsize=7, transform=axes.get_yaxis_transform())
        if line.head.target is not None:
            axes.plot([line.head.target, line.head.target], [at - 0.4, at + 0.4], color="black")
    heads = [line.head for line in lines]
    names = [f"{head.graph}: {head.measure}, {head.ours.removeprefix('graphmill ')} / {head.peer}" for head in heads]
    axes.set_yticks(range(len(lines)), list(reversed(names)), fontsize=7)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xlabel("times as fast (as small) as the peer; black: the target")
    figure.savefig(path, dpi=150)
    plt.close(figure)
