"""What the fuzz tests let the child process do; each returns what JSON can say."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np


def prepare() -> None:
    """Import and compile what would otherwise count as an input's memory and time."""
    import scipy.sparse  # noqa: F401

    import tasks.ingest.edges
    import tasks.ingest.writer  # noqa: F401
    from tasks.ingest.ids.id_index import IdIndex
    from tasks.readers.numbers import read_numbers
    from tests.fuzz.tables import write_small

    def read(path: Path) -> None:
        for dtype in (np.int32, np.int64, np.float32, np.float64):
            read_numbers(path, dtype)

    write_small(Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp"), read)
    assert IdIndex


def table(
    path: str,
    texts: list[str],
    numbers: list[str],
    header: bool = True,
    columns: list[str] | None = None,
    delimiter: str | None = None,
) -> Any:
    """Return the rows of a table, cells as plain values."""
    from tasks.ingest.tables.files import TableFiles

    files = TableFiles((path,), header=header, delimiter=delimiter)
    found: list[list[Any]] = []
    wanted = columns if columns is not None else files.column_names()
    for batch in files.batches(wanted, texts, numbers):
        assert batch.first_row == len(found)
        if len(found) < 10_000:
            cells = [batch.column(name).to_pylist() for name in wanted]
            found += [list(row) for row in zip(*cells, strict=True)]
    return repr(found) if len(str(found)) < 100_000 else len(found)


def statements(path: str) -> Any:
    """Return the triples of a file of N-Triples."""
    from tasks.readers.ntriples import read_ntriples

    found: list[list[str]] = []
    for part in read_ntriples(Path(path), literals=True):
        found += [list(row.values()) for row in part.terms.to_pylist()]
    return repr(found)


def raw_numbers(path: str, kind: str, missing: bool) -> Any:
    """Return the numbers of a file in OGB's layout."""
    from tasks.readers.numbers import number_chunks

    chunks = number_chunks(Path(path), np.dtype(kind), missing=missing)
    return repr([row for chunk in chunks for row in chunk.tolist()][:1000])


def words(path: str) -> Any:
    """Return a small file of words."""
    from tasks.readers.streams import read_words

    return repr(read_words(Path(path))[:1000])


def id_map(path: str) -> Any:
    """Return an id map in OGB's layout."""
    from tasks.ingest.ogb.splits import read_text_table

    return repr(read_text_table(Path(path), 1000).to_pylist()[:1000])


def array(path: str, member: str | None = None) -> Any:
    """Return an array, read as a whole and in chunks."""
    from tasks.ingest.raw_rows import NpyRows
    from tasks.readers.arrays.npy import NpyFile

    whole = NpyFile(Path(path), member).read()
    chunks = list(NpyRows(Path(path), member).chunks(np.float64))
    rows = np.concatenate(chunks) if chunks else np.empty((0, 1))
    assert np.array_equal(rows.ravel(), whole.astype(np.float64).ravel())
    return repr(whole.tolist())


def torch_file(path: str) -> Any:
    """Return a file of torch.save, and its entries as link splits read them."""
    from tasks.ingest.ogb.splits import as_array
    from tasks.readers.arrays.torch_files import load_torch

    loaded = load_torch(Path(path))
    names = sorted(name for name in loaded if isinstance(name, str)) if isinstance(loaded, dict) else [""]
    return repr({name: as_array(loaded, name, Path(path)).tolist() for name in names[:20]})


def vectors(path: str) -> Any:
    """Return the nearest of the first row of a file of vectors."""
    from tasks.apply.vector_files.reader import VectorFile

    file = VectorFile(Path(path))
    return repr([(ids.to_pylist(), rows.tolist()) for _, ids, rows in file.chunks()])


def matlab(path: str) -> Any:
    """Return where the matrices of a graph have numbers; the data set is made of them too."""
    import tempfile
    from types import SimpleNamespace

    from tasks.ingest.configs import MatConfig
    from tasks.ingest.mat import Mat
    from tasks.readers.arrays.matlab import read_matrices

    found = read_matrices(Path(path), ["network", "group"])
    with tempfile.TemporaryDirectory(dir=".") as folder:
        context: Any = SimpleNamespace(work=Path(folder))
        Mat(MatConfig(name="mat", path=path)).ingest(context)
    entries = {name: matrix.tocoo() for name, matrix in found.items()}
    return repr({name: (one.shape, np.stack([one.col, one.row], 1).tolist()) for name, one in entries.items()})


def prepare_data_sets() -> None:
    """Import what reads data sets; from then on the home is all that may be written, and the network is closed."""
    import importlib

    from configs.registry import DATASETS
    from tests.fuzz.confined import confine

    for module in ("duckdb", "deltalake", "pyiceberg.catalog.sql", "tasks.readers.table_formats.iceberg_catalog"):
        with suppress(ModuleNotFoundError):  # an extra
            importlib.import_module(module)
    for module in ("apply.given", "apply.completion.names", "ingest.database.proposal.recipe", "preprocess.build"):
        importlib.import_module(f"tasks.{module}")
    importlib.import_module("flows.commands.recipes.data_check")
    for name in DATASETS.names():
        DATASETS.get(name)
    logging.disable(logging.WARNING)
    confine(Path(), (Path("../home"),))


def dataset(section: Any, model: str) -> Any:
    """Check a data set, as `graphmill check` does; returns how many nodes and edges it has."""
    from configs.errors import DataError
    from configs.load import build_recipe
    from flows.commands.recipes.data_check import check_data
    from tasks.ingest.stage import STAGE
    from tasks.readers.table_formats.opened import OPENED
    from tasks.stage import Listener
    from tasks.storage.home import Home
    from tasks.storage.home_files.source_digests import SourceDigests

    OPENED.clear()
    recipe = build_recipe({"name": "fuzz", "dataset": section, "model": {"name": model}})
    home = Home.open("../home")
    STAGE.key_content(recipe, SourceDigests(home, lambda *_: None))
    found = check_data(recipe, home, Listener())
    if found.mistakes:
        raise DataError("\n".join(one["message"] for one in found.mistakes))
    return repr((found.nodes, found.edges))


def proposal() -> Any:
    """Propose a recipe of the tables in the folder; it must be YAML that names them as they are."""
    import yaml

    from tasks.ingest.database.proposal.recipe import propose_recipe
    from tasks.ingest.database.table_configs import DatabaseTableConfig

    text = propose_recipe(["."])
    for name, table in yaml.safe_load(text)["dataset"]["tables"].items():
        assert isinstance(name, str), name
        DatabaseTableConfig(**table)
    return text


def given() -> Any:
    """Read each file as ids, pairs, rows and queries; raise a refusal that does not name it."""
    from configs.errors import UserError
    from tasks.apply.completion.names import read_queries
    from tasks.apply.given import read_ids, read_rows

    results: list[str] = []
    for path in sorted(Path().iterdir()):
        for read in (
            lambda path: read_ids(path, {"id": True}),
            lambda path: read_ids(path, {"id": False}),
            lambda path: read_ids(path, {"source": True, "target": True}),
            lambda path: read_ids(path, {"source": False, "target": True}),
            lambda path: read_rows(path, "row"),
            lambda path: read_rows(path, "source_row"),
            read_queries,
        ):
            try:
                results.append(repr(read(path))[:200])
            except UserError as error:
                results.append(type(error).__name__)
                if path.name not in str(error):
                    raise
    return results


def description(path: str) -> Any:
    """Return a description in JSON."""
    from configs.source_files import read_json

    return repr(read_json(Path(path)))[:1000]


def take(size: int) -> int:
    """Ask for memory: what the judge must notice."""
    return len(bytes(size))


def wait(seconds: float) -> None:
    """Take time: what the judge must notice."""
    import time

    time.sleep(seconds)
