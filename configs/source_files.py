"""Users' files: opened only where they are regular files, with a plain word about everything else.

A pipe, a socket or a device is never opened, so nothing ever waits for a writer.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, cast

from configs.errors import DataError

MAX_JSON_BYTES = 16 << 20
"""Descriptions in JSON: those that graphmill writes have some kilobytes, of a thousand types a megabyte."""

DATA_SET_FILES = {
    ".npz": ("npz", "path"),
    ".mat": ("mat", "path"),
    ".pt": ("pyg", "path"),
    ".pth": ("pyg", "path"),
    ".bin": ("dgl", "path"),
    ".nt": ("triples", "triples"),
}
"""Endings of files that are no tables: the data set that reads them, and its option for the file."""

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "is a folder, not a file"),
    (stat.S_ISFIFO, "is a pipe, and nothing is waited for; write what comes out of it to a file"),
    (stat.S_ISSOCK, "is a socket, not a file"),
    (stat.S_ISCHR, "is a device, not a file"),
    (stat.S_ISBLK, "is a device, not a file"),
)


def user_path(text: str | Path) -> Path:
    """Return a path as a user wrote it, with `~` resolved; whatever is read or written goes through here.

    Raises DataError: a user that does not exist, or an address such as `s3://bucket/x`.
    """
    if (scheme := _ADDRESS.match(str(text))) is not None:
        way_out = "name the path alone" if scheme[1] == "file" else "copy it to or from a file of this machine"
        raise DataError(f"is an address, and graphmill reads and writes files: {way_out}", path=text)
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise DataError(f"names no folder: {error}", path=text) from None


def unknown_format(path: Path, formats: Iterable[str]) -> DataError:
    """Return what is wrong with a file whose name tells no format of those that are known."""
    words = f"the name does not tell the format; known: {', '.join(formats)} (and .gz, .zst); or give format"
    if path.suffix.lower() in DATA_SET_FILES:
        name, option = DATA_SET_FILES[path.suffix.lower()]
        words = f"is no table, but a file of the data set {name}: dataset={{name: {name}, {option}: {path}}}"
    return DataError(words, path=path)


def look_up(path: Path) -> os.stat_result | None:
    """Return what stands at a path (links followed), None where nothing does.

    Raises DataError: the path cannot be looked up (a dangling link, a name that is too long, a closed folder, ...).
    """
    try:
        str(path).encode()
        return path.stat()
    except UnicodeEncodeError:
        raise DataError("has a name that is not UTF-8; rename it", path=path) from None
    except ValueError:
        raise DataError("has a NUL byte in its name", path=path) from None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and not path.is_symlink():
            return None
        raise refusal(path, error) from None


def check_file(path: Path) -> os.stat_result:
    """Return the status of a regular file. Raises DataError saying what stands there instead (see `look_up`)."""
    status = look_up(path)
    if status is None:
        raise DataError("there is no such file", path=path)
    _check_kind(path, status.st_mode)
    return status


def is_file(path: Path) -> bool:
    """Whether a regular file stands at a path. Raises DataError for anything else than a file or nothing."""
    return look_up(path) is not None and bool(check_file(path))


def is_folder(path: Path) -> bool:
    """Whether a folder stands at a path. Raises DataError for a path that cannot be looked up (see `look_up`)."""
    status = look_up(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def names_in(folder: Path) -> list[Path]:
    """Return what stands in a folder, by name. Raises DataError where it may not be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise refusal(folder, error) from None


def open_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading, unbuffered; never waits. Raises DataError (see `check_file`)."""
    check_file(path)
    try:
        # Were it changed for a pipe meanwhile: this does not wait for one either.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise refusal(path, error) from None
    try:
        _check_kind(path, os.fstat(descriptor).st_mode)
        os.set_blocking(descriptor, True)
    except DataError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb", buffering=0)  # noqa: PTH123 -- it has no name any more, and the caller closes it


def read_json(path: Path) -> Any:
    """Return what a JSON file holds. Raises DataError: no such file, too long, or not JSON."""
    try:
        with io.BufferedReader(cast(io.RawIOBase, open_file(path))) as file:
            data = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise refusal(path, error) from None
    if len(data) > MAX_JSON_BYTES:
        raise DataError(f"has more than {MAX_JSON_BYTES:,} bytes; such a description is short", path=path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        why = "brackets are nested too deep" if isinstance(error, RecursionError) else str(error)
        raise DataError(f"is not JSON ({why})", path=path) from None


def _check_kind(path: Path, mode: int) -> None:
    for is_kind, words in _KINDS:
        if is_kind(mode):
            raise DataError(words, path=path)


def refusal(path: Path, error: OSError) -> DataError:
    """Return the error that says why the system refuses a path."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and path.is_symlink():
        return DataError(f"is a link to {path.readlink()}, where nothing is", path=path)
    longest = max(len(os.fsencode(part)) for part in (path.parts or ("",)))
    words = {
        errno.ENOENT: "there is no such file",
        errno.ENOTDIR: "there is no such file: a part of the path is a file, not a folder",
        errno.EACCES: "may not be read: permission is denied to this user",
        errno.EPERM: "may not be read: permission is denied to this user",
        errno.ELOOP: "is a link that leads back to itself",
        errno.ENAMETOOLONG: f"the name is too long: the path has {len(os.fsencode(path)):,} bytes (4,095 are "
        f"possible), its longest part {longest:,} (255 are possible)",
    }
    return DataError(words.get(error.errno or 0, f"cannot be read ({error.strerror or error})"), path=path)
