"""Round decimal digits and a power of ten to the nearest double, ties to even.

Digits and power that are both exact in a double take one multiplication or division (Clinger: How to read floating
point numbers accurately, PLDI 1990); others go through 128-bit powers of five (Lemire: Number parsing at a gigabyte
per second, Software: Practice and Experience 51, 2021).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

_MIN_POWER, _MAX_POWER = -342, 308
_EXACT_POWERS = np.array([10.0**k for k in range(23)])


def _powers_of_five() -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the upper and lower 64 bits of 5^q, scaled to 128 bits, for q in -342..308 (Lemire 2021, section 5)."""
    values = []
    for q in range(_MIN_POWER, _MAX_POWER + 1):
        power = 5 ** abs(q)
        if q >= 0:
            value = power << 128 >> power.bit_length()
        else:
            width = (power - 1).bit_length()
            shift = width + 127 if q >= -27 else 2 * width + 128
            value = (1 << shift) // power + 1
            value >>= max(0, value.bit_length() - 128)
        values.append(value)
    high = np.array([v >> 64 for v in values], np.uint64)
    low = np.array([v & 0xFFFFFFFFFFFFFFFF for v in values], np.uint64)
    return high, low


_FIVE_HIGH, _FIVE_LOW = _powers_of_five()


@njit(cache=True, nogil=True)
def _multiply(a, b):  # type: ignore[no-untyped-def]
    """Return the upper and lower half of a 64 x 64 bit product."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & mask, a >> half, b & mask, b >> half
    low = a0 * b0
    middle = a1 * b0 + (low >> half)
    other = a0 * b1 + (middle & mask)
    return a1 * b1 + (middle >> half) + (other >> half), (other << half) | (low & mask)


@njit(cache=True, nogil=True)
def _leading_zeros(x):  # type: ignore[no-untyped-def]
    count = 0
    for step in (32, 16, 8, 4, 2, 1):
        if x >> np.uint64(64 - step) == np.uint64(0):
            x <<= np.uint64(step)
            count += step
    return count


@njit(cache=True, nogil=True)
def round_decimal(digits, power):  # type: ignore[no-untyped-def]
    """Return (digits * 10^power as the nearest double, whether that is certain); digits is uint64."""
    if digits == np.uint64(0) or power < _MIN_POWER:
        return 0.0, True
    if power > _MAX_POWER:
        return np.inf, True
    zeros = _leading_zeros(digits)
    scaled = digits << np.uint64(zeros)
    high, low = _multiply(scaled, _FIVE_HIGH[power - _MIN_POWER])
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):  # the bits below could carry
        carry, _ = _multiply(scaled, _FIVE_LOW[power - _MIN_POWER])
        low += carry
        if carry > low:
            high += np.uint64(1)
    upper = high >> np.uint64(63)
    shift = upper + np.uint64(9)
    mantissa = high >> shift
    exponent = ((217706 * power) >> 16) + 63 + np.int64(upper) - zeros + 1023
    if exponent <= 0 or (low == np.uint64(0xFFFFFFFFFFFFFFFF) and (power < -27 or power > 55)):
        return 0.0, False
    half_way = low <= np.uint64(1) and -4 <= power <= 23 and mantissa & np.uint64(3) == np.uint64(1)
    if half_way and mantissa << shift == high:
        mantissa &= ~np.uint64(1)
    mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    if mantissa >= np.uint64(1 << 53):
        mantissa = np.uint64(1 << 52)
        exponent += 1
    if exponent >= 2047:
        return np.inf, True
    word = np.uint64((np.uint64(exponent) << np.uint64(52)) | (mantissa & np.uint64((1 << 52) - 1)))
    return np.uint64(word).view(np.float64), True


@njit(cache=True, nogil=True)
def to_double(digits, power, cut):  # type: ignore[no-untyped-def]
    """Return (the nearest double, whether that is certain)."""
    if not cut and digits <= np.uint64(1 << 53) and -22 <= power <= 22:
        value = np.float64(digits)
        return (value / _EXACT_POWERS[-power] if power < 0 else value * _EXACT_POWERS[power]), True
    value, certain = round_decimal(digits, power)
    if certain and cut:  # digits were cut off: the truth lies between these two
        above, certain = round_decimal(digits + np.uint64(1), power)
        certain = certain and above == value
    return value, certain
