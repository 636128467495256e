"""Ways to spoil what was whole: bytes, and values of a JSON document."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, -(2**70), 1.5, 1e308, float("nan"), float("inf"), "", " ", "0",
    "\0", "é", "../../escape", "/etc/passwd", "..", ".", "a/b", "a\\b", "x" * 5000, "__proto__", [], {}, [[]], [None],
    [[[[[[[[1]]]]]]]], {"a": {"b": {}}}, ["../x"],
]  # fmt: skip


@st.composite
def spoilt_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with some bytes flipped, cut off, put in, doubled or zeroed, or something else altogether."""
    out = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(out) - 1)))
        length = draw(st.integers(0, 64))
        match draw(st.sampled_from(["flip", "cut", "put", "double", "zero", "other", "brackets"])):
            case "flip" if out:
                out[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del out[at:]
            case "put":
                out[at:at] = draw(st.binary(max_size=64))
            case "double":
                out[at:at] = out[at : at + length]
            case "zero":
                out[at : at + length] = bytes(len(out[at : at + length]))
            case "other":
                out = bytearray(draw(st.binary(max_size=200)))
            case "brackets":
                out[at:at] = draw(st.sampled_from([b"[", b'{"a":'])) * draw(st.sampled_from([3, 5000]))
    return bytes(out)


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
