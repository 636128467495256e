"""Which code runs."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("configs", "models", "tasks", "flows")


@cache
def code_digest() -> str:
    """Return a digest of graphmill's own files of code: what they hold, not how they came there."""
    digest = hashlib.sha256()
    for path in sorted(path for package in _PACKAGES for path in (_ROOT / package).rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(_ROOT).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


@cache
def code_version() -> str:
    """Return the git commit of the code, with `-dirty` where it was changed, or the package's version."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        pass
    try:
        return version("graphmill")
    except PackageNotFoundError:
        return "unknown"
