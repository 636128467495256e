"""A user without a name or a home, as any uid in a container: libraries ask for both, and end where there is none."""

from __future__ import annotations

import atexit
import getpass
import os
import shutil
import tempfile
from pathlib import Path


def stand_in_for_user(home: Path) -> None:
    """Give a process whose user has no name a name, and one without a home of its own the folder `user` of ours.

    Prefect, numba, matplotlib, torch and MLflow ask for them. Where a home cannot be written to, caches go to the
    folder.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = f"uid-{os.getuid()}"
    there = Path(os.path.expanduser("~"))  # noqa: PTH111 -- Path's raises where there is none
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return
    folder = home / "user"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)  # `parents` makes folders that others may read
        folder.mkdir(exist_ok=True, mode=0o700)
    except OSError:  # a command that needs no home of ours, where nothing can be written
        folder = Path(tempfile.mkdtemp(prefix="graphmill-user-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if there.is_dir() and there != Path("/"):
        os.environ.setdefault("XDG_CACHE_HOME", str(folder / ".cache"))
        os.environ.setdefault("MPLCONFIGDIR", str(folder / ".matplotlib"))
    else:
        os.environ["HOME"] = str(folder)
