"""Which files a table is in: a list of paths, folders and patterns; and keys in names of folders (`year=2024/`)."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from configs.errors import DataError
from configs.matching import did_you_mean
from configs.source_files import check_file, is_folder, look_up, names_in, user_path
from configs.values.versioned_tables import is_versioned, parse_reference
from tasks.readers.duckdb_files import logs_of
from tasks.stage import StageContext
from tasks.storage.home_files.source_digests import SourceDigests


def files_of(patterns: Sequence[str]) -> list[Path]:
    """Return the files in the order of patterns, each pattern's sorted.

    Raises DataError: there are none, one is named twice, or is no regular file that can be read (a pipe, a dangling
    link, a folder).
    """
    files: dict[str, Path] = {}
    for pattern in patterns:
        path = user_path(pattern)
        if is_folder(path):
            matches = list(files_in(path))
            logs = {f"{entry}.wal" for entry in matches}  # of a database beside
            matches = [entry for entry in matches if str(entry) not in logs]
            if not matches:
                raise DataError("is a folder without files", path=pattern)
        elif look_up(path) is None and glob.has_magic(pattern):
            matches = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 -- absolute patterns
        else:
            matches = [path] if look_up(path) is not None else []
        if not matches:
            raise DataError(f"there is no such file{_hint(path)}", path=pattern)
        for match in matches:
            check_file(match)
            place = os.path.realpath(match)
            if place in files:
                raise DataError("is named twice in the files of one table, and its rows would count twice", path=match)
            files[place] = match
    return list(files.values())


def _hint(path: Path) -> str:
    if not is_folder(path.parent):
        return f": there is no folder {path.parent} (relative paths start at {Path.cwd()})"
    return did_you_mean(path.name, [p.name for p in names_in(path.parent)]) or f" in {path.parent.resolve()}"


def describe_tables(tables: Mapping[str, Sequence[str]], digests: SourceDigests) -> dict[str, dict[str, Any]]:
    """Return what identifies each table's content: of files what they hold, else the table's version.

    Files and tables that are missing count none: whoever reads them says so, and so does `plan` (`digests.missing`).
    """
    plain = {name: files for name, files in tables.items() if not _versioned(files)}
    described = digests.describe({name: named_files(files, digests.missing) for name, files in plain.items()})
    for name, files in tables.items():
        if _versioned(files):
            from tasks.readers.table_formats.opened import open_versioned

            try:
                described[name] = open_versioned(parse_reference(files[0])).facts
            except DataError as error:
                digests.missing.append(str(error))
                described[name] = {"format": files[0].partition(":")[0]}
    return {name: described[name] for name in tables}


def tell_versions(tables: Mapping[str, Sequence[str]], context: StageContext) -> None:
    """Say which versions are read of tables that keep them."""
    from tasks.readers.table_formats.opened import open_versioned

    for name, files in tables.items():
        if _versioned(files):
            context.message(f"{name} is {open_versioned(parse_reference(files[0])).text}")


def _versioned(files: Sequence[str]) -> bool:
    return len(files) == 1 and is_versioned(files[0])


def named_files(patterns: Sequence[str], missing: list[str]) -> list[tuple[str, Path]]:
    """Return name and path of each file in order, and of the write-ahead logs beside.

    None where one is missing; what is wrong with it goes to `missing`.
    """
    try:
        files = files_of(patterns)
        logs = [(f"{path.name}{ending}", log) for path in files for ending, log in logs_of(path)]
        keys = ("".join(f"{key}={value}/" for key, value in keys_of(path).items()) for path in files)
        return [*((f"{key}{path.name}", path) for key, path in zip(keys, files, strict=True)), *logs]
    except DataError as error:
        missing.append(str(error))
        return []


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
