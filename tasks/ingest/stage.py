"""The ingest stage: any source to typed, checked, compressed Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from configs.base import cache_view
from configs.errors import RecipeError
from configs.layout_options import LAYOUT
from configs.registry import DATASETS
from configs.schema import Recipe
from tasks.ingest.base import Dataset
from tasks.sizes import disk_bytes, expected_counts, need_disk, refuse_excess_data
from tasks.stage import Parent, Stage, StageContext
from tasks.storage.home_files.source_digests import SourceDigests
from tasks.storage.manifests import SPLITS, DatasetManifest


def open_dataset(recipe: Recipe) -> Dataset:
    """Return the recipe's data set; where a snapshot is the tables as they were, with these."""
    moment, options = recipe.version_moment, recipe.dataset
    dataset: Dataset = DATASETS.create(options if moment is None else options.with_versions(moment))
    return dataset


def config(recipe: Recipe) -> dict[str, Any]:
    """Return the data set's options."""
    return {"dataset": cache_view(recipe.dataset)}


def source(recipe: Recipe, digests: SourceDigests) -> dict[str, Any]:
    """Return the fingerprint of the data set's source."""
    return open_dataset(recipe).fingerprint(digests)


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Ingest the recipe's data set and refuse what no later stage could use."""
    refuse_too_large(recipe, context.work)
    return checked_fields(recipe, open_dataset(recipe).ingest(context), context.work)


def refuse_too_large(recipe: Recipe, work: Path) -> None:
    """Refuse a data set, before it is read, that neither memory nor the disk of `work` can hold. Raises UserError."""
    refuse_excess_data(recipe)
    counts = expected_counts(recipe)
    if counts is not None:
        need_disk(work, disk_bytes("ingest", recipe, counts), "the data set")


def checked_fields(recipe: Recipe, fields: dict[str, Any], work: Path) -> dict[str, Any]:
    """Return the manifest's fields of what a data set ingested into `work`.

    Raises RecipeError: a split is empty. Raises DataError: the tables are not what the fields say.
    """
    from tasks.ingest.dataset_fields import WrittenTables

    splits = fields["splits"]
    empty = [split for split in SPLITS if not splits.get(split)]
    nothing_trains = fields["task"] == LAYOUT or getattr(getattr(recipe.dataset, "split", None), "by", "") == "none"
    if empty and not nothing_trains:
        raise RecipeError(
            f"dataset {recipe.dataset.name}: the {' and '.join(empty)} split is empty; check the split's files, column "
            f"or shares (sizes: {splits})"
        )
    WrittenTables(work, fields).check()
    rows = sum(t.num_nodes for t in fields["node_types"]) + sum(t.num_edges for t in fields["edge_types"])
    return {"rows": rows, **fields}


STAGE: Stage[DatasetManifest] = Stage("ingest", 6, DatasetManifest, (), config, build, source=source)
