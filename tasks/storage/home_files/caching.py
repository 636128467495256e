"""Pickles that are only read when this home's key signed them, since a pickle runs code when it is read.

Each carries an HMAC-SHA256 over its name and content; a foreign, moved or altered one is reported and computed again.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import pickle
from functools import cached_property
from pathlib import Path
from typing import Any

from configs.errors import IntegrityError
from tasks.storage.artifacts import write_atomic
from tasks.storage.home import Home

_MAC_BYTES = hashlib.sha256().digest_size
logger = logging.getLogger(__name__)


def sign(key: bytes, name: str, content: bytes | memoryview) -> bytes:
    """Return the signature of `content` under `name`."""
    mac = hmac.new(key, name.encode() + b"\0", "sha256")
    mac.update(content)  # content may be long: it is not copied
    return mac.digest()


def seal(key: bytes, name: str, content: bytes) -> bytes:
    """Return `content` with its signature in front."""
    return sign(key, name, content) + content


def unseal(key: bytes, name: str, sealed: bytes) -> bytes:
    """Return the content of a sealed record. Raises IntegrityError unless the signature fits name and content."""
    return bytes(_verified(key, name, sealed))


def _verified(key: bytes, name: str, sealed: bytes) -> memoryview:
    content = memoryview(sealed)[_MAC_BYTES:]
    if not hmac.compare_digest(sealed[:_MAC_BYTES], sign(key, name, content)):
        raise IntegrityError(f"{name}: the signature does not fit; the content is not trusted")
    return content


class PickleCache:
    """Results of pure functions on shards: protocol-5 pickles of arrays and plain types, named by what made them."""

    def __init__(self, home: Home) -> None:
        """The key is read from the home where it is needed: a cache that is sent to a worker carries no secret."""
        self.home = home

    @property
    def folder(self) -> Path:
        """Where the pickles lie."""
        return self.home.cache

    @cached_property
    def _key(self) -> bytes:
        return self.home.secret_key()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the key behind."""
        return {"home": self.home}

    @staticmethod
    def name(function: str, version: int, **parts: Any) -> str:
        """Name a result by the function, its version and everything that it depends on."""
        text = repr((function, version, sorted(parts.items())))
        return f"{function}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def path(self, name: str) -> Path:
        """File of a result."""
        return self.folder / name[-32:][:2] / f"{name}.pkl"

    def has(self, name: str) -> bool:
        """Return whether there is a result; only `load` tells whether it can be trusted."""
        return self.path(name).exists()

    def load(self, name: str) -> Any | None:
        """Return a result, or None where there is none that can be trusted."""
        path = self.path(name)
        try:
            sealed = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return pickle.loads(_verified(self._key, name, sealed))
        except IntegrityError:
            logger.warning("%s was not written by this home or was altered; it is computed again", path)
            path.unlink(missing_ok=True)
            return None

    def forget(self, name: str) -> None:
        """Remove a result, if there is one."""
        self.path(name).unlink(missing_ok=True)

    def store(self, name: str, value: Any) -> None:
        """Keep a result (arrays and plain types only)."""
        self.store_pickle(name, pickle.dumps(value, protocol=5))

    def store_pickle(self, name: str, content: bytes) -> None:
        """Keep a result that another of this user's processes has pickled."""
        write_atomic(self.path(name), seal(self._key, name, content))
