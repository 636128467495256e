"""N-Triples (https://www.w3.org/TR/n-triples/), block by block: one regular expression for all lines of a block.

Only what holds a backslash, and the line that is wrong, is looked at by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array
from tasks.readers.limits import MAX_CELL_BYTES
from tasks.readers.streams import read_lines

TERMS = ("subject", "predicate", "object")
_U = r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}"
_IRI = rf'<(?:[^\x00-\x20<>"{{}}|^`\\]|{_U})*>'
# A label may have dots inside, and the dot that ends the triple may follow at once.
# `\pL` is a class of letters to RE2, which Arrow uses.
_LABEL = r"\pL\pN\pM_:·‿⁀\-"
_BLANK = rf"_:[\pL\pN_:](?:[{_LABEL}.]*[{_LABEL}])?"
_LITERAL = rf'"(?:[^"\\\n\r]|\\[tbnrf"\'\\]|{_U})*"(?:\^\^{_IRI}|@[A-Za-z]+(?:-[A-Za-z0-9]+)*)?'
_LINE = (
    rf"^[ \t]*(?P<subject>{_IRI}|{_BLANK})[ \t]*(?P<predicate>{_IRI})[ \t]*(?P<object>{_IRI}|{_BLANK}|{_LITERAL})"
    r"[ \t]*\.[ \t]*(?:#[^\n]*)?[\r\n]*$"
)
# What most lines are, which RE2 takes six times as fast (1.4 us a line on one core, 2026).
_SIMPLE_IRI = r'<[^\x00-\x20<>"{}|^`\\]*>'
_SIMPLE = (
    rf"^(?P<subject>{_SIMPLE_IRI})[ \t]+(?P<predicate>{_SIMPLE_IRI})[ \t]+"
    rf'(?P<object>{_SIMPLE_IRI}|"[^"\\\n\r]*"(?:\^\^{_SIMPLE_IRI})?)[ \t]*\.[ \t\r\n]*$'
)
# What may stand without its brackets, and is not taken for a blank node or a literal then.
_BARE_IRI = r'(?s)^<(?:[^_"<].*|_(?:[^:].*)?)?>$'
_STRING = r'"\^\^<http://www\.w3\.org/2001/XMLSchema#string>$'
_NOTHING = r"^[ \t]*(?:#[^\n]*)?[\r\n]*$"
_ESCAPE = re.compile(r"\\(?:([tbnrf\"'\\])|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")
_CHARACTERS = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


@dataclass(frozen=True)
class Statements:
    """The triples of some lines that were asked for."""

    first_line: int
    """Number of the first of these lines, from 0."""
    terms: pa.RecordBatch
    """Their subject, predicate and object: an IRI without its brackets (but for one that would look like one
    of the others without them, `<_:x>`), `_:label`, or a literal in quotes; escapes are resolved."""
    num_literals: int
    """Triples with a literal that were left out."""


def read_ntriples(path: Path, *, literals: bool) -> Iterator[Statements]:
    """Yield the triples of a file; without `literals` those whose object is one are left out.

    Raises DataError: see `read_lines`; a line that is no triple, named with its number.
    """
    for first, lines in read_lines(path):
        parts = _matched(lines)
        there = np.asarray(compute.is_valid(parts))
        other = lines.filter(pa.array(~there))
        strange = compute.index(compute.match_substring_regex(other, _NOTHING), False).as_py()
        if strange >= 0:
            line = first + int(np.flatnonzero(~there)[strange]) + 1
            raise DataError(f"line {line}: {_what_is_wrong(other[strange].as_py())}", path=path)
        is_literal = there & np.asarray(compute.fill_null(compute.starts_with(parts.field(2), '"'), False))
        kept = there & ~is_literal if not literals else there
        rows = np.flatnonzero(kept)
        terms = [_plain(parts.field(place).take(pa.array(rows)), rows + first, path) for place in range(3)]
        batch = pa.RecordBatch.from_arrays(terms, names=list(TERMS))
        yield Statements(first, batch, 0 if literals else int(np.count_nonzero(is_literal)))


def _matched(lines: pa.Array) -> pa.Array:
    """Return subject, predicate and object of each line as structs; null where it is no triple."""
    parts = compute.extract_regex(lines, _SIMPLE)
    if not parts.null_count:
        return parts
    other = compute.is_null(parts)
    rest = compute.extract_regex(lines.filter(other), _LINE)
    # Of both, one after the other, the row that is meant.
    places = np.arange(len(lines))
    places[np.asarray(other)] = len(lines) + np.arange(len(rest))
    return pa.concat_arrays([parts, rest]).take(pa.array(places))


def _plain(terms: pa.Array, lines: Array, path: Path) -> pa.Array:
    """Return terms without escapes, IRIs without their brackets. Raises DataError for what is no character."""
    longest = compute.max(compute.binary_length(terms)).as_py() or 0
    if longest > MAX_CELL_BYTES:
        row = compute.index(compute.binary_length(terms), longest).as_py()
        why = f"a term has {longest:,} bytes; an id has {MAX_CELL_BYTES:,} at most"
        raise DataError(f"line {lines[row] + 1}: {why}", path=path)
    terms = _one_form(terms)
    escaped = compute.match_substring(terms, "\\")
    if compute.any(escaped).as_py():
        rows = np.flatnonzero(np.asarray(escaped))
        resolved = []
        for row, text in zip(rows, terms.filter(escaped).to_pylist(), strict=True):
            try:
                resolved.append(_ESCAPE.sub(_character, text))
            except ValueError as error:
                raise DataError(f"line {lines[row] + 1}: {error}", path=path) from None
        terms = compute.replace_with_mask(terms, escaped, pa.array(resolved, pa.string()))
    is_iri = compute.match_substring_regex(terms, _BARE_IRI)
    return compute.if_else(is_iri, compute.utf8_slice_codeunits(terms, 1, -1), terms)


def _one_form(terms: pa.Array) -> pa.Array:
    """Return terms with literals that RDF 1.1 (sections 3.3 and 7) calls equal in one form.

    A literal without datatype is an xsd:string, and languages are the same in upper and lower case.
    """
    terms = compute.replace_substring_regex(terms, _STRING, '"')
    tagged = compute.match_substring_regex(terms, r'"@[A-Za-z0-9-]*[A-Z][A-Za-z0-9-]*$')
    if not compute.any(tagged).as_py():
        return terms
    parts = compute.extract_regex(terms.filter(tagged), r'(?s)^(?P<text>.*")(?P<tag>@[^"]*)$')
    lower = compute.binary_join_element_wise(parts.field(0), compute.utf8_lower(parts.field(1)), "")
    return compute.replace_with_mask(terms, tagged, lower)


def _character(match: re.Match[str]) -> str:
    simple, short, long = match.groups()
    if simple:
        return _CHARACTERS[simple]
    code = int(short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"the escape {match.group()} is no character of Unicode")
    return chr(code)


def _what_is_wrong(line: str) -> str:
    """Say which part of a line is not as N-Triples has it."""
    rest = line.strip(" \t\r\n")
    blank = r"_:[\w:](?:[\w:·‿⁀.-]*[\w:·‿⁀-])?"  # Python's \w is close enough for words
    for name, expected, pattern in (
        ("subject", "an IRI <...> or a blank node _:x", rf"{_IRI}|{blank}"),
        ("predicate", "an IRI <...>", _IRI),
        ("object", "an IRI, a blank node or a literal between double quotes", rf"{_IRI}|{blank}|{_LITERAL}"),
    ):
        match = re.match(pattern, rest)
        if match is None:
            is_turtle = re.match(r"@(prefix|base)|[A-Za-z]\w*:", rest) is not None
            hint = "; this looks like Turtle: convert it, rapper -i turtle -o ntriples FILE" if is_turtle else ""
            return f"the {name} is not {expected}: {rest[:60]!r}{hint}"
        rest = rest[match.end() :].lstrip(" \t")
    if re.match(rf"({_IRI}|_:\S+)\s*\.", rest):
        return f"has a fourth term, {rest[:60]!r}: that is N-Quads; leave the graphs' names out"
    return f"the triple does not end with a dot: {rest[:60]!r}"
