"""Registered models whose vectors are features of other recipes: which version is meant, and its vectors in the home.

`with_versions` looks once, when a run begins: from then on the recipe names one version, in every key, record and
model's files. `provide_vectors` makes what preprocess reads, from the data of that version's training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from configs.base import ComponentConfig
from configs.errors import DataError, IntegrityError, RecipeError, StageError, UntrustedCodeError, UserError
from configs.schema import Recipe
from tasks.calls import load_stage, mark_used
from tasks.preprocess.transforms.configs import EmbeddingConfig, from_models
from tasks.stage import InnerListener, Listener, MapShards, Parent, StageOutcome, map_in_process, run_stage
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.manifests import Manifest
from tasks.storage.outcomes import VECTORS, VectorsManifest

if TYPE_CHECKING:
    from tasks.apply.model.published import Published

M = TypeVar("M", bound=Manifest)

READ_VECTORS = frozenset({"preprocess", "publish"})
"""Stages that read vectors: publishing asks preprocess what its transforms learnt."""
_TAG_CHARACTERS = 4900  # MLflow's column holds 5,000
TO_PARTITION = ("ingest", "preprocess", "components", "partition")


def with_versions(recipe: Recipe, home: Home) -> Recipe:
    """Return the recipe with the versions that its registered models' names mean now; others stay as they are.

    Raises RecipeError: there is no such model or version, or it has no vectors of nodes; StageError: the registry
    cannot be reached.
    """
    taken = []
    for config in recipe.preprocess.transforms:
        if isinstance(config, EmbeddingConfig) and config.is_open:
            from tasks.apply.vectors import vectors_key

            with _about(config):
                published = _published(str(config.model), home)
                config = config.model_copy(update={"model": published.name, "vectors": vectors_key(published)})
        taken.append(config)
    return _with_transforms(recipe, taken)


def with_recorded_versions(recipe: Recipe, former: Recipe) -> Recipe:
    """Return the recipe with the versions that a former one of its kind took; what that did not take stays as it is.

    `NAME@champion` may mean another one by now, whose vectors a model that was trained then has never seen.
    """
    transforms = recipe.preprocess.transforms
    recorded = list(transforms)
    for place, (config, taken) in enumerate(zip(transforms, former.preprocess.transforms, strict=False)):
        if not isinstance(config, EmbeddingConfig) or not isinstance(taken, EmbeddingConfig):
            continue
        if not config.is_open or config.model is None or taken.model is None or taken.vectors is None:
            continue
        (name, _, version), (taken_name, _, taken_version) = config.model.partition("@"), taken.model.partition("@")
        if name == taken_name and not (version.isdecimal() and version != taken_version):
            recorded[place] = config.model_copy(update={"model": taken.model, "vectors": taken.vectors})
        # Else it is another one: whoever compares the two recipes refuses it.
    return _with_transforms(recipe, recorded)


def _with_transforms(recipe: Recipe, transforms: list[ComponentConfig]) -> Recipe:
    if transforms == list(recipe.preprocess.transforms):
        return recipe
    preprocess = recipe.preprocess.model_copy(update={"transforms": tuple(transforms)})
    return recipe.model_copy(update={"preprocess": preprocess})


def versions_taken(asked: Recipe, recipe: Recipe) -> list[tuple[str, str]]:
    """Return how a recipe names the models that its features come from, and the version that was taken for each."""
    pairs = zip(from_models(asked.preprocess.transforms), from_models(recipe.preprocess.transforms), strict=True)
    return [(str(one.model), str(taken.model)) for one, taken in pairs]


def _published(reference: str, home: Home) -> Published:
    from tasks.apply.model.published import read_published
    from tasks.publish.tracking.registered import fetch_model, find_version
    from tasks.publish.tracking.registry import open_registry

    registry = open_registry(home)
    version = find_version(registry, reference)
    return read_published(fetch_model(registry, version), version.reference)


def taken_vectors(parents: Mapping[str, Parent]) -> list[dict[str, Any]]:
    """Return what preprocess noted of the registered models that a run's features come from (`take_vectors`)."""
    taken: list[dict[str, Any]] = parents["preprocess"].manifest.report.get("vectors", [])
    return taken


def vector_notes(parents: Mapping[str, Parent]) -> list[str]:
    """Say for people which models' vectors are features, and what they know that they should not."""
    notes = []
    for one in taken_vectors(parents):
        share = f"{one['with_vector']:,} of {one['nodes']:,} nodes have one"
        notes.append(
            f"Features: vectors of {one['model']} (recipe {one['recipe']}), {one['dim']} numbers each; {share}."
        )
        if one["leak"]:
            notes.append(f"These vectors leak, as the recipe allows (allow_leak): {one['leak']}.")
    return notes


def vector_tags(parents: Mapping[str, Parent]) -> dict[str, str]:
    """Return the tags of MLflow that say the same."""
    taken = taken_vectors(parents)
    leaks = "; ".join(one["leak"] for one in taken if one["leak"])
    tags = {"graphmill.vectors": ", ".join(one["model"] for one in taken), "graphmill.leak": leaks[:_TAG_CHARACTERS]}
    return {name: text for name, text in tags.items() if text}


@contextmanager
def _about(config: EmbeddingConfig) -> Iterator[None]:
    what = f"preprocess.transforms: embedding: model={config.model}"
    try:
        yield
    except UntrustedCodeError:
        raise  # it says all by itself, and its digest is asked for
    except UserError as error:
        raise RecipeError(f"{what}: {error}") from error
    except (StageError, IntegrityError) as error:
        raise type(error)(f"{what}: {error}") from error


def missing_vectors(recipe: Recipe, home: Home) -> list[EmbeddingConfig]:
    """Return the transforms whose vectors are not in the home; those that are there are used now."""
    return [one for one in from_models(recipe.preprocess.transforms) if not _is_there(str(one.vectors), home)]


def _is_there(key: str, home: Home) -> bool:
    manifest = _load(home, VECTORS, key, VectorsManifest)
    if manifest is None:
        return False
    mark_used(ArtifactStore(home).folder(VECTORS, key))
    return all(_is_there(source, home) for source in manifest.sources.values())


def _load(home: Home, stage: str, key: str, kind: type[M]) -> M | None:
    """Return an artifact's manifest; None where it is not there, or damaged: it is made again."""
    try:
        return ArtifactStore(home).load(stage, key, kind)
    except IntegrityError:
        return None


def provide_vectors(
    recipe: Recipe, home: Home, listener: Listener | None = None, map_shards: MapShards = map_in_process
) -> list[StageOutcome[VectorsManifest]]:
    """Make the vectors that a recipe's features are taken from, as far as the home lacks them.

    Raises RecipeError: the registry has another model under that name and version; DataError: the data of the model's
    training is gone, or has changed; StageError: the registry cannot be reached.
    """
    made = []
    for config in missing_vectors(recipe, home):
        with _about(config):
            made.append(_make(config, home, listener or Listener(), map_shards))
    return made


def _make(
    config: EmbeddingConfig, home: Home, listener: Listener, map_shards: MapShards
) -> StageOutcome[VectorsManifest]:
    from tasks.apply.vectors import vectors_key, vectors_stage

    published = _published(str(config.model), home)
    if vectors_key(published) != config.vectors:
        raise RecipeError(
            f"the registry has another model of that name and version than the one that was taken ({config.vectors}); "
            "leave `vectors` out of the transform, or take the registry of before (MLFLOW_TRACKING_URI)"
        )
    recipe = published.recipe
    provide_vectors(recipe, home, listener, map_shards)  # its own features may be another model's vectors
    parents = _kept(published, home) or _made_again(published, recipe, home, listener, map_shards)
    outcome = run_stage(vectors_stage(published), recipe, parents, home, listener=listener, map_shards=map_shards)
    mark_used(outcome.folder)
    return outcome


def _kept(published: Published, home: Home) -> dict[str, Parent] | None:
    """Return the data and the graph of a model's training as the home has them; None: it has them no more."""
    kept = {}
    for name in ("ingest", "partition"):
        made = published.lineage[name]
        manifest = _load(home, name, str(made["key"]), load_stage(name).manifest)
        if manifest is None or manifest.digest != made["digest"]:
            return None
        kept[name] = Parent(manifest, ArtifactStore(home).folder(name, str(made["key"])))
    return kept


def _made_again(
    published: Published, recipe: Recipe, home: Home, listener: Listener, map_shards: MapShards
) -> dict[str, Parent]:
    """Run the stages before a model's training again. Raises DataError where they come to another graph."""
    parents: dict[str, Parent] = {}
    inner = InnerListener(listener, VECTORS, f"data of {published.name}")
    for name in TO_PARTITION:
        outcome = run_stage(load_stage(name), recipe, parents, home, listener=inner, map_shards=map_shards)
        mark_used(outcome.folder)
        parents[name] = outcome.parent
    if parents["partition"].manifest.digest != published.lineage["partition"]["digest"]:
        raise DataError(
            "the data of its training has changed since, and this home no longer has it as it was, so nothing tells "
            f"which vector is whose; train it again: graphmill run {recipe.name}"
        )
    return parents
