"""Registries of components, filled on demand by importing the package where they live.

`@DATASETS.register("ogb")` on a class with a nested `Config` is all that adding a component takes; a recipe may also
name a model's file anywhere (`file:`), which runs only if a person has said so (`configs.trust`). A recipe is checked
without torch where a package keeps options in its `configs.py`: `@LOADERS.options("full", "full")` on a `Config` says
which module registers the component, and that is imported when the component is made.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, SerializeAsAny

from configs.base import ComponentConfig
from configs.errors import RecipeError, readable
from configs.matching import did_you_mean
from configs.reading.own_files import OWN_FILE, read_own_file, run_own_file
from configs.trust import check_code

C = TypeVar("C", bound=type)
Options = TypeVar("Options", bound=ComponentConfig)
_REGISTERS = re.compile(r'^@(\w+)\.register\((?:"([^"]+)")?', re.MULTILINE)  # an example in a docstring is indented


class Registry:
    """Components of one kind by name."""

    def __init__(
        self,
        kind: str,
        package: str,
        *,
        place: str = "",
        configs: tuple[str, ...] = (),
        default: str | None = None,
        own_files: bool = False,
    ) -> None:
        """Nothing is imported before the first look-up.

        `kind` is the word for messages, `place` the key of a recipe that names a component (`train.loader`), `configs`
        the modules with options that stand apart, `default` the component that is meant where a recipe gives no name.
        """
        self.kind = kind
        self.place = place
        self.default = default
        self.takes_files = own_files
        self.package = package
        self._configs_modules = configs
        self._configs: dict[str, type[ComponentConfig]] = {}
        self._module_names: dict[str, str] = {}  # of the modules that register what has options apart
        self._elsewhere: dict[str, str] = {}  # modules of options that are apart from those of the other components
        self._classes: dict[str, type] = {}
        self._unlisted: set[str] = set()
        self._scanned = False
        self._own_files: dict[str, bytes] = {}  # users' files that were loaded, by digest

    def options(self, name: str, module: str, *, listed: bool = True) -> Callable[[type[Options]], type[Options]]:
        """Class decorator for a `Config` apart from its component, which `module` of the package registers."""

        def add(config: type[Options]) -> type[Options]:
            self._configs[name] = config
            self._module_names[name] = f"{self.package}.{module}"
            if not listed:
                self._unlisted.add(name)
            return config

        return add

    def options_in(self, name: str, module: str) -> None:
        """Say which module of the package has a component's `Config`; it is imported for that component alone."""
        self._elsewhere[name] = f"{self.package}.{module}"

    def register(self, name: str, *, listed: bool = True) -> Callable[[C], C]:
        """Class decorator: make the component known as `name`; one whose options stand apart needs no nested `Config`.

        One that is not `listed` is for graphmill's own use: no list or message offers it to a recipe.
        """

        def add(cls: C) -> C:
            self._read_options()
            apart = self._configs.get(name) if cls.__module__ == self._module_names.get(name) else None
            config = cls.__dict__.get("Config", apart)
            if not (isinstance(config, type) and issubclass(config, ComponentConfig)):
                raise TypeError(f"{self.kind} {name!r}: {cls.__name__} needs a nested class Config(ComponentConfig)")
            if not (cls.__doc__ or "").strip():
                raise TypeError(f"{self.kind} {name!r}: {cls.__name__} needs a docstring: users see its first line")
            if self._configs.get(name, config) is not config:
                raise TypeError(f"{self.kind} {name!r} is registered twice: {self._module_names[name]} has it")
            registered = self._classes.get(name)
            if registered and (registered.__qualname__, _is_own(registered)) != (cls.__qualname__, _is_own(cls)):
                raise TypeError(
                    f"{self.kind} {name!r} is registered twice: {registered.__module__} and {cls.__module__}"
                )
            self._classes[name] = cls
            setattr(cls, "Config", config)  # noqa: B010 (where its options stand apart, it need not name them)
            if not listed:
                self._unlisted.add(name)
            return cls

        return add

    def names(self) -> list[str]:
        """All names that a recipe may use, sorted."""
        self._read_options()
        self._scan()
        return sorted((self._classes.keys() | self._configs.keys() | self._elsewhere.keys()) - self._unlisted)

    def has(self, name: str) -> bool:
        """Whether a component of graphmill's own has this name."""
        return name in self.names() and not _is_own(self._classes.get(name))

    def get(self, name: str) -> type[Any]:
        """Return the component's class. Raises RecipeError with the known names."""
        self._read_options_of(name)
        if name not in self._classes and name in self._module_names:
            importlib.import_module(self._module_names[name])
        if name not in self._classes:
            self._scan()
        if name not in self._classes:
            names = self.names()
            raise RecipeError(
                f"unknown {self.kind} {readable(name, 200)!r}{did_you_mean(name, names)}; known: "
                f"{', '.join(names) or 'none'}"
            )
        return self._classes[name]

    def config_class(self, name: str) -> type[ComponentConfig]:
        """Return the class of a component's options. Raises RecipeError with the known names."""
        self._read_options_of(name)
        return self._configs.get(name) or self.get(name).Config

    def description(self, name: str) -> str:
        """Return what is said of the component: the docstring of its options, where these stand apart, else its own."""
        self._read_options_of(name)
        return inspect.getdoc(self._configs.get(name) or self.get(name)) or ""

    def summary(self, name: str) -> str:
        """First line of the component's description."""
        return self.description(name).splitlines()[0]

    def config(self, value: Any, copy: Path | None = None) -> ComponentConfig:
        """Turn `{name: ..., **options}` (or a bare name) into the component's `Config`.

        With `file`, where this kind takes one, the component is loaded from there, or from its `copy` where `file` is
        gone or has changed since `file_sha256` was taken; `file_sha256` comes with the result.

        Raises:
            RecipeError: no name or an unknown one; a file that cannot be loaded, has changed, or registers no such
                component. Wrong options raise pydantic's ValidationError.
            UntrustedCodeError: nobody has allowed the file to run.
        """
        if isinstance(value, ComponentConfig):
            return value
        if isinstance(value, str):
            value = {"name": value}
        if isinstance(value, dict) and "name" not in value and self.default is not None:
            value = {"name": self.default, **value}
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise RecipeError(f"a {self.kind} needs a name; known: {', '.join(self.names())}")
        if self.takes_files and value.get("file") is not None:
            value = self.load_file(value, copy)
        return self.config_class(value["name"]).model_validate(value)

    def create(self, config: ComponentConfig, *args: Any, **kwargs: Any) -> Any:
        """Build the component from its `Config`: `Component(config, *args, **kwargs)`."""
        return self.get(config.name)(config, *args, **kwargs)

    def files(self) -> set[str]:
        """Return the files of the components that were loaded."""
        return {sys.modules[cls.__module__].__file__ or "" for cls in self._classes.values()}

    def own_file(self, config: ComponentConfig) -> bytes | None:
        """Return the content of the user's file that a component was loaded from; None for one of ours."""
        return self._own_files.get(getattr(config, "file_sha256", None) or "")

    def load_file(self, value: dict[str, Any], copy: Path | None = None) -> dict[str, Any]:
        """Run a user's file, whose components register themselves; returns `value` with the file's place and digest.

        Takes and raises what `config` does.
        """
        name, wanted = value["name"], value.get("file_sha256")
        try:
            path = Path(str(value["file"])).expanduser().resolve()
            if not isinstance(wanted, str | None):
                raise ValueError(f"{self.kind}.file_sha256 {wanted!r} is no text")
            if wanted in self._own_files and _module_of(self._classes.get(name)) == OWN_FILE + wanted:
                return {**value, "file": str(path)}  # what runs already does not care what becomes of the file
            source, content = read_own_file(path, wanted, copy)
        except (OSError, ValueError, RuntimeError) as error:  # no such file, user or path
            raise RecipeError(
                f"{self.kind}.file={value['file']} cannot be read: {error}; put it there, or name where it is"
            ) from error
        if source.suffix != ".py":  # before anything of it is shown or asked about: it may be no code, and a secret
            raise RecipeError(f"{source} is not a Python file; its name has to end with .py")
        digest = hashlib.sha256(content).hexdigest()
        if wanted not in (None, digest):
            raise RecipeError(
                f"{path} is not what {self.kind} {name!r} was made with: put the old content back, or remove "
                f"{self.kind}.file_sha256 and train anew"
            )
        check_code(source, content)
        module_name = OWN_FILE + digest
        if _module_of(self._classes.get(name)) != module_name:
            self._scan()  # so that a name that is taken is noticed
            run_own_file(source, content, module_name)
        if _module_of(self._classes.get(name)) != module_name:
            registered = sorted(known for known, each in self._classes.items() if each.__module__ == module_name)
            raise RecipeError(
                f"{path} registers no {self.kind} {name!r} but {', '.join(registered) or 'none'}; name one of those, "
                f"or remove {self.kind}.file"
            )
        self._own_files[digest] = content
        return {**value, "file": str(path), "file_sha256": digest}

    def _read_options(self) -> None:
        for module in self._configs_modules:
            importlib.import_module(module)

    def _read_options_of(self, name: str) -> None:
        self._read_options()
        if name in self._elsewhere:
            importlib.import_module(self._elsewhere[name])

    def _scan(self) -> None:
        """Import those modules of the package and its sub-packages that register what no options tell of."""
        if self._scanned:
            return
        self._scanned = True  # before the imports: a module may ask this registry for a sibling
        package = importlib.import_module(self.package)
        for module in pkgutil.walk_packages(package.__path__, f"{self.package}."):
            spec = importlib.util.find_spec(module.name)
            source = "" if spec is None or spec.origin is None else Path(spec.origin).read_text(encoding="utf-8")
            for kind, name in _REGISTERS.findall(source):
                if REGISTRIES.get(kind.lower(), self) is self and not self._is_told(name, module.name):
                    importlib.import_module(module.name)

    def _is_told(self, name: str, module: str) -> bool:
        if name in self._module_names:
            return self._module_names[name] == module
        return name in self._elsewhere and _package_of(self._elsewhere[name]) == _package_of(module)


def _package_of(module: str) -> str:
    return module.rpartition(".")[0]


def _module_of(cls: type | None) -> str | None:
    return None if cls is None else cls.__module__


def _is_own(cls: type | None) -> bool:
    return cls is not None and cls.__module__.startswith(OWN_FILE)


DATASETS = Registry("dataset", "tasks.ingest", place="dataset", configs=("tasks.ingest.configs",))
TRANSFORMS = Registry(
    "transform",
    "tasks.preprocess.transforms",
    place="preprocess.transforms",
    configs=("tasks.preprocess.transforms.configs",),
)
TEXTS = Registry(
    "text encoder",
    "tasks.preprocess.texts",
    place="preprocess.texts",
    configs=("tasks.preprocess.texts.configs",),
    default="tfidf",
)
PARTITIONERS = Registry(
    "partitioner", "tasks.partition", place="partition", configs=("tasks.partition.configs",), default="auto"
)
MODELS = Registry(
    "model",
    "models",
    place="model",
    configs=(
        "models.configs",
        "models.dgl.configs",
        "models.vectors.configs",
        "models.knowledge.configs",
        "models.layout.configs",
        "models.relational.configs",
    ),
    own_files=True,
)
LOADERS = Registry(
    "loader",
    "tasks.train.loaders",
    place="train.loader",
    configs=("tasks.train.loaders.configs",),
    default="auto",
)
SCHEDULES = Registry("schedule", "tasks.train.schedules", place="train.schedule", default="constant")
EMBEDDINGS = Registry(
    "embedding",
    "tasks.train.embeddings",
    place="train.embeddings",
    configs=("tasks.train.embeddings.configs",),
    default="dense",
)
STRATEGIES = Registry(
    "strategy",
    "tasks.train.strategies",
    place="train.strategy",
    configs=("tasks.train.strategies.configs",),
    default="data_parallel",
)
LOSSES = Registry(
    "loss", "models.losses", place="train.loss", configs=("models.losses.configs",), default="auto", own_files=True
)
EVALUATORS = Registry(
    "evaluator", "tasks.evaluators", place="evaluate.evaluator", configs=("tasks.evaluators.configs",), default="auto"
)
EXPLAINERS = Registry(
    "explainer",
    "tasks.explain.methods",
    place="evaluate.explain",
    configs=("tasks.explain.configs",),
    default="removal",
)

REGISTRIES: dict[str, Registry] = {
    "datasets": DATASETS,
    "transforms": TRANSFORMS,
    "texts": TEXTS,
    "partitioners": PARTITIONERS,
    "models": MODELS,
    "loaders": LOADERS,
    "losses": LOSSES,
    "schedules": SCHEDULES,
    "embeddings": EMBEDDINGS,
    "strategies": STRATEGIES,
    "evaluators": EVALUATORS,
    "explainers": EXPLAINERS,
}
"""All that a recipe can name, in the order of a recipe, by the names of commands (`graphmill loaders`) and pages."""


def line_of_component(error: BaseException) -> str:
    """Return the last line of a component's file that an error came through, those of child processes too, or ""."""
    files = set().union(*(registry.files() for registry in REGISTRIES.values()))
    places = re.findall(r'File "([^"]+)", line (\d+)', "".join(traceback.format_exception(error)))
    return next((f"{file}, line {line}" for file, line in reversed(places) if file in files), "")


# Places in a recipe where a component stands: whatever is written there becomes its `Config`.
DatasetSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(DATASETS.config)]
TransformSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(TRANSFORMS.config)]
TextsSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(TEXTS.config)]
PartitionerSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(PARTITIONERS.config)]
ModelSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(MODELS.config)]
LoaderSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(LOADERS.config)]
ScheduleSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(SCHEDULES.config)]
EmbeddingsSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(EMBEDDINGS.config)]
StrategySection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(STRATEGIES.config)]
LossSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(LOSSES.config)]
EvaluatorSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(EVALUATORS.config)]
ExplainerSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(EXPLAINERS.config)]
