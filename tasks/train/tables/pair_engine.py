"""The training of tables by pairs of nodes."""

from __future__ import annotations

import numpy as np

from configs.registry import LOADERS
from tasks.arrays import Array
from tasks.sampling.degrees import degrees, warn_of_isolated
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.train.loaders.samples.pairs import PairData, PairLoader
from tasks.train.node_vectors.vectors import finish_vectors
from tasks.train.tables.block_engine import BlockEngine
from tasks.train.tables.device import DeviceStepper, ResidentBlocks
from tasks.train.tables.objective import PAIRS, Negatives, PairLearning, Stepper
from tasks.train.tables.sample_stepper import SampleStepper
from tasks.train.tables.settings import Settings, TableSizes, choose_device_room, make_settings


class PairEngine(BlockEngine):
    """Learns from pairs; at the end every node has a vector."""

    loader: PairLoader
    fate_of_isolated = "their vectors stay as they are drawn at first"

    def make_loader(self) -> PairLoader:
        """Return what makes pairs. Raises DataError: the graph has nothing to draw."""
        data = PairData(self.store, derive_key(self.job.seed, PAIRS))
        loader: PairLoader = LOADERS.create(self.config.loader, data)
        return loader

    def usual_settings(self, num_blocks: int, *, beyond_memory: bool) -> Settings:
        """Return as many samples as the recipe says, or the graph's size."""
        return make_settings(
            self.config, self.store.manifest, self.loader.expected, num_blocks, beyond_memory=beyond_memory
        )

    def make_stepper(self, sizes: TableSizes, device_memory: int | None) -> Stepper:
        """Return what takes the steps: the CPU's threads, or a device."""
        negatives = Negatives(degrees(self.store), self.settings.num_blocks, self.options.negative_power)
        objective = PairLearning(self.model, self.options, self.loader, negatives, self.job.seed)
        if self.ranks.is_main:
            samples = self.settings.total_chunks * self.loader.expected
            print(f"samples: {samples:,.0f} in {self.settings.num_pools} pools")
            warn_of_isolated(self.store, self.fate_of_isolated)
        if device_memory is None:
            stepper = SampleStepper(objective, self.grid)
            stepper.compile()  # so that rates and times to go are those of the training
            return stepper
        room = choose_device_room(self.grid.tables.num_blocks, sizes, device_memory)
        return DeviceStepper(objective, ResidentBlocks(self.grid, self.device, room))

    def vectors(self) -> Array:
        """Return the vectors at the end, float32 (N, dim); in a file where the tables have no room in memory."""
        self.journal.write_progress("making vectors of the rows", force=True)
        num_nodes, dim = self.store.manifest.num_nodes, self.options.dim
        vectors = self.allocate("vectors", num_nodes * dim, np.float32).reshape(num_nodes, dim)
        self.grid.vectors(self.model, self.options, vectors)
        return vectors

    def finish(self) -> None:
        """Make the vectors, fit a head and write both."""
        finish_vectors(self.job, self.store, self.vectors(), self.journal)
