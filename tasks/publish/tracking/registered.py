"""Registered models as their users name them: `NAME@champion`, `NAME@3`; which there are, and their files."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from configs.errors import RecipeError
from configs.matching import did_you_mean
from tasks.apply.model.files import MODEL
from tasks.publish.gate.rules import CHAMPION, Candidate
from tasks.publish.tracking.store_uris import local_path, public_uri
from tasks.publish.tracking.version_tags import StoredVersion, candidate_of
from tasks.storage.artifacts import file_lock
from tasks.storage.file_names import beside, file_name

if TYPE_CHECKING:
    from tasks.publish.tracking.mlflow_registry import MlflowRegistry
    from tasks.publish.tracking.registry import SqliteRegistry

    Registry: TypeAlias = MlflowRegistry | SqliteRegistry
    """All calls of both raise StageError where the store cannot be reached."""

_REMOTE = frozenset(
    {"s3", "gs", "http", "https", "mlflow-artifacts", "wasb", "wasbs", "abfs", "abfss", "r2", "b2", "oss"}
    | {"ftp", "sftp", "hdfs", "viewfs", "dbfs"}
)
"""Schemes of stores that are no folder of this machine."""
_MODEL_SOURCE = re.compile(r"models:/m-[0-9a-f]+")


@dataclass(frozen=True)
class ModelVersion:
    """A version of a registered model."""

    name: str
    version: str
    aliases: tuple[str, ...]
    source: str
    """Where the registry has it from, as the registry says."""
    model_id: str
    """Id that MLflow gave the logged model; empty where the source names none."""
    run_id: str
    """MLflow run of its training."""
    created_ms: int
    gate: Candidate
    """What the gate compares it by."""
    recipe: str
    train_key: str
    decision: str = ""
    """What the gate found, in a few words."""
    reason: str = ""
    """The same at length."""

    @property
    def reference(self) -> str:
        """`NAME@VERSION`."""
        return f"{self.name}@{self.version}"


def model_versions(registry: Registry, name: str) -> list[ModelVersion]:
    """Return all versions of a model, newest first. Raises RecipeError with the known names."""
    known = registry.model_names()
    if name not in known:
        listed = f"there are {', '.join(known)}" if known else "none is registered"
        raise RecipeError(f"no registered model {name!r}{did_you_mean(name, known)}; {listed}")
    aliases: dict[str, list[str]] = {}
    for alias, version in registry.aliases(name).items():
        aliases.setdefault(version, []).append(alias)
    versions = [_described(one, aliases.get(one.version, [])) for one in registry.versions(name)]
    return sorted(versions, key=lambda one: int(one.version), reverse=True)


def find_version(registry: Registry, reference: str) -> ModelVersion:
    """Return the version that `NAME@VERSION` or `NAME@ALIAS` names; `NAME` alone is its champion.

    Raises RecipeError: there is no such model, version or alias; the message names those that there are.
    """
    name, _, wanted = reference.partition("@")
    wanted = wanted or CHAMPION
    versions = model_versions(registry, name)
    for one in versions:
        if wanted == one.version or wanted in one.aliases:
            return one
    numbers = ", ".join(one.version for one in versions[:8]) + (", ..." if len(versions) > 8 else "")
    names = sorted({alias for one in versions for alias in one.aliases})
    hint = f"; choose one: graphmill promote {name}@VERSION" if wanted == CHAMPION else ""
    raise RecipeError(
        f"{name} has no version or alias {wanted!r}{did_you_mean(wanted, names)}; versions: {numbers or 'none'}; "
        f"aliases: {', '.join(names) or 'none'}{hint}"
    )


def fetch_model(registry: Registry, version: ModelVersion) -> Path:
    """Return a folder with the model's files, downloaded once a home.

    Raises:
        RecipeError: it is not a model of graphmill's, or the registry's record of it leads elsewhere.
        StageError: the store cannot be reached.
    """
    if ".." in version.source.split("/"):
        raise RecipeError(
            f"{version.reference}: {public_uri(registry.uri)} says that its files are at {version.source!r}; a path "
            "with '..' is not followed. Somebody altered the record: publish the model again, or ask who did"
        )
    identity = version.model_id or f"{version.reference} of {version.created_ms}: {version.source}"
    folder = registry.home.downloads / "models" / file_name(identity)
    with file_lock(registry.home.locks / f"model-{folder.name}.lock"):
        if (folder / MODEL).is_file():
            return folder
        draft = beside(folder, "")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            place = _place(registry, version)
            registry.download(place, draft)
            _check_files(registry, version, place, draft)
            shutil.rmtree(folder, ignore_errors=True)  # an earlier graphmill kept what had missed files
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder


def _place(registry: Registry, version: ModelVersion) -> str:
    """Return the URI of a version's files. Raises RecipeError for a folder of this machine that is not the store's."""
    uri = registry.place_of(version.name, version.version)
    if uri.partition(":")[0].lower() in _REMOTE:
        return uri
    path = local_path(uri)
    if path is not None and any(path.is_relative_to(root.resolve()) for root in registry.own_folders()):
        return path.as_uri()
    raise RecipeError(
        f"{version.reference}: {public_uri(registry.uri)} says that its files are at {uri!r}, which is no place of its "
        "artifacts; nothing is copied from there. Somebody altered the record: publish the model again, or ask who did"
    )


def _check_files(registry: Registry, version: ModelVersion, place: str, folder: Path) -> None:
    if (folder / MODEL).is_file():
        return
    store = public_uri(registry.uri)
    if any(folder.iterdir()):
        raise RecipeError(f"{version.reference} in {store} has no {MODEL}: graphmill did not register it")
    raise RecipeError(
        f"{version.reference}: {store} knows the version, and its artifact store has no files for it at "
        f"{public_uri(place)}; bring them back, or publish the model again (graphmill run RECIPE --force publish)"
    )


def _described(one: StoredVersion, aliases: list[str]) -> ModelVersion:
    return ModelVersion(
        name=one.name,
        version=one.version,
        aliases=tuple(sorted(aliases)),
        source=one.source,
        model_id=one.source.removeprefix("models:/") if _MODEL_SOURCE.fullmatch(one.source) else "",
        run_id=one.run_id,
        created_ms=one.created_ms,
        gate=candidate_of(one.version, one.tags),
        recipe=one.tags.get("graphmill.recipe", ""),
        train_key=one.tags.get("graphmill.train_key", ""),
        decision=one.tags.get("graphmill.gate_short", ""),
        reason=one.tags.get("graphmill.gate_reason", ""),
    )
