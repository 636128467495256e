"""Where compiled kernels are kept, and until when: numba looks at a kernel's own file only, not at those it calls.

numba inlines what a kernel calls and the constants that it reads, so a kept kernel is stale as soon as one of their
files has changed. Its index may then even be unreadable, as it names classes that are there no more; so each state of
the sources has a folder of its own. Named in `NUMBA_CACHE_LOCATOR_CLASSES`, which `models/__init__.py` sets.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core.caching import InTreeCacheLocator

ROOT = Path(__file__).resolve().parent.parent
_DIGITS = 16
_UNUSED_SECONDS = 30 * 86_400
_IMPORT = re.compile(r"^[ \t]*from ([a-z][\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)


class KernelCacheLocator(InTreeCacheLocator):
    """Keeps kernels of this repository, and of users' files that call them.

    They lie in `NUMBA_CACHE_DIR`, else beside their sources. Clones and branches that name one folder share what is the
    same in them, also when they run at the same time.
    """

    def get_cache_path(self) -> str:
        """Return the folder of a file's kernels."""
        file, kept = Path(self._py_file).resolve(), os.environ.get("NUMBA_CACHE_DIR")
        if not kept:
            return str(self._beside(file) / f"{file.stem}-{self.get_source_stamp()[:_DIGITS]}")
        place = file.with_suffix("")
        name = ".".join(place.relative_to(ROOT).parts if place.is_relative_to(ROOT) else place.parts[-1:])
        return str(Path(kept) / f"{name}-{self.get_source_stamp()[:_DIGITS]}")

    def _beside(self, file: Path) -> Path:
        return file.parent / "__pycache__"

    def ensure_cache_path(self) -> None:
        """Make the folder; those of earlier states of the file go when they have not been used for a month."""
        folder = Path(self.get_cache_path())
        is_new = not folder.exists()
        super().ensure_cache_path()  # type: ignore[no-untyped-call]
        os.utime(folder)
        if is_new:
            for other in folder.parent.glob(f"{folder.name[:-_DIGITS]}{'?' * _DIGITS}"):
                with contextlib.suppress(OSError):
                    if other.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                        shutil.rmtree(other)

    def get_source_stamp(self) -> str:
        """Return what a kept kernel's must equal."""
        return digest(Path(self._py_file).resolve())

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> KernelCacheLocator | None:
        """Return None for other people's functions, and where nothing can be written: numba's own locators follow."""
        path = Path(file).resolve()
        if not path.is_relative_to(ROOT) and not (path.is_file() and _imported(path)):
            return None
        locator: KernelCacheLocator | None = super().from_function(function, file)  # type: ignore[no-untyped-call]
        return locator


class UserKernelCacheLocator(KernelCacheLocator):
    """Keeps them in the user's cache folder, where those of the sources cannot be written."""

    def _beside(self, file: Path) -> Path:
        kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return kept / "graphmill" / "kernels" / hashlib.sha256(os.fsencode(file.parent)).hexdigest()[:_DIGITS]


@functools.cache
def digest(file: Path) -> str:
    """Return the SHA-256, hexadecimal, of a file and of those that its kernels are compiled from."""
    sha = hashlib.sha256()
    for part in sorted(sources(file)):
        name = str(part.relative_to(ROOT)) if part.is_relative_to(ROOT) else part.name
        sha.update(name.encode() + b"\0" + hashlib.sha256(part.read_bytes()).digest())
    return sha.hexdigest()


def sources(file: Path) -> set[Path]:
    """Return a file and the files of this repository that it imports from; those with kernels, with theirs in turn."""
    files, left = {file}, [file]
    while left:
        for imported in _imported(left.pop()) - files:
            files.add(imported)
            if b"numba" in imported.read_bytes():
                left.append(imported)
    return files


@functools.cache
def _imported(file: Path) -> set[Path]:
    return {path for name in _modules(file.read_text()) for path in [ROOT / f"{name}.py"] if path.is_file()}


def _modules(source: str) -> Iterator[str]:
    """Yield what may be modules, as paths: `from a.b import c` is of a/b.py or of a/b/c.py."""
    for module, several, one in _IMPORT.findall(source):
        place = module.replace(".", "/")
        yield place
        for name in (several or one).replace("\n", " ").split(","):
            yield f"{place}/{name.split()[0] if name.split() else ''}"
