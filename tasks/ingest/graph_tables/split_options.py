"""Options of the split of users' tables."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from configs.base import ConfigModel, StrTuple
from configs.matching import did_you_mean
from tasks.ingest.tables.policies import Column
from tasks.storage.manifests import SPLITS

NEGATIVE_KINDS = ("random", "historical", "inductive")
"""Of events (Poursafaei and others, NeurIPS 2022, arXiv:2207.10128)."""

OF_LINKS = {
    **dict.fromkeys(("source", "target", "relation_column", "label"), ("files",)),
    "known_pairs": ("files", "time"),
    **dict.fromkeys(("negatives", "per_edge"), ("time",)),
}
"""Options of links, and which kinds of splits they are for."""


class SplitConfig(ConfigModel):
    """Which nodes (or edges) train, validate and test."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"files"})

    by: Literal["ratio", "stratified", "time", "column", "files", "none"] = "ratio"
    """ratio: at random; stratified: the same shares of each class; time: oldest train, newest test; column or files:
    as you say. Only labelled nodes are dealt out. none: nothing trains, of data for predictions alone; labels may be
    missing."""
    train: float = Field(default=0.6, ge=0, le=1)
    """Share of the training split (ratio, stratified, time)."""
    valid: float = Field(default=0.2, ge=0, le=1)
    """Share of the validation split."""
    test: float = Field(default=0.2, ge=0, le=1)
    """Share of the test split."""
    seed: int = Field(default=0, ge=0)
    """Seed of the random ones."""
    column: Column | None = None
    """by column: its cells are train, valid (or val, validation), test, or empty: of no split. Edges of no split (link
    tasks) neither train nor carry messages, and are no negatives."""
    files: dict[str, str] = Field(default={})
    """by files: train, valid and test, each a file of ids (link tasks: valid and test, each a file of pairs, which
    neither train nor carry messages, whether or not they stand in the edge table too)."""
    header: bool = False
    """Whether the split's CSV files begin with a line of names."""
    source: Column | None = None
    """Files of pairs: column of the source, by name or place; null: the first one, or where the other columns are named
    what it is called in the edge table."""
    target: Column | None = None
    """Files of pairs: column of the target; null: the second one, or as in the edge table."""
    relation_column: Column | None = None
    """Files of pairs: column of the relation that a pair is asked about, where edges have several."""
    label: Column | None = None
    """Files of pairs: column of 1 for edges and 0 for negatives, which then are given; null: all are edges, and
    negatives are drawn."""
    known_pairs: Literal["take_out", "keep"] = "take_out"
    """Link tasks by files or time: what becomes of held-out pairs that stand among the training edges too. take_out:
    they neither train nor carry messages. keep: they do, counted and warned of: for published splits, whose scores
    would not compare else, and for events, which repeat and are to be foreseen from earlier ones."""
    negatives: StrTuple = ()
    """Link tasks by time: kinds of negatives that each edge is ranked against; scores are means over them. random: its
    source and any target of some edge that makes no edge of the split; historical: pairs that were edges in training
    and are none in the split; inductive: edges of the split at other times that training has not. Empty: a pool of
    random pairs."""
    per_edge: int = Field(default=1, ge=1, le=1000)
    """Negatives of each kind for an edge."""

    @property
    def names_columns(self) -> bool:
        """Whether files of pairs are read by their columns' names."""
        return any((self.source, self.target, self.relation_column, self.label))

    @model_validator(mode="after")
    def _consistent(self) -> SplitConfig:
        shares = self.train + self.valid + self.test
        if self.by in ("ratio", "stratified", "time") and abs(shares - 1) > 1e-6:
            raise ValueError(f"train, valid and test are shares of 1; they add up to {shares:g}")
        if (self.by == "column") != (self.column is not None):
            raise ValueError("`column` and `by: column` go together")
        if (self.by == "files") != bool(self.files):
            raise ValueError("`files` and `by: files` go together")
        for name in self.files:
            if name not in SPLITS:
                raise ValueError(f"unknown split {name!r}{did_you_mean(name, SPLITS)} in split.files")
        for option, kinds in OF_LINKS.items():
            if self.by not in kinds and getattr(self, option) != type(self).model_fields[option].default:
                raise ValueError(f"split.{option} is for `by: {' or '.join(kinds)}` of links; leave it out")
        for kind in self.negatives:
            if kind not in NEGATIVE_KINDS:
                hint = f"{did_you_mean(kind, NEGATIVE_KINDS)}; known: {', '.join(NEGATIVE_KINDS)}"
                raise ValueError(f"split.negatives: unknown kind {kind!r}{hint}")
        if len(set(self.negatives)) < len(self.negatives):
            raise ValueError("split.negatives: a kind stands twice")
        if self.negatives and self.known_pairs != "keep":
            raise ValueError("split.negatives: these need edges that may come again; set split.known_pairs: keep")
        if self.per_edge > 1 and not self.negatives:
            raise ValueError("split.per_edge counts negatives of each kind: name the kinds, split.negatives")
        return self
