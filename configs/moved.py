"""Options that stood elsewhere in the recipes of earlier versions."""

from __future__ import annotations

OF_ONE_LOADER = {
    "fanout": "neighbor or edge",
    "sampler": "neighbor or edge",
    "first_hop": "neighbor or edge",
    "num_clusters": "random_partition",
    "clusters_per_batch": "cluster",
    "walk_length": "saint_walk",
    "negatives": "edge or full_edge",
    "num_negatives": "edge or full_edge",
    "leave_out_positives": "full_edge",
}
"""Options that some loaders have, and which."""
TRAIN = {
    **{key: f"is train.loader.{key} now, with train.loader={loaders}" for key, loaders in OF_ONE_LOADER.items()},
    "batch_size": "is train.loader.batch_size now",
    "saint": "is part of the loader's name now: train.loader=saint_node, saint_edge or saint_walk",
    "warmup_steps": "is train.schedule.warmup_steps now",
    "embedding_optimizer": "is train.embeddings.optimizer now, with train.embeddings=sparse",
    "embedding_learning_rate": "is train.embeddings.learning_rate now, with train.embeddings=sparse",
}
"""Keys that `train` had, and where they are."""
