"""Which servers a command talks to: those of the environment, else those that `graphmill up` runs in this home."""

from __future__ import annotations

import os

from flows.services.commands import client_environment
from flows.services.settings import read_settings
from flows.services.state import is_up
from tasks.storage.home import Home


def connect(home: Home) -> None:
    """Point this process at the home's services where they are up and the user has not named others."""
    if "PREFECT_API_URL" in os.environ or not is_up(home):
        return
    settings = read_settings(home)
    if settings is None:
        return
    for name, value in client_environment(home, settings).items():
        os.environ.setdefault(name, value)
