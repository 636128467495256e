"""`graphmill export graph`: a recipe's or a run's preprocessed graph as a file for other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.errors import RecipeError
from configs.load import load_own_recipe, shipped_recipes
from configs.matching import did_you_mean
from configs.source_files import user_path

if TYPE_CHECKING:
    from configs.schema import Recipe
    from flows.commands.recipes.run import RunRequest
    from tasks.storage.home import Home

FORMATS = {"dgl": ".bin", "pyg": ".pt"}
"""With the endings of their files."""
_STAGES = ("ingest", "preprocess")


def export_graph(
    home: Home, source: str | None, overrides: list[str], output: str | None, format: str | None, *, verbose: bool
) -> dict[str, Any]:
    """Write the graph of a recipe or of a run, preprocessed where it is not. Raises UserError before that."""
    from models.dgl.adapter import dgl_folder
    from tasks.apply.run import check_place
    from tasks.storage.file_names import file_name

    if source is None:
        raise RecipeError("export graph: name a recipe, or a run (graphmill runs)")
    if format is not None and format not in FORMATS:
        raise RecipeError(f"--format {format}{did_you_mean(format, FORMATS)}: a graph's are {', '.join(FORMATS)}")
    format = format or ("pyg" if output is not None and Path(output).suffix == FORMATS["pyg"] else "dgl")
    path = user_path(output or f"{file_name(Path(source).stem)}-graph{FORMATS[format]}").resolve()
    check_place(str(path), path)
    if format == "dgl":
        dgl_folder()  # missing: say so before minutes of work
    name, keys = _keys(home, source, overrides, verbose)
    return {"what": "graph", "source": name, "output": str(path), **_write(home, keys, path, format)}


def _keys(home: Home, source: str, overrides: list[str], verbose: bool) -> tuple[str, dict[str, str]]:
    from flows.commands.recipes.run import RunRequest
    from flows.commands.runs.runs import find_run

    if source in shipped_recipes() or Path(source).suffix in (".yaml", ".yml"):
        recipe = load_own_recipe(source, overrides)
        return recipe.name, _prepared(home, recipe, RunRequest(source, overrides, only=list(_STAGES)), verbose)
    if overrides:
        raise RecipeError(f"{', '.join(overrides)}: changes are for recipes, and {source} is a run")
    record = find_run(home, source)
    if "preprocess" not in record.stages:
        raise RecipeError(f"run {record.id} did not come as far as preprocess; run its recipe again")
    return record.recipe, record.parent_keys(_STAGES)


def _prepared(home: Home, recipe: Recipe, request: RunRequest, verbose: bool) -> dict[str, str]:
    """Return the keys of a recipe's artifacts. What is there is found: no run, which would be the recipe's latest."""
    from functools import partial

    from flows.commands.recipes.plan import make_plan
    from flows.commands.recipes.run import run_flow, run_recipe
    from flows.terminal.selection import Selection

    steps = make_plan(home, recipe, Selection(_STAGES))
    if all(step.status == "cached" for step in steps):
        return {step.stage: step.key for step in steps}
    return run_flow(home, partial(run_recipe, home, request), verbose=verbose).parent_keys(_STAGES)


def _write(home: Home, keys: dict[str, str], output: Path, format: str) -> dict[str, int]:
    from tasks.apply.graph_file import write_dgl, write_pyg
    from tasks.calls import ParentGoneError, load_parents, load_stage
    from tasks.storage.dataset_store import DatasetStore
    from tasks.storage.graph_store import GraphStore

    try:
        dataset = load_parents(load_stage("preprocess"), home, keys)["ingest"]
        graph = load_parents(load_stage("components"), home, keys)["preprocess"]
    except ParentGoneError as error:
        raise RecipeError(f"what the run made is gone ({error}); name its recipe, which makes it again") from error
    write = write_pyg if format == "pyg" else write_dgl
    return write(GraphStore(graph.folder, graph.manifest), DatasetStore(dataset.folder, dataset.manifest), output)
