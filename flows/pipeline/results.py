"""Where Prefect keeps results of tasks: signed JSON files that only this home can have written.

A stored result names its own serializer and Prefect believes it: a record rewritten to `pickle` would run code, even
though our tasks write JSON. So the storage itself refuses whatever the home's key did not sign, before Prefect sees it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from prefect.filesystems import LocalFileSystem

from tasks.storage.artifacts import write_atomic
from tasks.storage.caching import seal, unseal
from tasks.storage.home import Home


class SignedFileSystem(LocalFileSystem):
    """Local files with an HMAC-SHA256 over name and content in front, written whole or not at all.

    `basepath` is `prefect/results` of a home; the key stays in that home's `secret.key`.
    """

    _block_type_name = "Graphmill signed results"
    _block_type_slug = "graphmill-signed-results"

    @property
    def _home(self) -> Home:
        assert self.basepath is not None
        return Home(Path(self.basepath).parent.parent)

    def read_path(self, path: str, **_: Any) -> bytes:  # type: ignore[override]
        """Return a result's content.

        Raises:
            ValueError: there is no such file (Prefect takes it for "not cached").
            IntegrityError: the file was not written by this home, or under another name, or was altered.
        """
        file = self._resolve_path(path)
        try:
            sealed = file.read_bytes()
        except FileNotFoundError:
            raise ValueError(f"Path {file} does not exist.") from None
        return unseal(self._home.secret_key(), file.name, sealed)

    async def aread_path(self, path: str) -> bytes:
        """Return a result's content; see `read_path`."""
        return self.read_path(path)

    def write_path(self, path: str, content: bytes, **_: Any) -> str:  # type: ignore[override]
        """Sign and write a result."""
        file = self._resolve_path(path)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(file, seal(self._home.secret_key(), file.name, content))
        return str(file)

    async def awrite_path(self, path: str, content: bytes) -> str:
        """Sign and write a result; see `write_path`."""
        return self.write_path(path, content)


def result_storage(home: Home) -> SignedFileSystem:
    """Return the home's storage, known to the Prefect server (which keeps its place, not its key)."""
    folder = home.prefect / "results"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    name = f"home-{hashlib.sha256(str(home.root).encode()).hexdigest()[:16]}"
    storage = SignedFileSystem(basepath=str(folder))
    save: Any = storage.save  # its `_sync` is not in the annotation
    save(name, overwrite=True, _sync=True)
    return storage
