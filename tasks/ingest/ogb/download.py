"""Fetch an archive: resumed where a connection broke, checked, unpacked, and only then given its name."""

from __future__ import annotations

import errno
import shutil
import time
import zipfile
from pathlib import Path

from configs.errors import DataError
from configs.matching import listed
from configs.source_files import names_in
from tasks.readers.arrays.npy import ZIP_ERRORS
from tasks.stage import StageContext
from tasks.storage.file_names import file_name

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30
_ATTEMPTS = 6
_FIRST_WAIT_SECONDS = 1.0
_IMPOSSIBLE_NAMES = (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EINVAL)
_MAX_MEMBERS = 100_000  # OGB's archives have some dozens; ogbn-mag's relations a few more


def download_archive(
    url: str, target: Path, top_folder: str, context: StageContext, first_wait_seconds: float = _FIRST_WAIT_SECONDS
) -> None:
    """Download a zip and make its folder `top_folder` the folder `target`.

    An interrupted download is kept beside the target and goes on where it stopped, in this run or the next one.

    Raises DataError: the server cannot be reached or has no such file, the disk is too small, the archive is damaged.
    """
    place = target.parent / ".download"
    place.mkdir(parents=True, exist_ok=True)
    archive = place / f"{file_name(url)}.zip"  # not by the target: what lies there must be of this address
    if not archive.exists():
        context.message(f"downloading {url}")
        fetch(url, archive, context, first_wait_seconds)
    unpacked = archive.with_suffix(".unpacked")
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        _unpack(archive, unpacked, url)
        inside = unpacked / top_folder
        if not inside.is_dir():
            there = [path.name for path in names_in(unpacked)] if unpacked.is_dir() else []
            raise DataError(f"the archive has no folder {top_folder!r}; it has {listed(there) or 'nothing'}", path=url)
        inside.rename(target)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    archive.unlink()


def _unpack(archive: Path, folder: Path, url: str) -> None:
    """Extract all members; their checksums are compared on the way."""
    try:
        with zipfile.ZipFile(archive) as file:
            members = file.infolist()
            if len(members) > _MAX_MEMBERS:
                raise zipfile.BadZipFile(f"it lists {len(members):,} files")
            size = sum(member.file_size for member in members)
            _check_space(folder.parent, size, url)
            file.extractall(folder)
    except (*ZIP_ERRORS, ValueError) as error:
        if isinstance(error, DataError) or (isinstance(error, OSError) and error.errno not in _IMPOSSIBLE_NAMES):
            raise  # the disk's fault, not the archive's
        archive.unlink()
        raise DataError(f"the downloaded archive is damaged ({error}) and was removed; run again", path=url) from error


def _check_space(folder: Path, size: int, url: str) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DataError(
            f"needs {size / 1e9:.1f} GB in {folder}, which has {free / 1e9:.1f} GB free; give dataset.root on a larger "
            "disk",
            path=url,
        )


def fetch(url: str, target: Path, context: StageContext, first_wait_seconds: float = _FIRST_WAIT_SECONDS) -> None:
    """Download one file, going on after breaks. `target` appears when it is whole. Raises DataError."""
    import requests
    from urllib3.exceptions import HTTPError

    part = target.with_suffix(".part")
    wait = first_wait_seconds
    for attempt in range(_ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        try:
            if _fetch_once(url, part, context):
                part.replace(target)
                return
            reason = "the connection closed early"
        except (requests.RequestException, HTTPError) as error:
            reason = str(error)
        size = part.stat().st_size if part.exists() else 0
        if size > before:  # it moves on: start counting again
            wait = first_wait_seconds
        if attempt + 1 < _ATTEMPTS:
            context.message(f"download broke off at {size / 1e6:.1f} MB ({reason[:120]}); going on in {wait:.1f} s")
            time.sleep(wait)
            wait *= 2
    raise DataError(
        f"could not be downloaded ({reason[:200]}); what came is kept, so run again to go on. Without a network unpack "
        "the archive elsewhere and give dataset.root",
        path=url,
    )


def _fetch_once(url: str, part: Path, context: StageContext) -> bool:
    """Ask for what is missing and append it. Return whether the file is whole."""
    import requests

    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS) as answer:
        if answer.status_code == 416:  # nothing is left to send: whole, or not ours
            if answer.headers.get("Content-Range") == f"bytes */{have}":
                return True
            part.unlink()
            return False
        if answer.status_code not in (200, 206):
            raise DataError(f"the server answers {answer.status_code} {answer.reason}", path=url)
        if answer.status_code == 200:
            have = 0
            part.unlink(missing_ok=True)
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else None
        if total is not None:
            _check_space(part.parent, total - have, url)
        with part.open("ab") as file:
            # read1 hands over what is there: what came before a break is kept, to the last byte.
            while chunk := answer.raw.read1(_CHUNK_BYTES):
                file.write(chunk)
                have += len(chunk)
                context.progress(have, total or have, "bytes", "download")
    return total is None or have == total
