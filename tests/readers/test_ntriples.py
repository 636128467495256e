"""N-Triples: what is read is what a plain reference reads, character by character."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from configs.errors import DataError
from tasks.readers import streams
from tasks.readers.ntriples import read_ntriples
from tasks.readers.streams import read_lines, read_names

Triple = tuple[str, str, str]
SIMPLE = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


def read(path: Path, *, literals: bool = True) -> list[Triple]:
    found = []
    for part in read_ntriples(path, literals=literals):
        found += [tuple(row.values()) for row in part.terms.to_pylist()]
    return found


def plain_term(text: str, at: int) -> tuple[str, int]:
    """Read one term by hand; return it and where it ends."""
    out, end = "", {"<": ">", '"': '"'}.get(text[at])
    literal = text[at] == '"'
    if end is None:
        stop = at
        while text[stop] not in " \t<":
            stop += 1
        return text[at:stop], stop
    i = at + 1
    while text[i] != end:
        if text[i] != "\\":
            out, i = out + text[i], i + 1
        elif text[i + 1] in "uU":
            size = 4 if text[i + 1] == "u" else 8
            out, i = out + chr(int(text[i + 2 : i + 2 + size], 16)), i + 2 + size
        else:
            out, i = out + SIMPLE[text[i + 1]], i + 2
    i += 1
    if not literal:
        return out, i
    out = f'"{out}"'
    if text.startswith("^^", i):
        kind, i = plain_term(text, i + 2)
        return f"{out}^^<{kind}>", i
    stop = i
    while text[stop] not in " \t.":
        stop += 1
    return out + text[i:stop].lower(), stop


def plain(text: str) -> list[Triple]:
    """Read N-Triples by hand."""
    found = []
    for line in text.split("\n"):
        at, terms = 0, []
        while at < len(line) and line[at] not in ".#\r":
            if line[at] in " \t":
                at += 1
                continue
            term, at = plain_term(line, at)
            terms.append(term)
        if terms:
            found.append((terms[0], terms[1], terms[2]))
    return found


CHARACTERS = "aZ09é漢😀 .,;#-_/?&=@^'(){}|`~\u00a0\u200b\"\\<>\t\n\r\b\f"


def written(rng: random.Random, text: str, forbidden: str) -> str:
    out = ""
    for c in text:
        forms = [f"\\u{ord(c):04X}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}", f"\\U{ord(c):08X}"]
        if c not in forbidden:
            forms += [c] * 6
        if forbidden.startswith('"'):
            forms += [f"\\{key}" for key, value in SIMPLE.items() if value == c] * 2
        out += rng.choice(forms)
    return out


def random_term(rng: random.Random, place: int) -> str:
    kind = rng.choice(("iri", "blank", "literal")[: 3 if place == 2 else 2 if place == 0 else 1])
    text = "".join(rng.choice(CHARACTERS) for _ in range(rng.randrange(12)))
    iri = written(rng, "http://ex.org/" + text, "".join(map(chr, range(0x21))) + '<>"{}|^`\\')
    if kind == "iri":
        return f"<{iri}>"
    if kind == "blank":
        return "_:" + rng.choice(("b1", "a.b", "x-y", "é", "0", "n.1.é")) + " "
    ending = rng.choice(("", "@en", "@de-AT-1996", f"^^<{iri}>"))
    return f'"{written(rng, text, chr(34) + chr(92) + chr(10) + chr(13))}"{ending}'


def random_line(rng: random.Random) -> str:
    blank = rng.choice((" ", " ", "\t", "  "))
    if rng.random() < 0.1:
        return rng.choice(("", blank, "# a <comment> .", blank + "#"))
    gap = rng.choice((blank, blank, ""))
    end = rng.choice((" .", ".", " . ", " .# what <follows> .", "\t.\t# x", " .\r"))
    return gap.join(random_term(rng, place) for place in range(3)) + end


@pytest.mark.parametrize(("seed", "cases"), [(0, 10), pytest.param(1, 30, marks=pytest.mark.slow)])
def test_like_a_plain_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, cases: int) -> None:
    rng = random.Random(seed)
    for case in range(cases):
        block = rng.choice((7, 100, 1 << 20))
        # Every block costs as much as many lines: of the smallest, few lines have enough.
        text = "\n".join(random_line(rng) for _ in range(10 if block == 7 else 50))
        text += rng.choice(("", "\n"))
        path = tmp_path / "x.nt"
        path.write_bytes(text.encode())
        monkeypatch.setattr(streams, "BLOCK_BYTES", block)
        expected = plain(text)
        assert read(path) == expected, case
        assert read(path, literals=False) == [row for row in expected if not row[2].startswith('"')]


def test_which_lines_are_triples(tmp_path: Path) -> None:
    path = tmp_path / "x.nt"
    path.write_text('# c\n<a> <b> <c> .\n\n<a> <b> "c" .\n<a> <b> _:c .\n')
    (part,) = read_ntriples(path, literals=False)
    assert part.first_line == 0
    assert part.num_literals == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("<a> <b> <c>", r"the triple does not end with a dot"),
        ("<a> <b> .", r"the object is not an IRI, .* between double quotes: '\.'"),
        ("<a> <b> <c> <g> .", r"has a fourth term, '<g> \.': that is N-Quads"),
        ("<a> <b> <c> . <d>", r"the triple does not end with a dot: '\. <d>'"),
        ('"x" <b> <c> .', r"the subject is not an IRI <\.\.\.> or a blank node"),
        ("<a> _:b <c> .", r"the predicate is not an IRI"),
        ("<a b> <c> <d> .", r"the subject is not an IRI"),
        ("<a> <b> <c", r"the object is not"),
        (r'<a> <b> "x\q" .', r"the object is not"),
        (r"<a> <b> <\t> .", r"the object is not"),
        ('<a> <b> "x .', r"a literal between double quotes"),
        ('<a> <b> "x"@1 .', r"does not end with a dot: '@1 \.'"),
        ('<a> <b> "x"^^int .', r"does not end with a dot"),
        ("@prefix a: <b> .", r"this looks like Turtle"),
        ("ex:a ex:b ex:c .", r"this looks like Turtle"),
        (r'<a> <b> "\uD800" .', r"the escape \\uD800 is no character"),
        (r'<a> <b> "\U00110000" .', r"the escape \\U00110000 is no character"),
        ("<a> <b> <" + "c" * 70_000 + "> .", r"a term has 70,00\d bytes; an id has 65,536 at most"),
    ],
)
@pytest.mark.parametrize("block", [16, 1 << 23])
def test_mistakes_name_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str, block: int
) -> None:
    monkeypatch.setattr(streams, "BLOCK_BYTES", block)
    path = tmp_path / "x.nt"
    path.write_text(f'<a> <b> <c> .\n# x\n\n_:a <b> "c" .\n{line}\n<a> <b> <c> .\n')
    with pytest.raises(DataError, match=rf"x\.nt: line 5: .*{message}"):
        read(path)


def test_lines_and_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\ntwo\nthree")
    for block in (1, 2, 5, 100):
        monkeypatch.setattr(streams, "BLOCK_BYTES", block + 3)  # a mark of three bytes comes whole
        found = [(first + i, text) for first, part in read_lines(path) for i, text in enumerate(part.to_pylist())]
        assert found == [(0, "one\r\n"), (1, "\n"), (2, "two\n"), (3, "three")]
    path.write_bytes(b"a\nb\nc\xff\n")
    with pytest.raises(DataError, match=r"x\.txt: line 3: byte 0xFF .* is not UTF-8"):
        list(read_lines(path))
    path.write_bytes(b"a\r\nb c\n")
    assert read_names(path).to_pylist() == ["a", "b c"]
    monkeypatch.setattr(streams, "MAX_ROW_BYTES", 50)
    path.write_bytes(b"a\n" + b"b" * 1000)
    with pytest.raises(DataError, match=r"line 2 has more than 50 bytes"):
        list(read_lines(path))


def test_terms_that_only_look_alike_stay_two(tmp_path: Path) -> None:
    text = "<_:b> <p> _:b .\n" + r'<\u0022a\u0022> <p> "a" .' + "\n" + r"<\u003Ca\u003E> <_> <a> ." + "\n"
    path = tmp_path / "x.nt"
    path.write_text(text)
    assert read(path) == [("<_:b>", "p", "_:b"), ('<"a">', "p", '"a"'), ("<<a>>", "_", "a")]


def test_literals_that_rdf_calls_equal_are_one(tmp_path: Path) -> None:
    string = "^^<http://www.w3.org/2001/XMLSchema#string>"
    written = ['"a"', f'"a"{string}', '"A"@EN', '"A"@en', '"A"@de-AT', rf'"a\"{string}"', '"a"^^<x>']
    path = tmp_path / "x.nt"
    path.write_text("".join(f"<s> <p> {term} .\n" for term in written))
    terms = ['"a"', '"a"', '"A"@en', '"A"@en', '"A"@de-at', f'"a"{string}"', '"a"^^<x>']
    assert [row[2] for row in read(path)] == terms
