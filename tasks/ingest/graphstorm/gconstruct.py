"""What GraphStorm's JSON of graph construction (`gconstruct-v0.1`) holds, checked as a whole before a table is read.

https://graphstorm.readthedocs.io/en/latest/cli/graph-construction/single-machine-gconstruct.html
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from configs.errors import DataError
from configs.load import flatten_errors
from configs.source_files import read_json

VERSION = "gconstruct-v0.1"
_OneOrMore = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
Name = Annotated[str, Field(pattern="^[^\0]+$")]
Names = Annotated[list[Name], Field(min_length=1), _OneOrMore]
OneFile = Annotated[list[Name], Field(max_length=1), _OneOrMore]
Share = Annotated[float, Field(ge=0, le=1)]


class JsonSection(BaseModel):
    """A part; keys that are not read are kept (`model_extra`), to be said."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class Format(JsonSection):
    """How files are written."""

    name: Literal["parquet", "csv", "json"]
    separator: str = ","


class Transform(JsonSection):
    """What GraphStorm makes of columns."""

    name: Name


class Feature(JsonSection):
    """Columns, and what is made of them."""

    feature_col: Names
    transform: Transform | None = None


class SplitFiles(JsonSection):
    """Files of ids, or of pairs of ids, and the names of their columns."""

    train: OneFile = []
    valid: OneFile = []
    test: OneFile = []
    column: Names = []


class Label(JsonSection):
    """A task."""

    task_type: Name
    label_col: Name | None = None
    split_pct: list[Share] = Field(default=[0.8, 0.1, 0.1], min_length=3, max_length=3)
    custom_split_filenames: SplitFiles | None = None


class JsonTable(JsonSection):
    """Files of nodes or edges, and their columns."""

    files: Names
    format: Format
    features: list[Feature] = []
    labels: list[Label] = []


class Nodes(JsonTable):
    """The nodes of one type."""

    node_type: Name
    node_id_col: Name | None = None


class Edges(JsonTable):
    """The edges of one relation: source type, name, target type."""

    relation: list[Name] = Field(min_length=3, max_length=3)
    source_id_col: Name
    dest_id_col: Name


class Description(JsonSection):
    """All of a graph."""

    version: str = VERSION
    nodes: list[Nodes] = []
    edges: list[Edges] = Field(min_length=1)


def read_description(path: Path) -> Description:
    """Read a file. Raises DataError: no JSON, GSProcessing's, or mistakes, a line each with its place in the JSON."""
    said = read_json(path)
    if not isinstance(said, dict):
        raise DataError("is no JSON of an object with `nodes` and `edges`", path=path)
    if "graph" in said:
        raise DataError(
            "is of GSProcessing (`graph`); give the JSON of gconstruct, with `nodes` and `edges`", path=path
        )
    try:
        return Description.model_validate(said)
    except ValidationError as error:
        places = [
            ("".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in where), text)
            for where, text in flatten_errors(error)
        ]
        raise DataError("\n".join(f"{place.lstrip('.')}: {text}" for place, text in places), path=path) from None
