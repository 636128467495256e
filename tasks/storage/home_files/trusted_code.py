"""What a home remembers of the code that a person let run: digests in a file that only this home can have signed."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

from configs import trust
from configs.errors import IntegrityError
from tasks.storage.artifacts import file_lock, write_atomic
from tasks.storage.home import Home
from tasks.storage.home_files.caching import seal, unseal

# Names of other sealed files are names of files, without a slash: none of them can be taken for this one.
_NAME = "trusted/code"
logger = logging.getLogger(__name__)


def remember_in_home(home: Home) -> None:
    """Look up and remember in this home, from now on, what code may run."""
    trust.remember_in(TrustedCode(home))


class TrustedCode:
    """Digests of code that may run in a home; see `configs.trust.Memory`."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @property
    def path(self) -> Path:
        """The file of it."""
        return self._home.root / "trusted-code"

    def entries(self) -> dict[str, dict[str, str]]:
        """Return digest to `source` (where it was read, or the option that named it) and `since`."""
        try:
            sealed = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            trusted: dict[str, dict[str, str]] = json.loads(unseal(self._home.secret_key(), _NAME, sealed))
        except IntegrityError:
            logger.warning("%s was not written by this home or was altered; nothing in it is believed", self.path)
            return {}
        return trusted

    def knows(self, digest: str) -> bool:
        """Whether code of this digest may run."""
        return digest in self.entries()

    def learn(self, digest: str, source: str) -> None:
        """Remember that it may. A home that cannot be written remembers nothing, and says so."""
        try:
            with file_lock(self._home.locks / "trusted-code.lock"):
                entry = {"source": source, "since": datetime.now(UTC).isoformat(timespec="seconds")}
                self._write({**self.entries(), digest: entry})
        except OSError as error:
            logger.warning("%s cannot be written (%s): code is allowed for this time only", self.path, error)

    def forget(self, digest: str) -> bool:
        """Take a digest back; returns whether it was there."""
        with file_lock(self._home.locks / "trusted-code.lock"):
            entries = self.entries()
            was_there = entries.pop(digest, None) is not None
            self._write(entries)
        return was_there

    def _write(self, entries: dict[str, dict[str, str]]) -> None:
        content = json.dumps(entries, indent=1, sort_keys=True).encode()
        write_atomic(self.path, seal(self._home.secret_key(), _NAME, content), mode=0o600)
