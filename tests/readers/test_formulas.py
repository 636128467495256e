"""Cells that a spreadsheet would run: written behind an apostrophe by all that write CSV, read back as they were."""

from __future__ import annotations

import ast
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pytest

from tasks.ingest.tables.files import TableFiles
from tasks.readers.formulas import guarded, unguarded, unguarded_name

TEXTS = [
    "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\rx", "\n=1", "\uff1d1", "'=1", "''@x", "'", "'plain",
    "-", "-5", "+3.5", "-1e-7", ".5", "plain", "a=b", "", "-5 ",
]  # fmt: skip
NUMBERS = {"-5", "+3.5", "-1e-7", ".5"}


def test_texts_and_names_come_back(tmp_path: Path) -> None:
    table = pa.table({"=name": TEXTS, "n": pa.array(range(-5, len(TEXTS) - 5)), "f": [-0.5] * len(TEXTS)})
    safe = guarded(table)
    assert safe.column("n") == table.column("n")
    assert safe.schema.names == ["'=name", "n", "f"]
    written = safe.column(0).to_pylist()
    assert not [text for text in written if text[:1] in "=+-@\t\r\n\uff1d" and text and text not in NUMBERS]
    assert set(written) >= NUMBERS
    assert unguarded(safe.column(0).combine_chunks()).to_pylist() == TEXTS
    assert unguarded_name("'=name") == "=name"
    pc.write_csv(safe, tmp_path / "t.csv")
    files = TableFiles((f"{tmp_path}/t.csv",), missing_values=())
    assert files.column_names() == ["=name", "n", "f"]
    read = pa.Table.from_batches([batch.data for batch in files.batches(["=name", "n", "f"], ["=name"])])
    assert read.to_pydict() == table.to_pydict()


@pytest.mark.parametrize("folder", ["configs", "flows", "models", "tasks"])
def test_whatever_writes_csv_guards_it(folder: str) -> None:
    for path in Path(folder).rglob("*.py"):
        source = path.read_text()
        names = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
        writes = names & {"CSVWriter", "write_csv", "to_csv", "DictWriter"} or "csv.writer" in source
        assert not writes or "guarded(" in source, f"{path} writes CSV without `guarded`"
