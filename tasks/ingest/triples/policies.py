"""What becomes of triples before they are numbered: repeats, splits, and what training never shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numba import njit

from configs.errors import DataError
from tasks.arrays import Array
from tasks.counter_random import mix
from tasks.ingest.tables.times import cut_by_time
from tasks.ingest.triples.configs import TripleFilesConfig
from tasks.ingest.triples.reader import TripleArrays, TripleIntake
from tasks.ingest.triples.sources import ALL, Sources, shown
from tasks.stage import StageContext
from tasks.storage.manifests import SPLITS


@dataclass
class TripleJob:
    """What the functions below share."""

    config: TripleFilesConfig
    sources: Sources
    context: StageContext
    intake: TripleIntake
    adjusted: dict[str, int] = field(default_factory=dict)

    @property
    def triples(self) -> TripleArrays:
        """All triples."""
        return self.intake.triples

    @property
    def dealt(self) -> bool:
        """Whether the splits are made here."""
        return ALL in self.sources.triples

    def paths(self, split: str) -> list[Path]:
        """Return the files that a split comes from."""
        return self.sources.triples[ALL if self.dealt else split]

    def adjust(self, split: str, what: str, count: int) -> None:
        """Count triples that a policy changed."""
        if count:
            # Not where they lie: the same files elsewhere are the same data set.
            name = f"{shown([Path(path.name) for path in self.paths(split)])}: {what}"
            self.adjusted[name] = self.adjusted.get(name, 0) + count


def drop_repeated(job: TripleJob) -> None:
    """Take triples that stand twice out."""
    triples = job.triples
    by_time = job.config.split.name == "time"
    order = np.argsort(triples.others["time"], kind="stable") if by_time else None
    repeated = find_repeated(triples.src, triples.relation, triples.dst, triples.owner, order)
    if not repeated.any():
        return
    for code, split in enumerate(SPLITS):
        of_split = repeated[triples.owner == code]
        job.adjust(split, "triples that stand twice dropped", int(np.count_nonzero(of_split == IN_SPLIT)))
        job.adjust(split, "triples of an earlier split dropped", int(np.count_nonzero(of_split == IN_EARLIER)))
    several = int(np.count_nonzero(repeated == IN_EARLIER))
    if several:
        job.context.warn(
            f"{several:,} triples of validation or test are in an earlier split too, and are left out there"
        )
    triples.owner[repeated != ONCE] = DROPPED


def deal_out(job: TripleJob) -> None:
    """Deal all triples out by chance or time."""
    triples, split = job.triples, job.config.split
    there = np.flatnonzero(triples.owner == TRAIN)
    if split.name == "time":
        times, files = triples.others["time"][there], shown(job.paths("train"))
        column, at_random = str(job.config.time), "dataset.split.name=random"
        triples.owner[there] = cut_by_time(times, split.train, split.valid, files, column, at_random)
        return
    entities, relations = uses(job)
    order = np.random.Generator(np.random.Philox(split.seed)).permutation(there)
    counts = round(split.valid * len(there)), round(split.test * len(there))
    ends = triples.src, triples.relation, triples.dst
    taken, stayed = hold_out(*ends, order, counts, triples.owner, entities, relations)
    job.adjust(ALL, "triples that alone show an entity or a relation kept in training", stayed)
    if stayed:
        job.context.message(
            f"{stayed:,} triples that were drawn for validation or test stay in training: no other training triple "
            "shows their entity or relation"
        )
    if taken < sum(counts):
        job.context.warn(
            f"{taken:,} triples of {sum(counts):,} are held out: without any of the others an entity or a relation "
            "would be in no training triple"
        )
        held = order[triples.owner[order] > 0]  # both get their share of what there is
        triples.owner[held] = 2
        triples.owner[held[: round(taken * counts[0] / sum(counts))]] = 1


def uses(job: TripleJob) -> tuple[Array, Array]:
    """Return in how many triples of the splits each entity and relation stands, by the numbers they were met in.

    int64 each; a loop counts twice.
    """
    triples, num_entities = job.triples, job.intake.entities.count
    there = triples.owner >= 0
    heads, tails = (np.bincount(ids[there], minlength=num_entities) for ids in (triples.src, triples.dst))
    return heads + tails, np.bincount(triples.relation[there], minlength=job.intake.relations.count)


def check_unseen(job: TripleJob) -> None:
    """Count what is held out of entities and relations that training never shows, and say it."""
    triples = job.triples
    trains, held_out = triples.owner == TRAIN, triples.owner > 0
    entities = np.zeros(job.intake.entities.count, np.bool_)
    relations = np.zeros(job.intake.relations.count, np.bool_)
    entities[triples.src[trains]] = entities[triples.dst[trains]] = True
    relations[triples.relation[trains]] = True
    new_entity = held_out & ~(entities[triples.src] & entities[triples.dst])
    new_relation = held_out & ~relations[triples.relation]
    unseen = new_entity | new_relation
    if not unseen.any():
        return
    given = ((new_entity, job.config.features), (new_relation, job.config.relation_features))
    has_features = all(path for new, path in given if new.any())
    for new, what in ((new_entity, "an entity"), (new_relation, "a relation")):
        for code, split in enumerate(SPLITS[1:], start=1):
            count = int(np.count_nonzero(new & (triples.owner == code)))
            job.adjust(split, f"{split} triples with {what} that training never shows kept", count)
    job.context.warn(
        f"{np.count_nonzero(unseen):,} triples of validation and test have an entity or a relation that no training "
        f"triple shows, and are kept; a model knows {'only the features' if has_features else 'nothing'} of these"
    )


def check_sizes(job: TripleJob) -> None:
    """Raise DataError where a split is empty."""
    for code, split in enumerate(SPLITS):
        if not (job.triples.owner == code).any():
            left = [f"{count:,} {what.rpartition(': ')[2]}" for what, count in job.adjusted.items()]
            total = f"{len(job.triples):,} triples were read" + (f"; {', '.join(left)}" if left else "")
            way_out = f"; raise dataset.split.{split}" if job.dealt and split != "train" else ""
            raise DataError(f"the {split} split is empty ({total}){way_out}", path=shown(job.paths(split)))


ONCE, IN_SPLIT, IN_EARLIER = 0, 1, 2
"""What `find_repeated` says of a triple: it is new, stands in its split already, or in an earlier one."""
TRAIN, DROPPED = 0, -1
"""Codes of splits beside 1 (valid) and 2 (test)."""


def find_repeated(src: Array, relation: Array, dst: Array, owner: Array, order: Array | None) -> Array:
    """Return `ONCE`, `IN_SPLIT` or `IN_EARLIER` for each triple (numbers, (n,) each), uint8 (n,).

    `owner`: split of each, int8 (n,), not descending along `order`, the order of triples, (n,); None: as they stand.
    """
    count = len(src)
    kind = np.int32 if count < 2**31 else np.int64
    table = np.full(1 << max(4, (2 * count - 1).bit_length()), -1, kind)
    out = np.empty(count, np.uint8)
    walk = np.empty(0, np.int64) if order is None else order
    _find_repeated(src, relation, dst, owner, walk, table, out)
    return out


@njit(cache=True, nogil=True)
def _find_repeated(src, relation, dst, owner, order, table, out):  # type: ignore[no-untyped-def]
    mask = np.uint64(len(table) - 1)
    for k in range(len(src)):
        i = order[k] if len(order) else k
        key = mix(mix(np.uint64(src[i])) ^ np.uint64(dst[i])) + np.uint64(relation[i])
        slot = mix(key) & mask
        while True:
            j = table[slot]
            if j < 0 or (src[j] == src[i] and dst[j] == dst[i] and relation[j] == relation[i]):
                break
            slot = (slot + np.uint64(1)) & mask
        if j < 0:
            table[slot] = i
            out[i] = 0
        else:
            out[i] = 1 if owner[j] == owner[i] else 2


@njit(cache=True, nogil=True)
def hold_out(src, relation, dst, order, counts, owner, entities, relations):  # type: ignore[no-untyped-def]
    """Move triples from training to the others, in an order, where training shows their ends and relation without them.

    `order`: the triples to try, (m,), of numbers, (n,) each; `counts`: how many validation and test should have.
    Written: `owner`, split of each triple, int8 (n,); `entities` and `relations`, how many training triples have each,
    int64, a loop counts twice. Returns how many were held out, and how many had to stay.
    """
    taken = stayed = 0
    for i in order:
        if taken == counts[0] + counts[1]:
            break
        u, v, r = src[i], dst[i], relation[i]
        alone = entities[u] <= 2 if u == v else entities[u] <= 1 or entities[v] <= 1
        if alone or relations[r] <= 1:
            stayed += 1
            continue
        entities[u] -= 1
        entities[v] -= 1
        relations[r] -= 1
        owner[i] = 1 if taken < counts[0] else 2
        taken += 1
    return taken, stayed
