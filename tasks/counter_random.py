"""Random numbers by counter: number i of stream s under a seed, computed on its own.

A chunk of a huge graph can be made (or made again) without the chunks before it, in any order and on any core.
The generator is SplitMix64's finaliser (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA
2014) over seed, stream and counter. `permute` is a bijection on 0..n-1 in constant memory: a Feistel network with
cycle walking (Black, Rogaway: Ciphers with Arbitrary Finite Domains, CT-RSA 2002).
"""

from __future__ import annotations

import numpy as np
from numba import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: what SplitMix64 adds from number to number."""
_ROUNDS = 4


@njit(cache=True, nogil=True)
def mix(x):  # type: ignore[no-untyped-def]
    """SplitMix64's finaliser: uint64 to uint64, every input bit moves every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def bits(seed, stream, counter):  # type: ignore[no-untyped-def]
    """Return 64 random bits: number `counter` of `stream` under `seed` (integers >= 0)."""
    key = mix(mix(np.uint64(seed) + GOLDEN) + (np.uint64(stream) + np.uint64(1)) * GOLDEN)
    return mix(key + (np.uint64(counter) + np.uint64(1)) * GOLDEN)


@njit(cache=True, nogil=True)
def uniform(seed, stream, counter):  # type: ignore[no-untyped-def]
    """Return a float64 in [0, 1)."""
    return np.float64(bits(seed, stream, counter) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def below(seed, stream, counter, limit):  # type: ignore[no-untyped-def]
    """Return an int64 in 0..limit-1."""
    return min(np.int64(uniform(seed, stream, counter) * limit), np.int64(limit) - np.int64(1))


@njit(cache=True, nogil=True)
def half_bits(n):  # type: ignore[no-untyped-def]
    """Return half of the bits of the numbers that `permute` mixes for n of them."""
    half = 1
    while np.int64(1) << np.int64(2 * half) < n:
        half += 1
    return half


@njit(cache=True, nogil=True)
def permute(seed, n, i):  # type: ignore[no-untyped-def]
    """Return the image of `i` under a random bijection on 0..n-1."""
    half = np.uint64(half_bits(n))
    mask = (np.uint64(1) << half) - np.uint64(1)
    x = np.uint64(i)
    while True:
        left, right = x >> half, x & mask
        for r in range(_ROUNDS):
            left, right = right, left ^ (bits(seed, np.uint64(r), right) & mask)
        x = (left << half) | right
        if x < np.uint64(n):
            return np.int64(x)


@njit(cache=True, nogil=True)
def unpermute(seed, n, j):  # type: ignore[no-untyped-def]
    """Invert `permute`."""
    half = np.uint64(half_bits(n))
    mask = (np.uint64(1) << half) - np.uint64(1)
    x = np.uint64(j)
    while True:
        left, right = x >> half, x & mask
        for r in range(_ROUNDS - 1, -1, -1):
            left, right = right ^ (bits(seed, np.uint64(r), left) & mask), left
        x = (left << half) | right
        if x < np.uint64(n):
            return np.int64(x)
