"""What becomes of triples before they are numbered: repeats, splits, and what training never shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.tables.times import cut_by_time
from tasks.ingest.triples.configs import TripleFilesConfig
from tasks.ingest.triples.dealing import DROPPED, IN_EARLIER, IN_SPLIT, ONCE, TRAIN, find_repeated, hold_out
from tasks.ingest.triples.intake import TripleArrays, TripleIntake
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
        triples.owner[there] = cut_by_time(triples.others["time"][there], split.train, split.valid)
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
