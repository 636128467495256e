"""The graphs of the GNN benchmarks, prepared by graphmill's own stages and kept in a home folder.

All contenders read the same arrays: nodes in the order of the source, no partition that would move neighbours together.
"""

from __future__ import annotations

import os
from pathlib import Path

from configs.load import load_recipe
from configs.schema import Recipe
from tasks.calls import call_stage, load_stage
from tasks.storage.home import Home

RECIPES = Path(__file__).parent / "recipes"
DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
GRAPHS = {"debdeps": "debdeps.yaml", "synthetic": "synthetic-27m.yaml"}
PREPARATION = ("ingest", "preprocess", "components", "partition")


def graph_recipe(name: str, overrides: tuple[str, ...] = ()) -> Recipe:
    """The recipe of a graph, in one part and for one rank; `name` may also be a YAML file (tests use a small one)."""
    os.environ.setdefault("GRAPHMILL_DATA", str(DATA))
    path = RECIPES / GRAPHS[name] if name in GRAPHS else Path(name)
    return load_recipe(str(path), ["partition.name=auto", "partition.num_parts=1", "train.num_ranks=1", *overrides])


def prepare(recipe: Recipe, home: Home) -> Path:
    """Return the folder of the prepared graph, made if it is not there yet."""
    keys: dict[str, str] = {}
    folder = ""
    for stage in PREPARATION:
        parents = {name: keys[name] for name in load_stage(stage).parents}
        made = call_stage(stage, recipe, home, parents)
        keys[stage], folder = made.key, made.folder
    return Path(folder)
