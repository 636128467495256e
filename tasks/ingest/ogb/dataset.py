"""Data sets of the Open Graph Benchmark, by name, and folders in its layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from configs.errors import DataError, RecipeError
from configs.matching import did_you_mean
from configs.moments import TimeUnit
from configs.registry import DATASETS
from configs.source_files import is_folder, read_json, user_path
from tasks.ingest.base import Dataset
from tasks.ingest.configs import OgbDatasetConfig
from tasks.ingest.labels import usual_metric
from tasks.ingest.ogb.meta import OgbMeta, listed_meta, listed_names
from tasks.stage import StageContext
from tasks.storage.artifacts import file_lock, write_atomic
from tasks.storage.file_names import beside, file_name
from tasks.storage.home_files.source_digests import SourceDigests, files_below

_READ = ("raw", "split", "mapping")
"""Folders of a data set that are read."""
_META_OPTIONS = ("task", "task_type", "num_classes", "num_tasks", "metric", "split", "directed", "categorical")


@DATASETS.register("ogb")
class OgbDataset(Dataset):
    """Open Graph Benchmark: node, link, graph and triple tasks by name (downloaded once), or any folder in its layout.

    `<root>/<name>` (with `_` for `-`) is used if it is there, and nothing is downloaded then. raw/ and split/ are read
    by graphmill's own readers in chunks; whatever disagrees is refused. What the layout itself does not say (task,
    classes, metric, split) comes from the `ogb` package for OGB's own data sets and from the options for others.
    """

    config: OgbDatasetConfig

    @property
    def meta(self) -> OgbMeta:
        """What OGB or the options say of the data set. Raises RecipeError."""
        config = self.config
        name = config.dataset.replace("_", "-")
        if name in listed_names():
            # Not `model_fields_set`: a recipe that travelled through Prefect has all of its defaults written out.
            defaults = OgbDatasetConfig.model_fields
            given = [name for name in _META_OPTIONS if getattr(config, name) != defaults[name].default]
            if given:
                raise RecipeError(f"dataset.{given[0]}: {name} is OGB's own, which says this itself; leave it out")
            return listed_meta(name)
        if config.task is None:
            if config.root is None or not is_folder(self.folder(Path())):
                hint = did_you_mean(name, listed_names())
                raise RecipeError(
                    f"dataset.dataset: OGB has no {config.dataset!r}{hint}. For your own folder in OGB's layout give "
                    "dataset.root (the folder above it) and dataset.task"
                )
            raise RecipeError(f"dataset.task: OGB does not list {config.dataset!r}; say node, link, graph or triple")
        return _own_meta(config)

    def folder(self, default_root: Path) -> Path:
        """Folder of the data set."""
        root = user_path(self.config.root) if self.config.root else default_root
        return root / self.config.dataset.replace("-", "_")

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """OGB's name and version for what is still to be downloaded or is as this home downloaded it, else the content.

        A download is known by the home, not by the folder: whoever hands a folder on could write into it that it is
        OGB's.
        """
        meta, home = self.meta, digests.home
        as_listed = {"ogb": meta.name, "version": meta.version}
        files = files_below(self.folder(home.downloads / "ogb"), _READ)
        if meta.listed and not files:
            return as_listed
        content = digests.describe({"files": files})
        try:
            downloaded = read_json(home.downloads / "records" / f"{file_name(meta.name)}.json")
        except DataError:
            downloaded = None
        return as_listed if meta.listed and downloaded == {**as_listed, **content} else content

    def time_unit(self) -> TimeUnit | None:
        """Years; None where there are none. What is still to be downloaded may have some."""
        from tasks.ingest.ogb.raw import open_raw

        folder = self.folder(Path())
        if self.meta.task in ("graph", "triple"):
            return None
        if self.config.root is None or not is_folder(folder):
            return "years"
        raw = open_raw(folder, self.meta)
        dated = [raw.node_rows(kind, "node_year") for kind in raw.num_nodes]
        dated += [raw.edge_rows(triplet, "edge_year") for triplet in raw.num_edges]
        return "years" if any(rows is not None for rows in dated) else None

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Download if need be, then read raw/ and split/ into tables."""
        from tasks.ingest.ogb.folder import check_release, ingest_folder
        from tasks.ingest.ogb.triples import ingest_triple_folder

        meta = self.meta
        folder = self.folder(context.home.downloads / "ogb")
        if not is_folder(folder):
            if not meta.listed:
                raise DataError("there is no such folder; check dataset.root and dataset.dataset", path=folder)
            self._download(meta, folder, context)
        check_release(folder, meta, context)
        if meta.task == "triple":
            return ingest_triple_folder(folder, meta, context)
        return ingest_folder(folder, meta, self.config.categorical or meta.molecules, context)

    def _download(self, meta: OgbMeta, folder: Path, context: StageContext) -> None:
        from tasks.ingest.ogb.download import download_archive

        folder.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(beside(folder, ".lock"), lambda: context.message("another run downloads this")):
            if not is_folder(folder):
                download_archive(meta.url, folder, meta.archive_folder, context)
                content = SourceDigests(context.home, context.progress).describe({"files": files_below(folder, _READ)})
                record = {"ogb": meta.name, "version": meta.version, **content}
                file = context.home.downloads / "records" / f"{file_name(meta.name)}.json"
                write_atomic(file, json.dumps(record).encode())


def _own_meta(config: OgbDatasetConfig) -> OgbMeta:
    assert config.task is not None
    pairs_task = config.task if config.task in ("link", "triple") else None
    task_type = config.task_type or pairs_task or "multiclass"
    if pairs_task not in (None, task_type) or (pairs_task is None and task_type in ("link", "triple")):
        raise RecipeError(f"dataset.task_type: {task_type} does not fit a {config.task} task")
    if task_type == "multiclass" and config.num_classes is None:
        raise RecipeError("dataset.num_classes: a multiclass label needs it")
    if task_type in ("multiclass", "binary") and config.num_tasks != 1:
        raise RecipeError(f"dataset.num_tasks: a {task_type} label has one column; several are multilabel")
    classes = {"multiclass": config.num_classes or 0, "binary": 2, "multilabel": 2}
    return OgbMeta(
        name=config.dataset,
        task=config.task,
        task_type=task_type,
        num_classes=classes.get(task_type, 0),
        num_tasks=config.num_tasks,
        metric=config.metric or usual_metric(task_type),
        split=config.split or "",
        directed=config.directed,
    )
