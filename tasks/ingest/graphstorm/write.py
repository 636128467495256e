"""The recipe that comes of GraphStorm's JSON, and the tables that had to be written anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from configs.errors import DataError
from configs.source_files import read_json, user_path
from tasks.ingest.graphstorm.read import Importer
from tasks.storage.artifacts import write_atomic
from tasks.storage.file_names import file_name
from tasks.storage.outputs.parquet_output import ParquetOutput

_RECIPE = "recipe.yaml"
_LINES = 1 << 16


def import_graphstorm(given: str, out: str | None, task: int | None) -> tuple[Path, list[str]]:
    """Write a recipe into a folder, by default beside the JSON; return where, and what was not taken over.

    Raises DataError: the JSON is none, a table of it cannot be read, or the folder has a recipe already.
    """
    path = user_path(given)
    said = read_json(path)
    if not isinstance(said, dict):
        raise DataError("is not a JSON object", path=path)
    folder = (path.parent / f"{path.stem}-graphmill" if out is None else user_path(out)).resolve()
    recipe = folder / _RECIPE
    if recipe.exists():
        raise DataError("is there already; remove it, or give another folder (--out)", path=recipe)
    importer = Importer(path, said, lambda what, files: _as_parquet(folder, what, files))
    dataset = importer.read(task)
    importer.notes = [_line(note) for note in importer.notes]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(recipe, _text(importer, dataset).encode())
    return recipe, importer.notes


def _text(made: Importer, dataset: dict[str, Any]) -> str:
    types = {one[end] for one in dataset["edges"] for end in ("source_type", "target_type")}
    is_link, is_typed = dataset["task"] == "link", len(types) > 1 or len(dataset["edges"]) > 1
    model = {"name": "rgcn" if is_typed else "graphsage", "hidden_dim": 64, "num_layers": 2, "dropout": 0.1}
    model |= {"decoder": "dot"} if is_link else {}  # all targets are one matrix product
    loaders = {"link": "edge", "edge": "labelled_edge", "node": "neighbor"}
    loader: dict[str, Any] = {"name": loaders[dataset["task"]], "fanout": [10, 10], "batch_size": 1024}
    recipe: dict[str, Any] = {"name": file_name(str(dataset["title"])), "dataset": dataset}
    if made.transforms:
        recipe["preprocess"] = {"transforms": [{"name": name} for name in made.transforms]}
    recipe |= {"model": model, "train": {"loader": loader, "epochs": 20, "learning_rate": 0.005}}
    notes = "".join(f"#   {note}\n" for note in made.notes)
    head = f"# Made of {_line(made.path.name)} (GraphStorm) by `graphmill import graphstorm`."
    said = f"{head} Not taken over, or otherwise:\n{notes}" if notes else f"{head}\n"
    return said + str(yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=120))


def _line(text: str) -> str:
    """Return words of a foreign file as one line that neither a recipe nor a terminal takes for more."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _as_parquet(folder: Path, what: str, files: Sequence[str]) -> str:
    """Write JSON lines (objects, or ids, or pairs of ids) as Parquet, some lines at a time. Raises DataError."""
    from tasks.ingest.tables.paths import files_of

    place = folder / "tables" / f"{file_name(what)}.parquet"
    place.parent.mkdir(parents=True, exist_ok=True)
    with ParquetOutput(place) as writer:
        for path in files_of(tuple(files)):
            rows: list[dict[str, Any]] = []
            with path.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        rows.append(_row(path, number, line))
                    if len(rows) == _LINES:
                        writer.write(_table(path, rows))
                        rows = []
            if rows:
                writer.write(_table(path, rows))
    return str(place)


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DataError(f"line {number} is no JSON: {error}", path=path) from None
    if isinstance(value, dict):
        return value
    names = ("source", "target")
    return dict(zip(names, value, strict=False)) if isinstance(value, list) else {"id": value}


def _table(path: Path, rows: list[dict[str, Any]]) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(f"a column holds values of several kinds: {error}", path=path) from None
