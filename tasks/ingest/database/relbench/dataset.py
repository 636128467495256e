"""A database in RelBench's layout (https://relbench.stanford.edu), read as the data set `database`.

Each table is a Parquet file whose schema's metadata says in JSON which column is the key (`pkey_col`), which are
foreign keys (`fkey_col_to_pkey_table`) and which is the time (`time_col`). A task has such files too: train, val and
test, of which the foreign key names the entity, the time the moment, and the column that is left the label.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from pydantic import ValidationError

from configs.errors import DataError, RecipeError
from configs.matching import did_you_mean, listed
from configs.registry import DATASETS
from configs.source_files import is_folder, names_in, user_path
from tasks.ingest.base import Dataset
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.dataset import Database
from tasks.ingest.database.relbench.configs import RelbenchConfig
from tasks.readers.parquet import open_parquet
from tasks.stage import StageContext
from tasks.storage.home_files.source_digests import SourceDigests

_SPLITS = ("train", "val", "test")
_METRICS = {"binary": "rocauc", "regression": "mae", "multiclass": "accuracy"}


@DATASETS.register("relbench")
class Relbench(Dataset):
    """A database in RelBench's layout, and one of its tasks with its own moments and splits.

    The whole `db/` is read: what is younger than a row's moment no model sees, so nothing has to be cut off.
    """

    config: RelbenchConfig

    @cached_property
    def database(self) -> Database:
        """The same as a data set `database`. Raises DataError and RecipeError."""
        folder = user_path(self.config.folder)
        for name in ("db", "tasks"):
            if not is_folder(folder / name):
                raise DataError(f"has no folder {name}/, which RelBench's layout has", path=folder)
        return Database(_database_config(self.config, folder))

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """Names and contents of all files that are read."""
        return self.database.fingerprint(digests)

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Read all tables. Raises DataError with all mistakes that were met."""
        return self.database.ingest(context)


def _database_config(config: RelbenchConfig, folder: Path) -> DatabaseConfig:
    paths = {path.stem: path for path in names_in(folder / "db") if path.suffix == ".parquet"}
    if not paths:
        raise DataError("has no Parquet files", path=folder / "db")
    for option, names in (("leave_out", config.leave_out), ("tables", config.tables)):
        for name in names:
            if name not in paths:
                near, there = did_you_mean(name, paths), listed(list(paths))
                raise RecipeError(f"dataset.{option}: there is no table {name!r}{near}; db/ has {there}")
    tables: dict[str, dict[str, Any]] = {}
    for name, path in paths.items():
        if name in config.leave_out:
            continue
        said = _metadata(path)
        foreign = said["fkey_col_to_pkey_table"].items()
        tables[name] = {
            "files": [str(path)],
            "key": said["pkey_col"],
            "time": said["time_col"],
            "foreign": {column: target for column, target in foreign if target not in config.leave_out},
        } | config.tables.get(name, {})
    section = {"name": "database", "title": folder.name, "tables": tables, "predict": _predict(config, folder)}
    try:
        database = DATASETS.config(section)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise RecipeError(
            f"dataset: {place + ': ' if place else ''}{first['msg'].removeprefix('Value error, ')}"
        ) from error
    assert isinstance(database, DatabaseConfig)
    return database


def _metadata(path: Path) -> dict[str, Any]:
    with open_parquet(path) as file:
        schema = file.schema_arrow
    metadata: dict[str, Any] = {}
    for key in ("fkey_col_to_pkey_table", "pkey_col", "time_col"):
        try:
            metadata[key] = json.loads((schema.metadata or {})[key.encode()])
        except (KeyError, ValueError):
            raise DataError(
                f"has no {key} in its schema's metadata, as RelBench's Table.save writes it; of other files "
                "`graphmill inspect` proposes a recipe",
                path=path,
            ) from None
    if not isinstance(metadata["fkey_col_to_pkey_table"], dict):
        raise DataError("names no tables by fkey_col_to_pkey_table in its schema's metadata", path=path)
    return metadata


def _predict(config: RelbenchConfig, folder: Path) -> dict[str, Any]:
    names = [path.name for path in names_in(folder / "tasks") if is_folder(path)]
    if config.predict not in names:
        raise RecipeError(
            f"dataset.predict: there is no task {config.predict!r}{did_you_mean(config.predict, names)}; tasks/ has "
            f"{listed(names) or 'none'}"
        )
    files = {split: folder / "tasks" / config.predict / f"{split}.parquet" for split in _SPLITS}
    metadata = {split: _metadata(path) for split, path in files.items()}
    train = metadata["train"]
    for split, path in files.items():
        if metadata[split] != train:
            raise DataError("has another key or time column than the task's train.parquet", path=path)
    if len(train["fkey_col_to_pkey_table"]) != 1 or train["time_col"] is None:
        raise RecipeError(
            f"dataset.predict: {config.predict} joins rows of tables, or has no moments; tasks of one entity at a "
            "moment each are read"
        )
    [(key, entity)] = train["fkey_col_to_pkey_table"].items()
    with open_parquet(files["train"]) as file:
        others = [name for name in file.schema_arrow.names if name not in (key, train["time_col"])]
    if len(others) != 1:
        raise RecipeError(f"dataset.predict: one column of {files['train']} has to be the label, not {listed(others)}")
    columns = {split: _column(path, others[0]) for split, path in files.items()}
    for split, column in columns.items():
        of = column.type
        if not (pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_boolean(of)):
            words = f"is {of}; labels are numbers (tasks that predict links have lists)"
            raise DataError(words, path=files[split], column=others[0])
    values = np.asarray(compute.unique(columns["train"]).drop_null().cast(pa.float64(), safe=False))
    kind = config.task_type or ("binary" if np.isin(values[~np.isnan(values)], (0, 1)).all() else "regression")
    begins = {split: _first(path, train["time_col"]) for split, path in files.items()}
    labels = {
        "files": [str(path) for path in files.values()],
        "key": key,
        "time": train["time_col"],
        "label": others[0],
        "task_type": kind,
        "on_unknown_id": config.on_unknown_id,
    }
    return {
        "table": entity,
        "labels": labels,
        "metric": config.metric or _METRICS[kind],
        "split": {"valid": begins["val"], "test": begins["test"]},
    }


def _column(path: Path, name: str) -> pa.ChunkedArray:
    with open_parquet(path) as file:
        if name not in file.schema_arrow.names:
            raise DataError(
                "has no such column (masked labels are not read; take the unmasked test table)", path=path, column=name
            )
        return file.read(columns=[name])[name]


def _first(path: Path, column: str) -> str:
    times = _column(path, column)
    if not (pa.types.is_timestamp(times.type) or pa.types.is_date(times.type) or pa.types.is_integer(times.type)):
        raise DataError(f"is {times.type}; moments are time stamps, dates or whole numbers", path=path, column=column)
    first = compute.min(times).as_py() if len(times) else None
    if first is None:
        raise DataError("has no rows with a moment", path=path, column=column)
    return str(first.isoformat() if hasattr(first, "isoformat") else first)
