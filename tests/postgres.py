"""PostgreSQL's programs, and a place for a cluster of our own."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

from tests.needs import needs

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []
"""Folders of programs, the newest release last."""
needs_postgres = needs("PostgreSQL", BINARIES)
USER = "postgres" if os.geteuid() == 0 else None
"""Who must run the server: it refuses to run as root. None: the user of the tests."""


def cluster_folder() -> Path:
    """Make an empty folder of the server's user, for the caller to remove.

    Not pytest's temporary folder: another user cannot reach it, and a second pytest takes away what it is given.
    """
    folder = Path(tempfile.mkdtemp(prefix="graphmill-postgres-"))
    if USER is not None:
        account = pwd.getpwnam(USER)
        os.chown(folder, account.pw_uid, account.pw_gid)
    return folder
