"""The recipe that comes of GraphStorm's JSON, and the tables that had to be written anew."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from configs.errors import DataError
from configs.load import build_recipe
from configs.source_files import user_path
from tasks.ingest.graphstorm.gconstruct import read_description
from tasks.ingest.graphstorm.read import Importer, one_line
from tasks.ingest.tables.paths import files_of
from tasks.readers.lines import read_lines
from tasks.storage.artifacts import disk_errors, write_atomic
from tasks.storage.file_names import file_name
from tasks.storage.outputs.parquet_output import ParquetOutput


def import_graphstorm(given: str, out: str | None, task: int) -> tuple[Path, list[str]]:
    """Write a recipe into a folder, by default beside the JSON; return where, and what was not taken over.

    Nothing is written where anything is wrong. Raises DataError: the JSON is none, or not as it has to be, a table of
    it cannot be read, or the folder has a recipe already; RecipeError: what it says is refused in recipes.
    """
    path = user_path(given)
    folder = (path.parent / f"{path.stem}-graphmill" if out is None else user_path(out)).resolve()
    place = folder / "recipe.yaml"
    if place.exists():
        raise DataError("is there already; remove it, or give another folder (--out)", path=place)
    importer = Importer(path, folder / "tables")
    dataset = importer.read(read_description(path), task)
    recipe = _recipe(importer, dataset)
    build_recipe(copy.deepcopy(recipe), source=f"{path}, as a recipe")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".tables-") as draft:
            for table, files in importer.json_files.items():
                _write_parquet(Path(draft, table.name), files)
            for table in importer.json_files:
                table.parent.mkdir(exist_ok=True)
                Path(draft, table.name).replace(table)
        write_atomic(place, _text(importer, recipe).encode())
    return place, importer.notes


def _recipe(made: Importer, dataset: dict[str, Any]) -> dict[str, Any]:
    types = {one[end] for one in dataset["edges"] for end in ("source_type", "target_type")}
    is_link, is_typed = dataset["task"] == "link", len(types) > 1 or len(dataset["edges"]) > 1
    model = {"name": "rgcn" if is_typed else "graphsage", "hidden_dim": 64, "num_layers": 2, "dropout": 0.1}
    model |= {"decoder": "dot"} if is_link else {}  # all targets are one matrix product
    loaders = {"link": "edge", "edge": "labelled_edge", "node": "neighbor"}
    loader: dict[str, Any] = {"name": loaders[dataset["task"]], "fanout": [10, 10], "batch_size": 1024}
    recipe: dict[str, Any] = {"name": file_name(str(dataset["title"])), "dataset": dataset}
    if made.transforms:
        recipe["preprocess"] = {"transforms": [{"name": made.transforms[0]}]}
    return recipe | {"model": model, "train": {"loader": loader, "epochs": 20, "learning_rate": 0.005}}


def _text(made: Importer, recipe: dict[str, Any]) -> str:
    notes = "".join(f"#   {note}\n" for note in made.notes)
    head = f"# Made of {one_line(made.path.name)} (GraphStorm) by `graphmill import graphstorm`."
    said = f"{head} Not taken over, or otherwise:\n{notes}" if notes else f"{head}\n"
    return said + str(yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=120))


def _write_parquet(place: Path, patterns: list[str]) -> None:
    """Write JSON lines (objects, or ids, or pairs of ids) as Parquet, a block at a time. Raises DataError."""
    with ParquetOutput(place) as writer:
        for path in files_of(patterns):
            for first, lines in read_lines(path):
                rows = [_row(path, first + n, line) for n, line in enumerate(lines.to_pylist(), 1) if line.strip()]
                try:
                    writer.write(pa.Table.from_pylist(rows))
                except (ValueError, TypeError, OverflowError) as error:
                    raise DataError(f"a column holds values of several kinds: {error}", path=path) from None


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"line {number} is no JSON: {error}", path=path) from None
    if isinstance(value, dict):
        return value
    names = ("source", "target")
    return dict(zip(names, value, strict=False)) if isinstance(value, list) else {"id": value}
