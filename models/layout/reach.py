"""Forces of a graph's layout that reach far: what keeps the shape of a whole map."""

from __future__ import annotations

import math
from typing import NamedTuple

_ROUNDS = 60
_MOST_EPSILON = 0.1  # LargeVis' own


class Forces(NamedTuple):
    """LargeVis' objective so that points far away still push each other, as in force-directed layouts."""

    gamma: float
    """Weight of each negative."""
    epsilon: float
    """What is added to squared distances that are divided by."""
    edge_length: float
    """Root of the mean squared length of edges about which the forces are in balance: what to scale the start to."""


def forces_of(num_nodes: int, num_negatives: int, reach: float) -> Forces:
    """Return forces by how far they reach.

    An edge pulls by 2 x / (1 + x^2), a negative pushes by 2 gamma / (x (1 + x^2)): up to a distance of 1 that is a
    spring and a push by 1 / x, as in ForceAtlas2 (Jacomy et al., PLOS ONE 9, 2014). Beyond 1 the push fades, and the
    map keeps its parts together but not its shape. gamma = reach / (K n) balances them so that the map is some units
    wide: 1.5 at reach 4, 3 at 40, 6 at 400, 12 at 4,000. A small reach keeps straight what is long, a large one spreads
    nodes evenly, and tears a mesh where it is narrow from some 100,000 on.
    """
    gamma = reach / (num_negatives * max(num_nodes, 1))
    squared = gamma * num_negatives
    for _ in range(_ROUNDS):  # edges pull as pairs push, which are n / 6 squared lengths apart in a map that is even
        squared = (squared + gamma * num_negatives / (1 + squared * num_nodes / 6)) / 2
    return Forces(gamma, min(1e-3 * squared, _MOST_EPSILON), math.sqrt(squared))
