"""Options that stood elsewhere in the recipes of earlier versions."""

from __future__ import annotations

from typing import Any

from configs.registry import LOADERS

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


def upgraded(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe that an earlier version recorded, whole, as it would be written now; one of today's as it is."""
    train = recipe.get("train")
    if not isinstance(train, dict) or not isinstance(train.get("loader"), str) or not train.keys() & TRAIN.keys():
        return recipe
    dataset = recipe.get("dataset")
    task = dataset.get("task") if isinstance(dataset, dict) else None
    name = train["loader"]
    if name == "saint":
        name = f"saint_{train.get('saint', 'walk')}"
    elif name == "full" and task == "link":
        name = "full_edge"
    read = LOADERS.config_class(name).model_fields.keys() & TRAIN.keys()
    schedule = {"name": train.get("schedule", "constant"), "warmup_steps": train.get("warmup_steps", 0)}
    embeddings: dict[str, Any] = {"name": train.get("embeddings", "dense")}
    if embeddings["name"] == "sparse":
        moved = {"optimizer": "embedding_optimizer", "learning_rate": "embedding_learning_rate"}
        embeddings |= {new: train[old] for new, old in moved.items() if old in train}
    strategy = train.get("strategy")
    if isinstance(strategy, dict) and strategy.get("name") == "self_training":
        moved = {"rounds": "rounds", "min_probability": "least"}
        rounds = {new: strategy[old] for new, old in moved.items() if old in strategy}
        train = {**train, "strategy": {"name": "data_parallel"}, "self_training": rounds}
    kept = {key: value for key, value in train.items() if key not in TRAIN}
    loader = {"name": name, **{key: train[key] for key in read & train.keys()}}
    return {**recipe, "train": {**kept, "loader": loader, "schedule": schedule, "embeddings": embeddings}}
