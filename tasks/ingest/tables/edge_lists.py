"""Edge lists: numbers by our own parser, other words as texts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array
from tasks.readers.columns import check_columns, to_int64
from tasks.readers.csv_tables import as_texts, open_table, read_rows
from tasks.readers.limits import MAX_CELL_BYTES, MAX_ROW_BYTES
from tasks.readers.numbers.reader import NumberReader, comment_mark, count_columns
from tasks.readers.streams import NO_DELIMITER


@dataclass(frozen=True)
class EdgeList:
    """Lines of cells without names, `#` or `%` comments and blank lines skipped; columns are `0`, `1`, ..."""

    path: Path
    delimiter: str
    """The empty text: runs of blanks."""
    missing_values: tuple[str, ...]
    whole_lines: bool
    """Whether a line is one cell."""

    def read(self, wanted: list[str], texts: Sequence[str], numbers: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read lines of numbers by our own parser as far as it goes, others as texts."""
        done = 0
        # An empty number, or a word that stands for one, is a matter of policies; the parser knows none.
        if not texts and not (numbers and (self.delimiter or set(self.missing_values) - {""})):
            try:
                for batch in _read_number_list(self.path, wanted, self.delimiter, numbers):
                    yield batch
                    done += batch.num_rows
                return
            except DataError as error:
                if error.column is None or str(error.column) in numbers:
                    raise
                if str(error.column) in wanted:
                    hint = "; dataset.text_ids=true reads ids as texts" if "is not an integer" in str(error) else ""
                    raise DataError(f"{error}{hint}", column=error.column) from None
                # A column that nobody asked for may hold anything: go on behind the rows that were good.
        lines = _TextList(self.path, wanted, self.delimiter, whole_lines=self.whole_lines)
        for batch in lines.batches():
            skipped, done = min(done, batch.num_rows), done - min(done, batch.num_rows)
            if skipped < batch.num_rows:
                yield lines.convert(batch.slice(skipped), texts, numbers, self.missing_values)


def _read_number_list(
    path: Path, wanted: list[str], delimiter: str, numbers: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Lines of numbers, `#` or `%` comments skipped: integers unless a weight asks for more."""
    dtype = np.float64 if numbers else np.int64
    reader = NumberReader(path, dtype, delimiter=delimiter, comment=comment_mark(path))
    row = 0
    for chunk in reader:
        check_columns(path, wanted, [str(i) for i in range(chunk.shape[1])])
        arrays = []
        for name in wanted:
            values = np.ascontiguousarray(chunk[:, int(name)])
            if name not in numbers and values.dtype.kind == "f":
                values = _whole(path, values, row, name)
            arrays.append(pa.array(values))
        yield pa.RecordBatch.from_arrays(arrays, names=wanted)
        row += len(chunk)
    if row == 0:
        raise DataError("is empty", path=path)


class _TextList:
    """Lines whose cells are texts, `#` or `%` comments and blank lines skipped."""

    def __init__(self, path: Path, wanted: list[str], delimiter: str, *, whole_lines: bool) -> None:
        """`delimiter` "": runs of blanks; `whole_lines`: a line is a cell."""
        self.path, self.wanted, self.delimiter, self.whole_lines = path, wanted, delimiter, whole_lines
        self.width = 1 if whole_lines else count_columns(path, delimiter)
        self._row = 0
        if self.width == 0:
            raise DataError("is empty", path=path)
        check_columns(path, wanted, [str(i) for i in range(self.width)])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the wanted columns as texts. Raises DataError for a line with another number of cells."""
        mark = f"^{comment_mark(self.path)}" + (r"(\s|$)" if self.whole_lines else "")  # `#topic` may be an id
        with open_table(self.path, NO_DELIMITER, False) as (names, stream):
            text = as_texts(["0"])
            most = MAX_ROW_BYTES if self.whole_lines else MAX_CELL_BYTES
            for data in read_rows(self.path, names, stream, NO_DELIMITER, text, quotes=False, most_bytes=most):
                lines = data.column(0)
                # Blanks between delimiters are a cell.
                seen = lines if self.delimiter else compute.utf8_trim_whitespace(lines)
                skipped = compute.or_(compute.match_substring_regex(seen, mark), compute.equal(seen, ""))
                yield self._cells(lines.filter(compute.invert(skipped)))

    def _cells(self, lines: pa.Array) -> pa.RecordBatch:
        """Return the wanted columns of some lines."""
        if self.whole_lines:
            self._row += len(lines)
            return pa.RecordBatch.from_arrays([lines], names=self.wanted)
        if self.delimiter:
            words = compute.split_pattern(lines, self.delimiter)
        else:
            words = compute.utf8_split_whitespace(compute.utf8_trim_whitespace(lines))
        lengths = np.asarray(compute.list_value_length(words))
        ragged = np.flatnonzero(lengths != self.width)
        if len(ragged):
            bad = int(ragged[0])
            raise DataError(
                f"the row has {lengths[bad]} columns, the others have {self.width}", path=self.path, row=self._row + bad
            )
        cells = words.flatten()
        if self.delimiter:
            cells = compute.utf8_trim_whitespace(cells)
            self._refuse_quotes(cells)
        places = (np.arange(int(name), len(cells), self.width) for name in self.wanted)
        arrays = [cells.take(pa.array(found)) for found in places]
        self._row += len(lines)
        return pa.RecordBatch.from_arrays(arrays, names=self.wanted)

    def _refuse_quotes(self, cells: pa.Array) -> None:
        quoted = np.flatnonzero(np.asarray(compute.starts_with(cells, '"')))
        if len(quoted):
            row, column = divmod(int(quoted[0]), self.width)
            raise DataError(
                f"{cells[int(quoted[0])].as_py()[:40]!r} begins with a quote, and edge lists have none; read the file "
                "as a CSV: format: csv, header: false",
                path=self.path,
                row=self._row + row,
                column=column,
            )

    def convert(
        self, batch: pa.RecordBatch, texts: Sequence[str], numbers: Sequence[str], missing: Sequence[str]
    ) -> pa.RecordBatch:
        """Return a batch with `numbers` as float64; others but `texts` are integers where all cells are.

        Raises:
            DataError: a cell of `numbers` is none, or the first line holds names.
        """
        arrays = []
        for name, cells in zip(batch.schema.names, batch.columns, strict=True):
            if name in texts:
                arrays.append(cells)
                continue
            known = compute.if_else(compute.is_in(cells, pa.array(list(missing), pa.string())), None, cells)
            try:
                arrays.append(known.cast(pa.float64()) if name in numbers else to_int64(known))
            except pa.ArrowInvalid as error:
                self._refuse_names(batch, name, known)
                if name in numbers:
                    raise DataError(f"holds a cell that is no number ({error})", path=self.path, column=name) from error
                arrays.append(cells)
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _refuse_names(self, batch: pa.RecordBatch, column: str, cells: pa.Array) -> None:
        """Refuse a first line that holds no number where all others do."""
        if self._row != batch.num_rows or len(cells) < 2:
            return
        with contextlib.suppress(pa.ArrowInvalid):
            cells.slice(1).cast(pa.float64())
            raise DataError(
                f"{cells[0].as_py()[:40]!r} stands over numbers; if the first line names the columns, begin it with # "
                "or say format: csv",
                path=self.path,
                row=0,
                column=column,
            )


def _whole(path: Path, values: Array, first_row: int, column: str) -> Array:
    """Return numbers that were read as float64 as int64. Raises DataError where that would change one."""
    wrong = np.flatnonzero((values != np.floor(values)) | (np.abs(values) >= 2**53))
    if len(wrong):
        bad = int(wrong[0])
        why = "is not an integer"
        if abs(values[bad]) >= 2**53:
            why = "is 2^53 or more, where numbers beside fractions are not exact; store the table as CSV or Parquet"
        raise DataError(f"{values[bad]:.17g} {why}", path=path, row=first_row + bad, column=column)
    return values.astype(np.int64)
