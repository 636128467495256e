"""Commands that pages show without running them: each names a command and options that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from flows.cli import app
from tests.docs.conftest import ROOT

SOURCES = [*sorted((ROOT / "docs" / "pages").rglob("*.md")), ROOT / "README.md"]
BLOCK = re.compile(r"^```(?:text|console|bash)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENDS = frozenset({";", "|", "||", "&&", ">", "&"})


def shown_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each `graphmill ...` in fenced blocks, without the program's name."""
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            if re.match(r"(\$ |[A-Z_]+=\S+ )*(\S*/)?graphmill ", line):
                lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&>")
                lexer.whitespace_split = True
                yield from _parts(list(lexer))


def _parts(words: list[str]) -> Iterator[list[str]]:
    found: list[str] | None = None
    for word in words:
        if word.rpartition("/")[2] == "graphmill":
            found = []
        elif word in ENDS:
            if found is not None:
                yield found
            found = None
        elif found is not None:
            found.append(word)
    if found is not None:
        yield found


def check(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    options = {option for parameter in command.params for option in parameter.opts}
    for word in words:
        inner = getattr(command, "commands", {})
        if word in inner:
            command = inner[word]
            options |= {option for parameter in command.params for option in parameter.opts}
        elif word.startswith("-"):
            assert word.partition("=")[0] in options, f"{' '.join(words)}: no option {word}"
    assert not getattr(command, "commands", {}), f"{' '.join(words)}: no such command"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_commands_and_options_exist(path: Path) -> None:
    for words in shown_commands(path.read_text()):
        check(words)


def test_commands_are_found() -> None:
    text = (ROOT / "docs" / "pages" / "operations.md").read_text()
    assert ["logs", "worker", "-f"] in list(shown_commands(text))
    with pytest.raises(AssertionError, match="no option --lmit"):
        check(["up", "--lmit", "3"])
    with pytest.raises(AssertionError, match="no such command"):
        check(["backfill", "creat", "nightly"])
