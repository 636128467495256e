"""Where one installation lives: `--home DIR`, `GRAPHMILL_HOME`, or `.graphmill` under the current folder."""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from configs.errors import RecipeError, UserError
from configs.source_files import user_path
from tasks.processes.users import stand_in_for_user

_KEY_BYTES = 32
_LONGEST_KEY_BYTES = 4096


def home_path(root: str | Path | None = None) -> Path:
    """Return where a home lies, which is not made. Raises UserError for a name that cannot be one, or one of others."""
    path = user_path(root or os.environ.get("GRAPHMILL_HOME") or ".graphmill").resolve()
    if "?" in str(path):  # SQLAlchemy has no way to write it: what follows are options
        raise UserError(
            f"{path} has a question mark in its name, where the addresses of the databases in it would end; choose "
            "another with --home DIR"
        )
    if os.path.exists(path):  # noqa: PTH110 -- Path's raises where nobody may look
        _check_owner(path)
    return path


def _check_owner(path: Path) -> None:
    """Raise UserError for a folder where others may put what is run: Prefect's profiles, numba's cache."""
    if os.environ.get("GRAPHMILL_TRUSTED_HOME") == str(path):
        return
    status, trust = path.stat(), f"set GRAPHMILL_TRUSTED_HOME={path} where you trust whoever can write there"
    if status.st_uid not in (os.geteuid(), 0):
        raise UserError(
            f"{path} belongs to another user, who can put there what would be run; take a home of your own "
            f"(--home DIR), or {trust}"
        )
    if status.st_mode & stat.S_ISVTX and status.st_mode & stat.S_IWOTH:
        raise UserError(
            f"{path} is a folder where everybody may put something, which would be run; take one in it (--home DIR), "
            f"or {trust}"
        )


@dataclass(frozen=True)
class Home:
    """Folders of one installation.

    artifacts/STAGE/KEY/   finished artifacts, never changed      work/STAGE-KEY/   an artifact in the making
    cache/                 signed pickles                         locks/            one flock file an artifact
    downloads/             raw data sets                          runs/             one JSON a pipeline run
    texts/                 vectors of texts, a file an encoder
    prefect/ mlflow/       the embedded servers' SQLite files     secret.key        signs pickles and Prefect results
    trusted-code           digests of code that may run           source-digests    sha256 of sources that were read
    user/                  the home of a user who has none
    """

    root: Path

    @classmethod
    def open(cls, root: str | Path | None = None) -> Home:
        """Resolve and create the home folder (mode 0700: it holds the key that pickles are trusted by).

        Raises RecipeError where it cannot be used, or for a name that cannot be one.
        """
        path = home_path(root)
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise RecipeError(f"the home folder cannot be used: {error}; choose another with --home DIR") from error
        _check_owner(path)
        stand_in_for_user(path)
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
    def texts(self) -> Path:
        """Vectors of texts."""
        return self.root / "texts"

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

    @property
    def secret_key_file(self) -> Path:
        """The file of the signing key."""
        return self.root / "secret.key"

    def secret_key(self) -> bytes:
        """Return the signing key, made on first use in a file that only its owner can read.

        Raises UserError: the file is not one that this installation has made, or others may have read it.
        """
        path = self.secret_key_file
        try:
            return _read_key(self)
        except FileNotFoundError:
            pass
        # Whole or not at all, and the first of two processes wins: link() refuses an existing name.
        draft = self.root / f".secret.{os.getpid()}.{secrets.token_hex(4)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return _read_key(self)


def _read_key(home: Home) -> bytes:
    """Return a key that nobody else can have read or made. Raises FileNotFoundError, and UserError with a way out."""
    path = home.secret_key_file
    signed = " ".join(map(str, (path, home.cache, home.prefect / "results")))
    mend = f"mend it with: rm -r {signed} (a new key is made; caches are filled again, code has to be allowed again)"
    try:
        # Neither through a link, nor waiting for whoever writes into a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        what = "is a link; the key has to lie here itself" if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise UserError(f"{path} {what}; {mend}") from error
    try:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path} is no regular file; {mend}")
        if status.st_uid != os.geteuid():
            raise UserError(
                f"{path} belongs to another user, who knows it; {mend}, or take a home of your own (--home)"
            )
        if mode & 0o077:
            raise UserError(
                f"others may read {path} ({mode:o}), and who knows the key can sign what this home believes; {mend}, "
                f"or, if nobody else was on this machine, with: chmod 600 {path} (where that changes nothing, the file "
                "system has no modes: take a home elsewhere, --home DIR)"
            )
        key = os.read(descriptor, _LONGEST_KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if not _KEY_BYTES <= len(key) <= _LONGEST_KEY_BYTES:
        raise UserError(f"{path} holds {len(key)} bytes, which is no key (of {_KEY_BYTES} bytes); {mend}")
    return key
