"""Columns that stand in the names of folders: `year=2021/month=3/part.parquet`, as Hive and Spark write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from configs.errors import DataError
from configs.source_files import is_folder, names_in

_KEY = re.compile(r"([^=/]+)=(.*)")
_NONE = "__HIVE_DEFAULT_PARTITION__"


def has_keys(folder: Path) -> bool:
    """Whether a folder's folders are called `KEY=VALUE`."""
    return any(_KEY.fullmatch(entry.name) and is_folder(entry) for entry in names_in(folder))


def files_in(folder: Path) -> Iterator[Path]:
    """Yield what stands in a folder and in its folders called `KEY=VALUE`, by name; nothing hidden."""
    for entry in names_in(folder):
        if entry.name.startswith((".", "_")):
            continue
        if _KEY.fullmatch(entry.name) and is_folder(entry):
            yield from files_in(entry)
        else:
            yield entry


def keys_of(path: Path) -> dict[str, str | None]:
    """Return the keys of the folders right above a file; None for an empty one."""
    keys: dict[str, str | None] = {}
    for folder in path.parents:
        match = _KEY.fullmatch(folder.name)
        if match is None:
            break
        keys[unquote(match[1])] = None if match[2] == _NONE else unquote(match[2])
    return dict(reversed(keys.items()))


def key_columns(paths: Sequence[Path], there: Sequence[str]) -> dict[str, bool]:
    """Return the keys that files have as columns, and whether all values of each are whole numbers.

    A key that is a column `there` too is left out, as some writers keep both.

    Raises DataError: some files have a key that others lack.
    """
    keys = [keys_of(path) for path in paths]
    for path, of_file in zip(paths, keys, strict=True):
        if of_file.keys() != keys[0].keys():
            [key, *_] = of_file.keys() ^ keys[0].keys()
            raise DataError(
                f"lies in folders with the keys {', '.join(of_file) or 'none'}, and {paths[0]} in those with "
                f"{', '.join(keys[0]) or 'none'}: {key!r} is no column of all; name files of one kind",
                path=path,
            )
    columns = {}
    for key in keys[0]:
        values = [of_file[key] for of_file in keys if of_file[key] is not None]
        if key not in there:
            columns[key] = all(re.fullmatch(r"-?[0-9]{1,18}", str(value)) for value in values)
    return columns
