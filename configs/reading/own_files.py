"""Users' files of code: read whole, run under a name of their own, and found again in a traceback."""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import sys
from pathlib import Path
from types import ModuleType

from configs.errors import RecipeError

OWN_FILE = "graphmill_file_"
"""What a user's file is called among the imported modules, with its digest behind."""
_LARGEST_BYTES = 10_000_000


def read_own_file(path: Path, digest: str | None, copy: Path | None) -> tuple[Path, bytes]:
    """Return a file and its content; those of its copy where the copy alone has the digest `digest`."""
    for place in (path, copy) if copy is not None else ():
        with contextlib.suppress(OSError, ValueError):
            content = _read(place)
            if hashlib.sha256(content).hexdigest() == digest:
                return place, content
    return path, _read(path)


def _read(path: Path) -> bytes:
    """Return the content of a file of code. Raises OSError for a pipe or a device, which might never end."""
    if path.exists() and not path.is_file():
        raise OSError("it is no regular file")
    with path.open("rb") as file:
        content = file.read(_LARGEST_BYTES + 1)
    if len(content) > _LARGEST_BYTES:
        raise OSError(f"it has more than {_LARGEST_BYTES:,} bytes, which no file of code has")
    return content


def run_own_file(path: Path, content: bytes, module_name: str) -> None:
    """Import a file under its own name, without bytecode beside it. Raises RecipeError with what went wrong in it."""
    module = ModuleType(module_name)
    module.__file__ = str(path)
    sys.modules[module_name] = module
    # Who asks for its source (pydantic does, for the strings below options) gets what runs, not what lies there by now.
    lines = content.decode(errors="replace").splitlines(keepends=True)
    linecache.cache[str(path)] = (len(content), None, lines, str(path))
    try:
        exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        del sys.modules[module_name]
        raise RecipeError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
