"""Debian's packages with their descriptions as tables, for benchmarks/recipes/debdeps-texts.yaml.

    python -m benchmarks.debdeps_texts build/debdeps

Nodes have a text (summary and description), the section as label, and the split of OGB's layout by year; edges are
dependencies. No name is among the texts: `python3-...` would tell the section by itself.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd

DATA = Path(os.environ.get("GRAPHMILL_DATA", "../shared/data"))


def write_tables(data: Path, folder: Path) -> None:
    """Write `nodes.parquet` and `edges.parquet`."""
    graph = data / "ogb" / "ogbn_debdeps"
    label = pd.read_csv(graph / "raw" / "node-label.csv.gz", header=None)[0]
    sections = pd.read_csv(graph / "mapping" / "labelidx2section.csv.gz").iloc[:, 1]
    split = np.full(len(label), "", object)
    for name in ("train", "valid", "test"):
        split[pd.read_csv(graph / "split" / "time" / f"{name}.csv.gz", header=None)[0]] = name
    texts = pd.read_parquet(data / "texts" / "debdeps_texts.parquet").set_index("node")
    whole = (texts["summary"].fillna("") + "\n" + texts["description"].fillna("")).reindex(range(len(label)))
    nodes = pd.DataFrame(
        {"id": range(len(label)), "text": whole, "section": sections[label].to_numpy(), "split": split}
    )
    edges = pd.read_csv(graph / "raw" / "edge.csv.gz", header=None, names=["src", "dst"])
    folder.mkdir(parents=True, exist_ok=True)
    nodes.assign(name=texts["name"].reindex(range(len(label)))).to_parquet(folder / "nodes.parquet", index=False)
    edges.to_parquet(folder / "edges.parquet", index=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    write_tables(DATA, parser.parse_args().folder)
