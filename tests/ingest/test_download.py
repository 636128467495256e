"""Downloads from a real HTTP server on this machine, one that breaks connections."""

from __future__ import annotations

import io
import re
import shutil
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from tasks.ingest.ogb import download
from tasks.ingest.ogb import meta as ogb_meta
from tasks.ingest.ogb.download import download_archive
from tasks.ingest.ogb.meta import OgbMeta
from tasks.stage import Listener, StageContext
from tasks.storage.file_names import file_name
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tests.ingest.conftest import Ingest
from tests.ingest.ogb_folders import node_folder


class Server:
    """Serves `content`; breaks off the first `breaks` answers half-way, and remembers what was asked for."""

    def __init__(self) -> None:
        self.content = b""
        self.breaks = 0
        self.status = 200
        self.ranges: list[str | None] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/data.zip"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.ranges.append(asked)
        if self.status != 200:
            request.send_error(self.status)
            return
        start = 0
        match = re.fullmatch(r"bytes=(\d+)-", asked or "")
        if match:
            start = int(match.group(1))
            if start >= len(self.content):
                request.send_response(416)
                request.send_header("Content-Range", f"bytes */{len(self.content)}")
                request.end_headers()
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        else:
            request.send_response(200)
        body = self.content[start:]
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if self.breaks:
            self.breaks -= 1
            body = body[: len(body) // 2]
        request.wfile.write(body)
        request.close_connection = True

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()
    yield served
    served.close()


@pytest.fixture
def context(home: Home, tmp_path: Path) -> StageContext:
    return StageContext("ingest", tmp_path, home, PickleCache(home))


def archive(folder: Path, top: str = "arxiv") -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, f"{top}/{path.relative_to(folder)}")
        file.writestr(f"{top}/noise.bin", np.random.default_rng(0).bytes(200_000))
    return data.getvalue()


def fetch(server: Server, target: Path, context: StageContext) -> None:
    download_archive(server.url, target, "arxiv", context, first_wait_seconds=0.01)


@pytest.fixture
def served(server: Server, tmp_path: Path) -> Path:
    """The server has an archive of `source`; returns where it is to be unpacked."""
    node_folder(tmp_path / "source")
    server.content = archive(tmp_path / "source")
    (tmp_path / "root/.download").mkdir(parents=True)
    return tmp_path / "root" / "ogbn_arxiv"


def test_broken_connections_are_resumed(server: Server, context: StageContext, served: Path, tmp_path: Path) -> None:
    server.breaks = 3
    seen: list[tuple[float, float]] = []

    class Ears(Listener):
        def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
            seen.append((done, total))

    context.listener = Ears()
    fetch(server, served, context)
    assert (served / "raw/edge.csv.gz").read_bytes() == (tmp_path / "source/raw/edge.csv.gz").read_bytes()
    starts = [int(asked[6:-1]) if asked else 0 for asked in server.ranges]
    assert starts[0] == 0
    assert starts == sorted(set(starts)), "each try goes on where the last one stopped"
    assert len(starts) == 4
    assert seen[-1] == (len(server.content), len(server.content))
    assert not list((tmp_path / "root/.download").iterdir())


def test_an_interrupted_run_goes_on_in_the_next(server: Server, context: StageContext, served: Path) -> None:
    part = served.with_name(".download") / f"{file_name(server.url)}.part"
    part.write_bytes(server.content[:1000])
    fetch(server, served, context)
    assert server.ranges == ["bytes=1000-"]
    assert (served / "split/time/test.csv.gz").is_file()


def test_a_file_that_changed_meanwhile_is_fetched_anew(server: Server, context: StageContext, served: Path) -> None:
    part = served.with_name(".download") / f"{file_name(server.url)}.part"
    part.write_bytes(b"x" * 500)
    with pytest.raises(DataError, match=r"damaged .* and was removed; run again"):
        fetch(server, served, context)
    fetch(server, served, context)
    assert (served / "raw").is_dir()


def test_an_archive_of_another_address_is_not_taken_for_this_one(
    server: Server, context: StageContext, served: Path, tmp_path: Path
) -> None:
    """A newer release of a data set has another address, and the same folder."""
    older = archive(tmp_path / "source", "older")
    for name in ("ogbn_arxiv.zip", f"{file_name(server.url + '?v=1')}.zip"):
        (served.with_name(".download") / name).write_bytes(older)
    fetch(server, served, context)
    assert server.ranges == [None]
    assert (served / "raw").is_dir()


def test_members_of_an_archive_stay_in_its_folder(server: Server, context: StageContext, tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("arxiv/raw/edge.csv", "0,1\n")
        for name in ("../../../escape", "/tmp/graphmill-escape", "arxiv/../../../../escape"):
            file.writestr(name, "escaped")
        link = zipfile.ZipInfo("arxiv/split")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc")
    server.content = data.getvalue()
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    fetch(server, tmp_path / "root" / "ogbn_arxiv", context)
    made = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert all(path.is_relative_to(tmp_path / "root/ogbn_arxiv") for path in made)
    assert not (tmp_path / "root/ogbn_arxiv/split").is_symlink()
    assert not Path("/tmp/graphmill-escape").exists()


def test_a_server_that_sends_nothing(server: Server, context: StageContext, tmp_path: Path) -> None:
    server.content = b"y"
    server.breaks = 100
    with pytest.raises(DataError, match="what came is kept"):
        fetch(server, tmp_path / "root" / "ogbn_arxiv", context)
    assert len(server.ranges) == 6
    assert not (tmp_path / "root/ogbn_arxiv").exists()


def archive_of(*names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name in names:
            file.writestr(name, b"x")
    return content.getvalue()


def test_damaged_archives_and_errors(
    server: Server, context: StageContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_folder(tmp_path / "source")
    whole = archive(tmp_path / "source")
    target = tmp_path / "root" / "ogbn_arxiv"
    for content in (b"not a zip", whole[:-500], whole.replace(b"\x1f\x8b", b"\x1f\x8c", 1)):
        server.content = content
        with pytest.raises(DataError, match="damaged"):
            fetch(server, target, context)
        assert not target.exists()
    server.content = archive_of("arxiv/" + "a" * 300)
    with pytest.raises(DataError, match=r"damaged .*File name too long"):
        fetch(server, target, context)
    monkeypatch.setattr(download, "_MAX_MEMBERS", 2)
    server.content = archive_of("arxiv/1", "arxiv/2", "arxiv/3")
    with pytest.raises(DataError, match=r"damaged .it lists 3 files"):
        fetch(server, target, context)
    monkeypatch.undo()
    server.content = archive_of()
    with pytest.raises(DataError, match="no folder 'arxiv'; it has nothing"):
        fetch(server, target, context)
    shutil.rmtree(tmp_path / "root")
    server.content = whole
    with pytest.raises(DataError, match="no folder 'products'; it has arxiv"):
        download_archive(server.url, target, "products", context, first_wait_seconds=0.01)
    shutil.rmtree(tmp_path / "root")
    server.status = 404
    with pytest.raises(DataError, match="answers 404"):
        fetch(server, target, context)
    assert not target.exists()


def test_ingest_downloads_once(server: Server, ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node_folder(tmp_path / "source", num_nodes=40, num_classes=40)
    server.content = archive(tmp_path / "source")
    listed = ogb_meta.listed_meta("ogbn-arxiv")
    local = OgbMeta(**{**vars(listed), "url": server.url})
    monkeypatch.setattr("tasks.ingest.ogb.dataset.listed_meta", lambda name: local)
    first = ingest(name="ogb", dataset="ogbn-arxiv", root=str(tmp_path / "root"))
    again = ingest(name="ogb", dataset="ogbn-arxiv", root=str(tmp_path / "root"))
    assert first.folder == again.folder
    assert len(server.ranges) == 1
    assert first.manifest.num_nodes == 40
    # A file that its user changes is no longer what OGB has.
    (tmp_path / "root/ogbn_arxiv/raw/node_year.csv.gz").unlink()
    changed = ingest(name="ogb", dataset="ogbn-arxiv", root=str(tmp_path / "root"))
    assert changed.folder != first.folder
    assert "time" not in changed.table("nodes/node").columns
