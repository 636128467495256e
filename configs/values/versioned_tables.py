"""How a recipe names a table that keeps its versions: `delta:PATH`, `delta:PATH@12`, `iceberg:CATALOG.NAMESPACE.TABLE`.

Behind the last `@` stands which version: its number (Delta Lake), the id of a snapshot or a tag (Iceberg), or a moment
with a month at least, `2025-06` or `2025-06-30`, which is the version as of its end. Nothing: the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from configs.moments import normalise_as_of

FORMATS = ("delta", "iceberg")
"""What an entry among a recipe's files begins with."""
NO_VERSIONS = (
    "no table is one that keeps its versions, of which none is named, so nothing tells how it was then; name tables of "
    "Delta Lake or Iceberg without a version (files: delta:PATH), or leave snapshot.as_of out"
)
_MOMENT = re.compile(r"\d{4}-\d\d.*")


@dataclass(frozen=True)
class TableReference:
    """A table that keeps its versions, and which of them is meant."""

    format: str
    """`delta` or `iceberg`."""
    table: str
    """Delta Lake: folder or address. Iceberg: catalog, namespaces and name."""
    version: str | None = None
    """Number of a version, id of a snapshot or its tag."""
    as_of: str | None = None
    """Or a moment."""

    @property
    def is_fixed(self) -> bool:
        """Whether it says which version."""
        return self.version is not None or self.as_of is not None

    @property
    def name(self) -> str:
        """The table without a version, as a recipe names it."""
        return f"{self.format}:{self.table}"

    def __str__(self) -> str:
        """As a recipe names it."""
        which = self.as_of or self.version
        return self.name if which is None else f"{self.name}@{which}"


def is_versioned(text: str) -> bool:
    """Whether a recipe's entry among files names a table that keeps its versions."""
    return text.partition(":")[0] in FORMATS and ":" in text


def parse_reference(text: str) -> TableReference:
    """Read an entry for which `is_versioned` holds. Raises ValueError: no table, or a version that cannot be one."""
    kind, _, rest = text.partition(":")
    table, at, which = rest.rpartition("@")
    if not at or "/" in which:  # an address has one before its host: s3://user@host/table
        table, which, at = rest, "", ""
    if not table.strip():
        raise ValueError(f"{text!r} names no table; write {_form(kind)}")
    if at and not which:
        raise ValueError(f"{text!r} ends with @ and names no version; write {_form(kind)}, or leave the @ out")
    if kind == "iceberg" and table.count(".") < 2:
        raise ValueError(
            f"{text!r} names no catalog, namespace and table; write {_form(kind)}, where CATALOG is one of pyiceberg's "
            "configuration (~/.pyiceberg.yaml, or PYICEBERG_CATALOG__NAME__URI)"
        )
    if not which:
        return TableReference(kind, table)
    if _MOMENT.fullmatch(which):
        return TableReference(kind, table, as_of=normalise_as_of(which))
    if kind == "delta" and not which.isdecimal():
        raise ValueError(
            f"{text!r}: {which!r} is no version; give its number (@12), or a moment with a month at least (@2025-06-30)"
        )
    return TableReference(kind, table, version=which)


def check_files(files: Iterable[str]) -> None:
    """Refuse entries that name a versioned table wrongly, or beside others. Raises ValueError."""
    entries = list(files)
    versioned = [parse_reference(one) for one in entries if is_versioned(one)]
    if versioned and len(entries) > 1:
        raise ValueError(f"files: {versioned[0]} is a table by itself; name it alone, and other files in another table")


def open_references(files: Iterable[str]) -> bool:
    """Whether one of the entries is a versioned table of which no version is named."""
    return any(is_versioned(one) and not parse_reference(one).is_fixed for one in files)


def as_of(files: Iterable[str], moment: str) -> tuple[str, ...]:
    """Return the entries, versioned tables of which no version is named as of a moment (`normalise_as_of`)."""
    moment = f"{moment}-12" if re.fullmatch(r"\d{4}", moment) else moment  # a bare number is a version
    choices = []
    for one in files:
        reference = parse_reference(one) if is_versioned(one) else None
        is_open = reference is not None and not reference.is_fixed
        choices.append(str(replace(reference, as_of=moment)) if reference is not None and is_open else one)
    return tuple(choices)


def _form(kind: str) -> str:
    return "delta:PATH, or delta:PATH@12" if kind == "delta" else "iceberg:CATALOG.NAMESPACE.TABLE"
