"""Options of the data set `triples`: a user's own knowledge graph, or a folder as FB15k and WN18 are published."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from configs.base import ComponentConfig, ConfigModel, StrTuple, split_commas
from configs.matching import did_you_mean
from configs.registry import DATASETS
from tasks.ingest.tables.policies import Column, check_columns, check_time_format
from tasks.storage.manifests import SPLITS


def _as_files(value: Any) -> Any:
    return {name: split_commas(files) for name, files in value.items()} if isinstance(value, dict) else value


class TripleSplitConfig(ConfigModel):
    """Which triples train, validate and test."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"files"})

    name: Literal["random", "time", "files"] = "random"
    """random: at random, but a triple that alone shows an entity or a relation stays in training; time: oldest train,
    newest test; files: as your files have them."""
    valid: float = Field(default=0.1, gt=0, lt=1)
    """Share of the validation split (random, time)."""
    test: float = Field(default=0.1, gt=0, lt=1)
    """Share of the test split; the rest trains."""
    seed: int = Field(default=0, ge=0)
    """Seed of random."""
    files: Annotated[dict[str, StrTuple], BeforeValidator(_as_files)] = Field(default={})
    """By files: train, valid and test, each a file or several; train may stand in `triples` instead."""

    @property
    def train(self) -> float:
        """Share of the training split."""
        return 1 - self.valid - self.test

    @model_validator(mode="after")
    def _consistent(self) -> TripleSplitConfig:
        if self.valid + self.test >= 1:
            raise ValueError("valid + test must leave something to train on (be below 1)")
        if (self.name == "files") != bool(self.files):
            raise ValueError("`files` and `name: files` go together")
        for name, files in self.files.items():
            if name not in SPLITS:
                raise ValueError(f"unknown split {name!r}{did_you_mean(name, SPLITS)} in split.files")
            if not files:
                raise ValueError(f"split.files.{name} names no file")
        return self


@DATASETS.options("triples", "triples.dataset")
class TripleFilesConfig(ComponentConfig):
    """Knowledge graph of your own: triples of head, relation and tail in Parquet, CSV, TSV or N-Triples."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset(
        {"path", "triples", "entities", "relations", "types", "features", "relation_features"}
    )

    title: str = Field(default="triples", pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]*$", max_length=100)
    """Name of the data set, for people."""
    path: str | None = None
    """Folder as FB15k and WN18 are published: train, valid (or dev) and test with the ending .txt, .tsv, .csv, .parquet
    or .nt (also .gz, .zst), a triple a line; entities.txt and relations.txt beside them (also compressed) are taken as
    `entities` and `relations`."""
    triples: StrTuple = ()
    """Instead of a folder: files, folders or patterns of triples, which `split` deals out."""
    format: Literal["auto", "parquet", "csv", "tsv", "ntriples"] = "auto"
    """auto: by the name's ending; .txt is tsv. tsv has no quotes: a cell is what stands between tabs."""
    header: bool | None = None
    """Whether a CSV or TSV begins with the columns' names; null: it does where a column is asked for by its name or the
    names are usual ones (head, relation, tail), else a CSV does and a TSV does not."""
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    """Another separator than the format's own (csv, tsv)."""
    head: Column | None = None
    """Column of the head's id, by name or by its place from 0. Of all three null: columns with usual names (head,
    relation, tail; h, r, t; subject, predicate, object; source, relation, target), else the first three."""
    relation: Column | None = None
    """Column of the relation."""
    tail: Column | None = None
    """Column of the tail's id."""
    weight: Column | None = None
    """Column of weights, 0 or more."""
    time: Column | None = None
    """Column of a whole number, a date or a time stamp (kept as seconds)."""
    time_format: str | None = None
    """How the times are written, as of Python's strptime: `"%d.%m.%Y"`, say; null: ISO 8601."""
    literals: Literal["drop", "keep"] = "drop"
    """N-Triples whose object is a literal (a text, a number, a date): left out and counted, or an entity each."""
    blank_nodes: Literal["by_file", "shared"] = "by_file"
    """N-Triples in several files: a blank node `_:b0` is of its file, as RDF has it, and called `_:b0@FILE`; shared:
    files are parts of one, and a label is one node in all."""
    text_ids: bool = False
    """Take ids and relations as texts, also where all look like numbers."""
    entities: str | None = None
    """List of all entities, one a line: other ids are refused, and entities are numbered in its order. Where the
    triples hold numbers and the list names, a number is the name's line from 0."""
    relations: str | None = None
    """List of all relations, likewise."""
    types: str | None = None
    """Table of entity and type (its first two columns): each type is a node type. Without, all are `entity`."""
    features: str | None = None
    """Numbers of each entity, vectors of texts say, which models add what they make of (`model.features`): a `.npy`
    matrix with rows in the order of `entities` (or, where ids are numbers, the row of that number)."""
    relation_features: str | None = None
    """Numbers of each relation, likewise, in the order of `relations`."""
    split: TripleSplitConfig = TripleSplitConfig()
    """Training, validation and test, where `triples` names files. Of triples that stand twice the first is kept:
    training before validation before test (of a split by time the oldest)."""

    @model_validator(mode="after")
    def _one_source(self) -> TripleFilesConfig:
        split = self.split.name
        if self.path is not None:
            if self.triples or split != "random" or self.split != TripleSplitConfig():
                raise ValueError("path is a folder with a file for each split: leave out triples and split")
            return self
        if split != "files":
            if not self.triples:
                raise ValueError("give path (a folder with train, valid and test) or triples (files to be dealt out)")
        else:
            given = {*self.split.files, *(("train",) if self.triples else ())}
            if given != set(SPLITS):
                missing = [name for name in SPLITS if name not in given]
                raise ValueError(
                    f"split.files needs train (or triples), valid and test; {', '.join(missing)} is missing"
                )
            if self.triples and "train" in self.split.files:
                raise ValueError("the training triples are named twice: in triples and in split.files.train")
        if split == "time" and self.time is None:
            raise ValueError("split by time needs the column of times: time")
        return self

    @model_validator(mode="after")
    def _columns_have_one_meaning(self) -> TripleFilesConfig:
        named = {"head": self.head, "relation": self.relation, "tail": self.tail}
        missing = [name for name, column in named.items() if column is None]
        if missing and len(missing) < len(named):
            raise ValueError(f"head, relation and tail are named together; {' and '.join(missing)} is missing")
        check_columns("triples", {**named, "weight": self.weight, "time": self.time}, (), {})
        check_time_format("triples", self.time, self.time_format)
        return self
