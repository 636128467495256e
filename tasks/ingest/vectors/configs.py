"""Options of files of vectors."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from configs.base import ComponentConfig, StrTuple
from configs.registry import DATASETS


@DATASETS.options("vectors", "vectors.dataset")
class VectorFilesConfig(ComponentConfig):
    """Vectors, a row each, to look at: .npy, .npz, Parquet, CSV or idx. Nearest neighbours become their edges."""

    task: ClassVar[str] = "layout"
    preprocess_defaults: ClassVar[dict[str, Any]] = {"neighbors": {}}
    runtime_fields: ClassVar[frozenset[str]] = frozenset({"files", "ids", "labels"})

    title: str = Field(default="vectors", pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]*$", max_length=100)
    """Name of the data set, for people."""
    files: StrTuple
    """Paths, folders or patterns, all of one format, read one after the other: `.npy`, `.npz`, `.parquet`, `.csv`,
    `.tsv` or idx (`train-images-idx3-ubyte.gz`); what has more than two dimensions becomes rows."""
    array: str | None = None
    """Of .npz: which array; null: the only one with rows and columns."""
    header: bool | Literal["auto"] = "auto"
    """Whether a CSV begins with the columns' names; without, they are `0`, `1`, ..."""
    columns: StrTuple = ()
    """Of tables: columns of numbers or lists whose numbers, side by side, are the vectors. None: the only column of
    lists; else eight or more numbered columns (`e0`, `e1`, ...); else all columns of numbers that nothing else
    names."""
    id: str | None = None
    """Of tables: column of ids. null: `id`, where there is one; else rows' numbers."""
    ids: StrTuple = ()
    """Files of ids beside matrices: text with one a line, or .npy of whole numbers. An `x.ids.parquet` beside `x.npy`,
    as `graphmill export embeddings` writes it, is found by itself."""
    label: str | None = None
    """Of tables: column of labels, for colours and neighbours' accuracy: classes, or amounts where any is a fraction.
    null: `label`, where there is one."""
    labels: StrTuple = ()
    """Files of labels beside matrices: text with one a line, .npy or idx; one for each file of vectors, or one for
    all."""
    keep: StrTuple | None = None
    """Of tables: further columns that maps show and colour by; null: all that are no vectors, [] for none."""

    @field_validator("files", "ids", "labels")
    @classmethod
    def _plain_files(cls, files: tuple[str, ...]) -> tuple[str, ...]:
        for file in files:
            if file.startswith(("delta:", "iceberg:")):
                raise ValueError(f"{file}: vectors are read from plain files; write the table as Parquet")
            if not file:
                raise ValueError("a file has no name")
        return files

    @model_validator(mode="after")
    def _one_place_each(self) -> VectorFilesConfig:
        if not self.files:
            raise ValueError("files: at least one file of vectors is needed")
        for column, files in (("id", "ids"), ("label", "labels")):
            if getattr(self, column) is not None and getattr(self, files):
                raise ValueError(f"{column} names a column, and {files} files of their own; leave one of them out")
        named = [name for name in (self.id, self.label, *self.columns, *(self.keep or ())) if name is not None]
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise ValueError(f"column {twice[0]!r} is named twice among id, label, columns and keep")
        return self

    def check_recipe(self, recipe: Any) -> None:
        """Refuse snapshots: vectors have no times. Raises ValueError."""
        if recipe.snapshot.as_of is not None:
            raise ValueError("snapshot.as_of: vectors have no times; leave it out")
