"""Ways to spoil what was whole: bytes, and values of a JSON document."""

from __future__ import annotations

import bz2
import copy
import gzip
import json
import lzma
import struct
from typing import Any

import zstandard
from hypothesis import strategies as st

ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, -(2**70), 1.5, 1e308, float("nan"), float("inf"), "", " ", "0",
    "\0", "é", "../../escape", "/etc/passwd", "..", ".", "a/b", "a\\b", "x" * 5000, "__proto__", [], {}, [[]], [None],
    [[[[[[[[1]]]]]]]], {"a": {"b": {}}}, ["../x"],
]  # fmt: skip


_ODD = [
    *(b"\0", b"\xff", b"\r", b'"', b",", b"\n", b"-1", b"1e999", b"nan", b"NA", b"\xef\xbb\xbf"),
    *(b"[" * 3000, b'{"a":' * 3000, b"9" * 400, b"\x80\x04\x8e" + b"\xff" * 7),
    *(struct.pack("<q", -1), struct.pack("<q", 2**62), struct.pack("<i", 2**31 - 1)),
]


@st.composite
def broken(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes flipped, cut, repeated, overwritten by odd ones, or compressed in another way."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        how = draw(st.sampled_from(["flip", "cut", "drop", "repeat", "insert", "overwrite", "codec", "zeros"]))
        size = draw(st.integers(1, 40))
        if how == "flip" and data:
            data = data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
        elif how == "cut":
            data = data[:at]
        elif how == "drop":
            data = data[:at] + data[at + size :]
        elif how == "repeat":
            data = data[:at] + data[at : at + size] * draw(st.sampled_from([2, 3, 500])) + data[at + size :]
        elif how == "zeros":
            data = data[:at] + bytes(size) + data[at + size :]
        elif how == "codec":
            data = draw(st.sampled_from([bz2.compress, gzip.compress, lzma.compress, zstandard.compress]))(data)
        else:
            odd = draw(st.sampled_from(_ODD))
            data = data[:at] + odd + data[at + (0 if how == "insert" else len(odd)) :]
    return data


@st.composite
def spoilt_json(draw: st.DrawFn, document: Any) -> Any:
    """The document with up to three values or keys replaced, removed or added, at any depth."""
    out = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(_containers(out)))
        value = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
        if isinstance(place, dict):
            keys = sorted(place) or ["x"]
            key = draw(st.sampled_from(keys))
            match draw(st.sampled_from(["replace", "remove", "add"])):
                case "replace":
                    place[key] = value
                case "remove":
                    place.pop(key, None)
                case "add":
                    place[draw(st.sampled_from(["../../escape", "", "x", "\0", *keys]))] = value
        elif place:
            place[draw(st.integers(0, len(place) - 1))] = value
        else:
            place.append(value)
    return out


def _containers(value: Any) -> list[Any]:
    found = [value] if isinstance(value, dict | list) else []
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += _containers(inner)
    return found


def as_text(document: Any) -> bytes:
    """JSON as Python writes it, NaN and Infinity included."""
    return json.dumps(document).encode()
