"""Where one installation lives: `--home DIR`, `GRAPHMILL_HOME`, or `.graphmill` under the current folder."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """Folders of one installation.

    artifacts/STAGE/KEY/   finished artifacts, never changed      work/STAGE-KEY/   an artifact in the making
    cache/                 signed pickles                         locks/            one flock file an artifact
    downloads/             raw data sets                          runs/             one JSON a pipeline run
    prefect/ mlflow/       the embedded servers' SQLite files     secret.key        signs pickles and Prefect results
    source-digests         sha256 of source files that were read
    """

    root: Path

    @classmethod
    def open(cls, root: str | Path | None = None) -> Home:
        """Resolve and create the home folder (mode 0700: it holds the key that pickles are trusted by)."""
        path = Path(root or os.environ.get("GRAPHMILL_HOME") or ".graphmill").expanduser().resolve()
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(path)

    @property
    def artifacts(self) -> Path:
        """Finished artifacts."""
        return self.root / "artifacts"

    @property
    def work(self) -> Path:
        """Artifacts in the making."""
        return self.root / "work"

    @property
    def cache(self) -> Path:
        """Signed pickles of shards."""
        return self.root / "cache"

    @property
    def locks(self) -> Path:
        """Lock files; a lock is the kernel's, the file alone means nothing."""
        return self.root / "locks"

    @property
    def downloads(self) -> Path:
        """Raw data sets."""
        return self.root / "downloads"

    @property
    def runs(self) -> Path:
        """One JSON a pipeline run: what `plan`, `clean` and `inspect` look at."""
        return self.root / "runs"

    @property
    def prefect(self) -> Path:
        """Prefect's own home: SQLite file and results."""
        return self.root / "prefect"

    @property
    def mlflow(self) -> Path:
        """MLflow's SQLite file and artifacts."""
        return self.root / "mlflow"

    def secret_key(self) -> bytes:
        """Return the signing key, made on first use in a file that only its owner can read."""
        path = self.root / "secret.key"
        try:
            return path.read_bytes()
        except FileNotFoundError:
            pass
        # Whole or not at all, and the first of two processes wins: link() refuses an existing name.
        draft = self.root / f".secret.{os.getpid()}.{secrets.token_hex(4)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return path.read_bytes()
