"""The kernels of the generated knowledge graph, and the loop that writes it chunk by chunk.

Entities of a latent type lie on a ring, and a relation is a turn: of the entity at place x its tails are the `width`
places from x + shift on, on the ring of the tail's type. Each triple is a formula of its number, so that chunks are
independent and no two triples are one. Ids are a random permutation of the places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from tasks.arrays import Array, blocks
from tasks.counter_random import below, permute, uniform
from tasks.ingest.triple_tables import TripleTables, write_entities, write_relations
from tasks.ingest.writer import DatasetWriter
from tasks.stage import StageContext
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import SPLITS

if TYPE_CHECKING:
    from tasks.ingest.synthetic.configs import SyntheticTriplesConfig

_CHUNK = 1 << 20
_SPLIT, _NOISE, _OFFSET, _ORDER = 30, 31, 32, 33  # streams of random numbers
TURN, INVERSE, SYMMETRIC, COMPOSED, ONE_WAY = range(5)
"""Kinds of relations."""
_NAMES = ("turn", "inverse", "symmetric", "composed", "one_way")
_CYCLE = (TURN, INVERSE, SYMMETRIC, TURN, COMPOSED, ONE_WAY)


class RingRelations(NamedTuple):
    """What each relation is, (num_relations,) each."""

    kind: Array
    source: Array
    """Type of the heads; of an inverse relation that of the other one's heads, as all below."""
    target: Array
    shift: Array
    of: Array
    """The relation whose pairs it has: its own, of an inverse one that which it turns round."""


class RingLayout(NamedTuple):
    """Where everything lies; a flat tuple, so that numba takes it as it is."""

    num_entities: int
    num_types: int
    num_relations: int
    num_triples: int
    most: int
    """Triples of the largest relation."""
    noise: float
    seed: int


def make_relations(config: SyntheticTriplesConfig) -> RingRelations:
    """Draw types and shifts: turns between types and their inverses, symmetric, composed and one-way relations."""
    rng = np.random.Generator(np.random.Philox(config.seed))
    count, size = config.num_relations, config.num_entities // config.num_types
    made = RingRelations(*(np.zeros(count, np.int64) for _ in range(5)))
    turns: list[int] = []
    for r in range(count):
        kind = _CYCLE[r % len(_CYCLE)]
        source, target = (int(kind_of) for kind_of in rng.integers(0, config.num_types, 2))
        shift, of = int(rng.integers(0, size)), r
        if kind == INVERSE:
            of = turns[-1]
            source, target, shift = (int(column[of]) for column in (made.source, made.target, made.shift))
        elif kind in (SYMMETRIC, ONE_WAY):
            # A quarter of a turn: it never leads back to where the reverse pair would be.
            target, shift = source, size // 4
        elif kind == COMPOSED:
            first, second = turns[-2:]
            source, target = int(made.source[first]), int(made.target[second])
            shift = int(made.shift[first] + made.shift[second]) % size
        elif turns and len(turns) % 2:
            source = int(made.target[turns[-1]])  # so that the two compose
        if kind == TURN:
            turns.append(r)
        for column, value in zip(made, (kind, source, target, shift, of), strict=True):
            column[r] = value
    return made


@njit(cache=True, nogil=True)
def _start(t, layout):  # type: ignore[no-untyped-def]
    return t * layout.num_entities // layout.num_types


@njit(cache=True, nogil=True)
def _pair(r, i, relations, layout):  # type: ignore[no-untyped-def]
    """Return the places of head and tail of triple `i` of relation `r`, before an inverse one turns them round."""
    source, target = relations.source[r], relations.target[r]
    first, second = _start(source, layout), _start(target, layout)
    heads, tails = _start(source + 1, layout) - first, _start(target + 1, layout) - second
    symmetric = relations.kind[r] == 2
    flipped = symmetric and i % 2 == 1
    room = tails // 2 if symmetric else tails
    if symmetric:
        i = i // 2
    width = (layout.most + heads - 1) // heads
    # Each relation has its own order of heads, so that all of them come.
    x, j = permute(layout.seed + 7919 * (r + 1), heads, i % heads), i // heads
    number = r * layout.most + i
    # What is wrong lies outside of the relation's places, and no two wrong ones are one.
    if uniform(layout.seed, _NOISE, number) < layout.noise and room // width > 1:
        j += width * (1 + below(layout.seed, _OFFSET, number, room // width - 1))
    if symmetric:
        y = (x + 1 + j) % tails
    else:
        y = (x * tails // heads + relations.shift[r] + j) % tails
    if flipped:
        return second + y, first + x
    return first + x, second + y


@njit(cache=True, nogil=True)
def make_triples(first, src, relation, dst, owner, shares, relations, layout):  # type: ignore[no-untyped-def]
    """Fill triples number `first` and on: ids, int (n,) each, and splits, int8 (n,), by shares of valid and test."""
    r = first * layout.num_relations // layout.num_triples
    for k in range(len(src)):
        number = first + k
        while number >= (r + 1) * layout.num_triples // layout.num_relations:
            r += 1
        while number < r * layout.num_triples // layout.num_relations:
            r -= 1
        i = number - r * layout.num_triples // layout.num_relations
        of = relations.of[r]
        u, v = _pair(of, i, relations, layout)
        if of != r:
            u, v = v, u
        src[k] = permute(layout.seed + _ORDER, layout.num_entities, u)
        dst[k] = permute(layout.seed + _ORDER, layout.num_entities, v)
        relation[k] = r
        share = uniform(layout.seed, _SPLIT, number)
        owner[k] = 1 if share < shares[0] else (2 if share < shares[0] + shares[1] else 0)


def generate_triples(config: SyntheticTriplesConfig, context: StageContext) -> dict[str, Any]:
    """Write all tables; return the fields of DatasetManifest."""
    relations = make_relations(config)
    total, count = config.num_triples, config.num_entities
    most = -(-total // config.num_relations)
    layout = RingLayout(count, config.num_types, config.num_relations, total, most, config.noise, config.seed)
    names = [f"{_NAMES[kind]}_{number}" for number, kind in enumerate(relations.kind)]
    shares = np.array([config.valid_share, config.test_share])
    with DatasetWriter(context.work) as writer:
        write_entities(writer, "entity", count)
        write_relations(writer, pa.array(names, pa.string()))
        with TripleTables(writer, [("entity", count)], "synthetic_triples") as tables:
            for rows in blocks(total, _CHUNK):
                src, dst = np.empty((2, rows.stop - rows.start), id_dtype(count))
                relation, owner = np.empty(len(src), np.int32), np.empty(len(src), np.int8)
                make_triples(rows.start, src, relation, dst, owner, shares, relations, layout)
                for code, split in enumerate(SPLITS):
                    chosen = owner == code
                    if chosen.any():
                        tables.add(split, src[chosen], relation[chosen], dst[chosen])
                context.progress(rows.stop, total, "triples")
    return tables.fields("synthetic_triples", config.num_relations, {})
