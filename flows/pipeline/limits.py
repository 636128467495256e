"""What two nights must not do at once: train on the GPUs, or fill the machine's memory.

Prefect's global concurrency limits `graphmill-gpu` and `graphmill-big-memory` hold one slot each until an operator says
otherwise (`prefect gcl update graphmill-gpu --limit 2`). A slot is leased: one that a killed run held comes back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prefect import runtime
from prefect.concurrency.sync import concurrency

from configs.schema import Recipe
from flows.records.run_record import RunRecord
from flows.services.bootstrap import GPU_LIMIT, MEMORY_LIMIT
from flows.terminal.progress import RunListener
from tasks.sizes import BYTES_A_ROW

# Publishing scores the champion too, on data that is prepared for it.
_DEVICE_STAGES = frozenset({"train", "evaluate", "publish"})
_GRAPH_STAGES = frozenset({"preprocess", "components", "partition", "train", "evaluate", "publish"})
_BIG_SHARE = 0.25


def limits_of(stage: str, recipe: Recipe, record: RunRecord) -> list[str]:
    """Return the limits of which a stage takes a slot."""
    names = []
    train = recipe.train
    may = train.auto_takes_gpu if stage == "train" else train.family != "knowledge"  # whose triples a CPU ranks
    # Importing torch to ask it takes seconds, which a run that finds everything cached need not pay.
    on_gpu = train.device == "cuda" or (train.device == "auto" and may and Path("/dev/nvidiactl").exists())
    if stage in _DEVICE_STAGES and on_gpu:
        names.append(GPU_LIMIT)
    rows = record.stages["ingest"].rows if "ingest" in record.stages else 0
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if stage in _GRAPH_STAGES and rows * BYTES_A_ROW > _BIG_SHARE * machine_bytes:
        names.append(MEMORY_LIMIT)
    return names


@contextmanager
def guarded(stage: str, recipe: Recipe, record: RunRecord, listener: RunListener) -> Iterator[None]:
    """Hold the stage's slots while the block runs; wait for them where another run has them."""
    # A server that lives as long as one run guards nothing: nobody else sees it.
    lasting = runtime.deployment.id is not None or "GRAPHMILL_TRACKING" in os.environ
    names = limits_of(stage, recipe, record) if lasting else []
    with ExitStack() as stack:
        if names:
            listener.message(stage, f"takes a slot of {' and '.join(names)}, or waits for it")
            # A server that is away for a while must not end a training that goes well.
            stack.enter_context(concurrency(names, occupy=1, raise_on_lease_renewal_failure=False))
        yield
