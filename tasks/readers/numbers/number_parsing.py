"""Parse integers and decimal floats from bytes: exactly, with the position of the first bad cell.

Floats are rounded as `float()` rounds; the few that `decimal_rounding` cannot decide (subnormals, more than 19 digits
near a tie) are handed back to the caller, who asks Python.
"""

# ruff: noqa: SIM109, SIM114 -- tests of one byte against a tuple are slower in compiled code

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tasks.readers.numbers.decimal_rounding import to_double
from tasks.readers.numbers.text_words import (
    POWERS_OF_TEN,
    bytes_outside,
    count_bits,
    digits_value,
    load_word,
    read_digits,
    trailing_zeros,
)

# What stopped a kernel.
DONE, BAD_NUMBER, TOO_FEW, TOO_MANY, EMPTY_CELL, NOT_FINITE, OVERFLOW, SLOW_FULL = range(8)

PADDING = 64  # bytes that a kernel may read beyond the last line
_MAX_DIGITS_INT64 = 19  # as uint64 they do not wrap
_NEWLINE, _RETURN, _MINUS, _PLUS, _DOT, _ZERO, _SPACE, _TAB = 10, 13, 45, 43, 46, 48, 32, 9


@njit(cache=True, nogil=True)
def _end_of_cell(buf, i, last, delimiter):  # type: ignore[no-untyped-def]
    """Step over what ends a cell; `delimiter` 0 is a run of blanks. Return (next position, what stopped)."""
    c = buf[i]
    if delimiter == 0:
        while c == _SPACE or c == _TAB:
            i += 1
            c = buf[i]
        if not last and c != _NEWLINE and c != _RETURN and (buf[i - 1] == _SPACE or buf[i - 1] == _TAB):
            return i, DONE
    elif not last and c == delimiter:
        return i + 1, DONE
    if c == _RETURN and buf[i + 1] == _NEWLINE:
        i += 1
        c = np.uint8(_NEWLINE)
    if c == _NEWLINE:
        return i + 1, (DONE if last else TOO_FEW)
    if last and (c == delimiter or (delimiter == 0 and (buf[i - 1] == _SPACE or buf[i - 1] == _TAB))):
        return i, TOO_MANY
    return i, BAD_NUMBER


@njit(cache=True, nogil=True)
def _skip_lines(buf, i, end, comment, delimiter):  # type: ignore[no-untyped-def]
    """Step over blank lines and comments (`comment` 0: none), and over blanks before the first cell."""
    while i < end:
        if delimiter == 0:
            while buf[i] == _SPACE or buf[i] == _TAB:
                i += 1
        c = buf[i]
        if c == _NEWLINE:
            i += 1
        elif c == _RETURN and buf[i + 1] == _NEWLINE:
            i += 2
        elif comment != 0 and c == comment:
            while buf[i] != _NEWLINE:
                i += 1
            i += 1
        else:
            break
    return i


@njit(cache=True, nogil=True)
def count_lines(buf, start, end):  # type: ignore[no-untyped-def]
    """Return the number of newlines in buf[start:end], of which `PADDING` bytes more can be read.

    (`bytes.count` takes longer for short lines than parsing them does.)
    """
    lines = end - start
    for block in range(start, end, 64):
        others: Any = bytes_outside(buf, block, _NEWLINE, 0)  # type: ignore[call-arg]
        if end - block < 64:
            others &= (np.uint64(1) << np.uint64(end - block)) - np.uint64(1)
        lines -= np.int64(count_bits(others))
    return lines


@njit(cache=True, nogil=True)
def _parse_plain_lines(buf, start, end, out, row, delimiter):  # type: ignore[no-untyped-def]
    """Parse lines as long as they hold nothing but cells of 1 to 16 digits that fit, one delimiter between two.

    The separators of 64 bytes are found at once, so that no cell waits for the length of the one before.
    Return (next row, its first byte): `end`, or a line that needs a closer look.
    """
    columns = out.shape[1]
    limit = np.uint64(2147483647) if out.itemsize == 4 else np.uint64(0x7FFFFFFFFFFFFFFF)
    line = cell = block = start
    column = 0
    while block < end:
        others: Any = bytes_outside(buf, block, _ZERO, 9)  # type: ignore[call-arg]
        if end - block < 64:
            others &= (np.uint64(1) << np.uint64(end - block)) - np.uint64(1)
        while others != np.uint64(0):
            stop = block + np.int64(trailing_zeros(others))
            others &= others - np.uint64(1)
            length = stop - cell
            if length < 1 or length > 16:
                return row, line
            if length <= 8:
                value = digits_value(load_word(buf, cell), length)
            else:
                upper = digits_value(load_word(buf, cell), 8)
                lower = digits_value(load_word(buf, cell + 8), length - 8)
                value = upper * POWERS_OF_TEN[length - 8] + lower
            if value > limit:
                return row, line
            out[row, column] = value
            cell = stop + 1
            c = buf[stop]
            if column + 1 < columns:
                if c != delimiter and (delimiter != 0 or (c != _SPACE and c != _TAB)):
                    return row, line
                column += 1
            else:
                if c != _NEWLINE:
                    return row, line
                column = 0
                row += 1
                line = cell
        block += 64
    return row, line


@njit(cache=True, nogil=True)
def _parse_line(buf, i, out, row, delimiter):  # type: ignore[no-untyped-def]
    """Parse one line, whatever it holds. Return (next line or the cell that stopped it, column, what stopped it)."""
    columns = out.shape[1]
    limit = np.uint64(2147483647) if out.itemsize == 4 else np.uint64(0x7FFFFFFFFFFFFFFF)
    for column in range(columns):
        cell = i
        negative = buf[i] == _MINUS
        if negative:
            i += 1
        first = i
        i, digits = read_digits(buf, i)
        if i == first:
            blank = buf[i] == delimiter or buf[i] == _NEWLINE or buf[i] == _RETURN
            return cell, column, EMPTY_CELL if blank and not negative else BAD_NUMBER
        if i - first > _MAX_DIGITS_INT64 or digits > limit:
            return cell, column, OVERFLOW
        value = np.int64(digits)
        out[row, column] = -value if negative else value
        if column + 1 < columns and buf[i] == delimiter and delimiter != 0:
            i += 1
        elif column + 1 == columns and buf[i] == _NEWLINE:
            i += 1
        else:
            i, code = _end_of_cell(buf, i, column + 1 == columns, delimiter)
            if code != DONE:
                return cell, column, code
    return i, 0, DONE


@njit(cache=True, nogil=True)
def parse_ints(buf, start, end, out, delimiter, comment):  # type: ignore[no-untyped-def]
    """Parse lines buf[start:end], the last byte a newline, into rows of `out` (rows, columns), int32 or int64.

    `buf` has at least `PADDING` bytes after `end`, whatever they hold.

    Return (rows, columns of a row that was not finished, position of the cell that stopped it, what stopped it).
    """
    row, i = 0, start
    while i < end:
        row, i = _parse_plain_lines(buf, i, end, out, row, delimiter)
        i = _skip_lines(buf, i, end, comment, delimiter)
        if i < end:
            i, column, code = _parse_line(buf, i, out, row, delimiter)
            if code != DONE:
                return row, column, i, code
            row += 1
    return row, 0, end, DONE


@njit(cache=True, nogil=True)
def _read_decimal(buf, i):  # type: ignore[no-untyped-def]
    """Read [digits][.digits][e[+-]digits] at i; return (position, digits, power of ten, cut off, whether valid)."""
    digits, power, count, seen, cut = np.uint64(0), np.int64(0), 0, 0, False
    point = False
    while True:
        c = buf[i]
        digit = np.uint8(c - np.uint8(_ZERO))
        if digit <= 9:
            seen += 1
            if count < 19:
                digits = digits * np.uint64(10) + np.uint64(digit)
                count += digits != np.uint64(0)
                power -= point
            else:
                cut |= digit != 0
                power += not point
        elif c == _DOT and not point:
            point = True
        else:
            break
        i += 1
    if seen == 0:
        return i, digits, power, cut, False
    if buf[i] | 32 == 101:  # e or E
        i += 1
        negative = buf[i] == _MINUS
        if negative or buf[i] == _PLUS:
            i += 1
        first, exponent = i, np.int64(0)
        while np.uint8(buf[i] - np.uint8(_ZERO)) <= 9:
            exponent = min(exponent * 10 + np.int64(buf[i] - np.uint8(_ZERO)), np.int64(100000))
            i += 1
        if i == first:
            return i, digits, power, cut, False
        power += -exponent if negative else exponent
    return i, digits, power, cut, True


@njit(cache=True, nogil=True)
def parse_floats(buf, start, end, out, delimiter, comment, missing, slow):  # type: ignore[no-untyped-def]
    """Parse lines buf[start:end], the last byte a newline, into rows of `out` (rows, columns), float32 or float64.

    `missing`: take empty cells and `nan` as NaN instead of stopping. `slow` (n, 3) int64 receives row, column and
    position of cells that the caller must parse. Return (rows, columns of an unfinished row, position, what stopped
    it, number of slow cells).
    """
    columns, num_slow = out.shape[1], 0
    limit = 3.4028235677973366e38 if out.itemsize == 4 else 1.7976931348623157e308
    row, i = 0, _skip_lines(buf, start, end, comment, delimiter)
    while i < end:
        for column in range(columns):
            cell = i
            negative = buf[i] == _MINUS
            if negative or buf[i] == _PLUS:
                i += 1
            at, digits, power, cut, valid = _read_decimal(buf, i)
            if valid:
                i = at
                value, certain = to_double(digits, power, cut)
                if not certain:
                    if num_slow == len(slow):
                        return row, column, cell, SLOW_FULL, num_slow
                    slow[num_slow, 0], slow[num_slow, 1], slow[num_slow, 2] = row, column, cell
                    num_slow += 1
                elif value > limit or (out.itemsize == 4 and value == limit):
                    return row, column, cell, OVERFLOW, num_slow
                out[row, column] = -value if negative else value
            else:
                i, code = _no_number(buf, i, cell, delimiter)
                if code == BAD_NUMBER or not missing or (code == NOT_FINITE and buf[i - 1] | 32 != 110):
                    return row, column, cell, code, num_slow
                out[row, column] = np.nan
            if column + 1 < columns and buf[i] == delimiter and delimiter != 0:
                i += 1
            elif column + 1 == columns and buf[i] == _NEWLINE:
                i += 1
            else:
                i, code = _end_of_cell(buf, i, column + 1 == columns, delimiter)
                if code != DONE:
                    return row, column, cell, code, num_slow
        row += 1
        if buf[i] < 48 and not (missing and columns == 1):
            i = _skip_lines(buf, i, end, comment, delimiter)
    return row, 0, end, DONE, num_slow


@njit(cache=True, nogil=True)
def _no_number(buf, i, cell, delimiter):  # type: ignore[no-untyped-def]
    """Tell what stands where a number should: return (position after it, EMPTY_CELL, NOT_FINITE or BAD_NUMBER)."""
    c = buf[i]
    if i == cell and (c == delimiter or c == _NEWLINE or c == _RETURN):
        return i, EMPTY_CELL
    first, second, third = buf[i] | 32, np.uint8(0), np.uint8(0)
    if buf[i] != _NEWLINE:
        second = buf[i + 1] | 32
        if buf[i + 1] != _NEWLINE:
            third = buf[i + 2] | 32
    if first == 110 and second == 97 and third == 110:  # nan
        return i + 3, NOT_FINITE
    if first == 105 and second == 110 and third == 102:  # inf, infinity
        i += 3
        while (buf[i] | 32) >= 97 and (buf[i] | 32) <= 122:
            i += 1
        return i, NOT_FINITE
    return i, BAD_NUMBER
