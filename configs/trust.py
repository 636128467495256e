"""Whose code may run: a file that a recipe or a stored model names is executed only if a person has said so.

What counts is the sha256 of the very bytes that are executed. A person says so by naming the file in a recipe on the
command line (`own_files`), by `--trust-code SHA256` or `graphmill trust` (`allow`), or by `GRAPHMILL_TRUST_CODE`,
digests with commas between, where nobody types; a stage's processes are told so too (`for_children`). The home
remembers the first two (`remember_in`). Nothing in data, in an artifact or in a registry can say it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

from configs.errors import RecipeError, UntrustedCodeError

VARIABLE = "GRAPHMILL_TRUST_CODE"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SHOWN_LINES = 12
_SHOWN_COLUMNS = 100


class Memory(Protocol):
    """Where it is remembered what may run; `tasks.storage.home_files.trusted_code` keeps one in each home."""

    def knows(self, digest: str) -> bool:
        """Whether code of this digest may run."""

    def learn(self, digest: str, source: str) -> None:
        """Remember that it may; `source` is where it was read, for people."""


_allowed: set[str] = set()  # in this process
_memory: ContextVar[Memory | None] = ContextVar("graphmill_trusted_code", default=None)
_own: ContextVar[bool] = ContextVar("graphmill_own_files", default=False)


def remember_in(memory: Memory | None) -> None:
    """Say where digests are looked up and remembered from now on."""
    _memory.set(memory)


@contextmanager
def own_files() -> Iterator[None]:
    """Inside the block the user speaks: the files that a recipe names are their own, run, and are remembered."""
    token = _own.set(True)
    try:
        yield
    finally:
        _own.reset(token)


def checked_digest(text: str, option: str) -> str:
    """Return a sha256 in lower case. Raises RecipeError for anything else."""
    digest = text.strip().lower()
    if not _DIGEST.fullmatch(digest):
        raise RecipeError(f"{option} {text!r}: a sha256 of 64 hexadecimal digits is wanted, whole (sha256sum FILE)")
    return digest


def allow(digests: Iterable[str], option: str = "--trust-code") -> None:
    """Let code of these digests run, in this process and, where there is a memory, from now on. Raises RecipeError."""
    memory = _memory.get()
    for digest in [checked_digest(text, option) for text in digests]:
        _allowed.add(digest)
        if memory is not None:
            memory.learn(digest, option)


def check_code(path: Path, content: bytes) -> str:
    """Return the digest of code that is about to run. Raises UntrustedCodeError unless a person has allowed it."""
    digest = hashlib.sha256(content).hexdigest()
    memory = _memory.get()
    if _own.get():
        if memory is not None and not memory.knows(digest):
            memory.learn(digest, str(path))
    elif digest not in _allowed | _from_environment() and (memory is None or not memory.knows(digest)):
        raise UntrustedCodeError(_refusal(path, content, digest), digest)
    _allowed.add(digest)
    return digest


def for_children() -> dict[str, str]:
    """Return the environment that lets processes of ours run what this one may."""
    digests = sorted(_allowed | _from_environment())
    return {VARIABLE: ",".join(digests)} if digests else {}


def _from_environment() -> set[str]:
    words = os.environ.get(VARIABLE, "").split(",")
    return {checked_digest(word, VARIABLE) for word in words if word.strip()}


def _refusal(path: Path, content: bytes, digest: str) -> str:
    lines = "".join(f"\n  | {line}" for line in first_lines(content))
    return (
        f"{printable(str(path))} is code that nobody has allowed to run here, and it was not run. Read it. To let it "
        f"run give --trust-code {digest} to the command, or allow it beforehand: graphmill trust {digest}\n"
        f"Its sha256 is {digest}; it has {len(content):,} bytes and begins:{lines}"
    )


def first_lines(content: bytes) -> list[str]:
    """Return the first lines for people to look at, cut, and without what a terminal would obey."""
    lines = content[: _SHOWN_LINES * 4096].decode(errors="replace").splitlines()[:_SHOWN_LINES]
    return [printable(line.expandtabs(4))[:_SHOWN_COLUMNS] for line in lines]


def printable(text: str) -> str:
    """Return a text in one line, without what a terminal would obey."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
