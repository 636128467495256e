"""Prefect takes no settings from files of the current folder.

By itself it reads `prefect.toml`, `pyproject.toml` and `.env` there, and such a setting can name a file whose reading
runs code (`logging.config_path`). No variable turns that off. So whoever imports `flows` gets Prefect's readers of
these files without the reading; the environment and the profile of Prefect's home count as ever.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

_READERS = "prefect.settings.sources"
_STARTUP = Path(__file__).parent / "startup"


def ignore_folder_settings() -> None:
    """Let this process's Prefect read no settings of the current folder, if it is still to be imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def startup_path() -> str:
    """Return the `PYTHONPATH` with which Pythons that import Prefect first, as a worker's do, ignore the files too."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([str(_STARTUP), *filter(None, folders)]))


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _READERS:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        readers: Any = module
        readers.TomlConfigSettingsSourceBase._read_files = _nothing
        readers.FilteredDotEnvSettingsSource._read_env_files = _nothing
        # Where the profiles are is asked of the same files once more, by functions of their own.
        readers._get_profiles_path_from_toml = lambda *_: None
        readers.dotenv = SimpleNamespace(dotenv_values=_nothing)


def _nothing(*_: object, **__: object) -> dict[str, Any]:
    return {}
