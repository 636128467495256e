"""How this very `graphmill` is called again: messages name commands that work when they are copied."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from flows.terminal.options import global_options


def graphmill_command(*arguments: str) -> str:
    """Return a command line for the home that this command was told to use."""
    home = ["--home", str(global_options.opened)] if global_options.home_named and global_options.opened else []
    return shlex.join([_program(), *home, *arguments])


def _program() -> str:
    own = Path(sys.executable).parent / "graphmill"
    found = shutil.which("graphmill")
    if found is not None and Path(found).resolve() == own.resolve():
        return "graphmill"
    return str(own.relative_to(Path.cwd())) if own.is_relative_to(Path.cwd()) else str(own)
