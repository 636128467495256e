"""The transform hops as a model's training scaled it; in a file of its own, since kernels are imported with it."""

from __future__ import annotations

from configs.registry import TRANSFORMS
from tasks.apply.model.states import states_of
from tasks.preprocess.transforms.configs import HopsConfig
from tasks.preprocess.transforms.hops import Hops
from tasks.storage.graph_store import Array


@TRANSFORMS.register("learned_hops", listed=False)
class LearnedHops(Hops):
    """The transform hops, scaled as on a model's training data; `graphmill predict` puts it into recipes."""

    class Config(HopsConfig):
        """Options of learned_hops."""

        sha256: str = ""
        """Digest of what was learned."""

    def scale(self, name: str, x: Array, train_rows: Array | None) -> tuple[Array, Array]:
        """Return what was learned."""
        state = states_of(self.config)[name]
        return state["mean"], state["deviation"]
