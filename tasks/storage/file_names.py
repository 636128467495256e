"""File names from names that data, recipes, servers and registries give. Nothing else makes a path of such a name.

A column may be called `../../etc`. A name from outside goes through `file_name` (or, where it names a file in the
user's own folder, has to be `is_file_name`), and a path that a stored record gives goes through `inner_path`.
`tests/test_file_names.py` looks for other joins in the code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

MAX_BYTES = 120
"""Longest name that `file_name` returns: a prefix, an ending and a draft's number fit beside it into the 255 bytes that
file systems allow."""
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MARK = "~"  # in no safe name: a name that had to be changed is never that of another text
_READABLE, _DIGEST = 60, 16
_COMPONENT_BYTES = 255
_PATH_CHARS = 1000


def file_name(text: str) -> str:
    """Return a name for a file or folder: one path component, ASCII, not hidden, at most `MAX_BYTES` long.

    A safe text stays as it is (letters, digits, `_`, `.` and `-`; begins with none of the last two). Any other becomes
    what is readable of it, `~` and a digest. Distinct texts have distinct names.
    """
    if len(text) <= MAX_BYTES and _SAFE.fullmatch(text):
        return text
    readable = _UNSAFE.sub("_", text[: 4 * _READABLE]).strip("._-")[:_READABLE]
    return f"{readable or 'x'}{_MARK}{_digest(text)}"


def joined_name(parts: Sequence[str]) -> str:
    """Return `a__b__c`, distinct for distinct parts: where their underscores leave open which, a digest follows."""
    name = "__".join(parts)
    if all(part and "__" not in part and part == part.strip("_") for part in parts):
        return name
    return f"{name}{_MARK}{_digest(chr(0).join(parts))}"


def is_file_name(text: str) -> bool:
    """Whether a text names one file or folder of the folder that it is looked for in, and nothing else."""
    size = len(text.encode("utf-8", "surrogatepass"))
    return text not in (".", "..") and 0 < size <= _COMPONENT_BYTES and not set(text) & {"/", "\0"}


def inner_path(text: str) -> str:
    """Return a relative path that stays below its folder. Raises ValueError for any other."""
    path = PurePosixPath(text)
    names = all(is_file_name(part) and part != ".." for part in path.parts)
    if not path.parts or path.is_absolute() or not names or len(text) > _PATH_CHARS:
        raise ValueError(f"{text[:200]!r} is no path below the artifact's own folder")
    return text


def beside(path: Path, ending: str) -> Path:
    """Return a hidden name in the same folder, for what becomes `path` later: a draft, a lock."""
    return path.with_name(f".{file_name(path.name)}{ending}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
