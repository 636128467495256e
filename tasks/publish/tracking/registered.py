"""Registered models as their users name them: `NAME@champion`, `NAME@3`; which there are, and their files."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from configs.errors import RecipeError
from configs.matching import did_you_mean
from tasks.apply.model.files import MODEL
from tasks.publish.gate.rules import CHAMPION
from tasks.publish.tracking.store_uris import local_path, public_uri
from tasks.publish.tracking.version_tags import ModelVersion
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


def model_versions(registry: Registry, name: str) -> list[ModelVersion]:
    """Return all versions of a model, newest first. Raises RecipeError with the known names."""
    names = registry.model_names()
    if name not in names:
        listed = f"there are {', '.join(names)}" if names else "none is registered"
        raise RecipeError(f"no registered model {name!r}{did_you_mean(name, names)}; {listed}")
    aliases: dict[str, list[str]] = {}
    for alias, version in registry.aliases(name).items():
        aliases.setdefault(version, []).append(alias)
    versions = sorted(registry.versions(name), key=lambda one: int(one.version), reverse=True)
    return [replace(one, aliases=tuple(sorted(aliases.get(one.version, ())))) for one in versions]


def find_version(registry: Registry, reference: str) -> ModelVersion:
    """Return the version that `NAME@VERSION` or `NAME@ALIAS` names; `NAME` alone is its champion.

    Raises RecipeError: there is no such model, version or alias; the message names those that there are.
    """
    name, _, asked = reference.partition("@")
    asked = asked or CHAMPION
    versions = model_versions(registry, name)
    for one in versions:
        if asked == one.version or asked in one.aliases:
            return one
    numbers = ", ".join(one.version for one in versions[:8]) + (", ..." if len(versions) > 8 else "")
    names = sorted({alias for one in versions for alias in one.aliases})
    hint = f"; choose one: graphmill promote {name}@VERSION" if asked == CHAMPION else ""
    raise RecipeError(
        f"{name} has no version or alias {asked!r}{did_you_mean(asked, names)}; versions: {numbers or 'none'}; "
        f"aliases: {', '.join(names) or 'none'}{hint}"
    )


def fetch_model(registry: Registry, version: ModelVersion) -> Path:
    """Return a folder with the model's files, downloaded once a home.

    Raises RecipeError: it is not a model of graphmill's, or the registry's record of it leads elsewhere; StageError:
    the store cannot be reached.
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
            place, store = _place(registry, version), public_uri(registry.uri)
            registry.download(place, draft)
            if not any(draft.iterdir()):
                raise RecipeError(
                    f"{version.reference}: {store} knows the version, and its artifact store has no files for it at "
                    f"{public_uri(place)}; bring them back, or publish the model again (graphmill run RECIPE --force "
                    "publish)"
                )
            if not (draft / MODEL).is_file():
                raise RecipeError(f"{version.reference} in {store} has no {MODEL}: graphmill did not register it")
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
