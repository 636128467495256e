"""Which files a data set of triples is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.errors import DataError
from configs.source_files import check_file, is_folder, names_in, unknown_format, user_path
from tasks.ingest.tables.paths import files_of
from tasks.ingest.triples.configs import TripleFilesConfig
from tasks.storage.manifests import SPLITS

ALL = "all"
"""Stands for the split of triples that are still to be dealt out."""
FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv", ".txt": "tsv", ".nt": "ntriples"}
_COMPRESSED = (".gz", ".zst")
_ROLES = ("entities", "relations", "types", "features", "relation_features")
_NAMES = {"train": ("train",), "valid": ("valid", "dev", "val", "validation"), "test": ("test",)}


@dataclass(frozen=True)
class Sources:
    """The files, and what each is for."""

    triples: dict[str, list[Path]]
    """Split, or `ALL`, to files in their order."""
    entities: Path | None
    relations: Path | None
    types: Path | None
    features: Path | None
    relation_features: Path | None

    def described(self) -> dict[str, list[tuple[str, Path]]]:
        """Return role to name and path of each file."""
        files = {f"triples {split}": [(path.name, path) for path in paths] for split, paths in self.triples.items()}
        for role in _ROLES:
            path = getattr(self, role)
            if path is not None:
                files[role] = [(path.name, path)]
        return files


def shown(paths: Sequence[Path]) -> str:
    """Name files in a sentence."""
    return ", ".join(map(str, paths[:3])) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def find_sources(config: TripleFilesConfig) -> Sources:
    """Find the files that the options name. Raises DataError where one is missing."""
    named = {role: user_path(str(getattr(config, role))) for role in _ROLES if getattr(config, role)}
    for path in named.values():
        check_file(path)
    given = {role: named.get(role) for role in _ROLES}
    if config.path is not None:
        folder = user_path(config.path)
        if not is_folder(folder):
            raise DataError(
                "there is no such folder; it is to hold train, valid and test: set dataset.path", path=folder
            )
        for role in ("entities", "relations"):
            lists = [path for path in names_in(folder) if _stem(path) == role and _ending(path) == ".txt"]
            if len(lists) > 1:
                raise DataError(f"has several lists of {role}: {', '.join(path.name for path in lists)}", path=folder)
            given[role] = given[role] or next(iter(lists), None)
        return Sources(_splits_in(folder), **given)
    files = {split: files_of(patterns) for split, patterns in config.split.files.items()}
    if config.triples:
        files["train" if files else ALL] = files_of(config.triples)
    return Sources({name: files[name] for name in (*SPLITS, ALL) if name in files}, **given)


def format_of(path: Path, given: str) -> str:
    """Return a file's format. Raises DataError where its name does not tell."""
    if given != "auto":
        return given
    kind = FORMATS.get(_ending(path))
    if kind is None:
        raise unknown_format(path, FORMATS)
    return kind


def _ending(path: Path) -> str:
    """Return the last ending that is none of a compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSED]
    return suffixes[-1] if suffixes else ""


def _splits_in(folder: Path) -> dict[str, list[Path]]:
    paths, splits = names_in(folder), {}
    for split, words in _NAMES.items():
        files = [path for path in paths if _stem(path) in words and _ending(path) in FORMATS]
        if len(files) != 1:
            there = ", ".join(path.name for path in (files or paths)[:20]) or "nothing"
            what = f"has several files of the {split} split" if files else f"has no file of the {split} split"
            names = " or ".join(words[:2])
            raise DataError(
                f"{what}: {there}; one is needed, called {names} with an ending of {', '.join(FORMATS)} (and .gz, "
                ".zst), or name files by triples and split.files",
                path=folder,
            )
        check_file(files[0])
        splits[split] = files
    return splits


def _stem(path: Path) -> str:
    return path.name.partition(".")[0].lower()
