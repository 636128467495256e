"""A trained model as plain files; no code runs when they are read but that of `model.py`, and that only if allowed.

    model.safetensors   the weights (https://github.com/huggingface/safetensors)
    trees-0.txt, ...    of a control that was published in place of a model: LightGBM's text of its trees
    model.json          the model's name and options, and the facts of the graph that size it
    model.py            where the model is the user's own: the file that it was trained with
    data.json, .npz     what it expects of data, and its fitted feature transforms (`tasks/apply/model/needs.py`)
    profile.json        what its training data looked like (`tasks/publish/profile.py`)
    trained.json, .npy  hashes of the ids of its training rows (`tasks/publish/champion/trained.py`)
    row_ids.parquet     ids of the rows that it learnt a vector of, if any (`tasks/apply/model/row_ids.py`)
    recipe.json         the whole recipe        lineage.json   digests of all artifacts, code version
    README.md           how to load it

`load_published(folder)` rebuilds the model.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.errors import IntegrityError
from configs.trust import allow
from tasks.storage.artifacts import file_digest, write_atomic
from tasks.storage.file_names import beside, file_name
from tasks.storage.stored import of_kind, read_json

if TYPE_CHECKING:
    from torch import Tensor

    from models.base import GraphModel
    from models.facts import GraphFacts
    from tasks.inference.rule import Rule
    from tasks.storage.dataset_store import DatasetStore

WEIGHTS = "model.safetensors"
MODEL = "model.json"
MARKS = frozenset({WEIGHTS, MODEL, "lineage.json"})
"""What every model has among its files."""
FILES = MARKS | {"README.md", "recipe.json", "model.py", "data.json", "data.npz"}
FILES |= {"profile.json", "trained.json", "trained.npy", "row_ids.parquet"}
FILES |= {f"trees-{number}.txt" for number in range(100)}
"""All that a model may have among its files."""

README = """# {name}

A graph model trained by graphmill. Weights: `model.safetensors`; nothing here is pickled.

```python
from pathlib import Path
from tasks.apply.model.files import load_published

model = load_published(Path("."){trust})   # a torch.nn.Module in evaluation mode
```

`recipe.json` holds the recipe, `lineage.json` the digests of the data and of every stage's output, `data.json` and
`data.npz` the feature columns that it reads and the transforms as they were fitted. `profile.json` tells sizes,
degrees, labels and features of its training data, `trained.npy` holds hashes of the ids of its training rows: with them
a later model is compared with this one on rows that neither has seen.
"""
OWN_CODE = """
The model is not one of graphmill's: `model.py` is the file that it was trained with. Loading the model runs that file,
so read it first, then say which content you have read: its sha256, as `sha256sum model.py` prints it. Without that, or
with another file, nothing runs.
"""


def write_model(
    folder: Path,
    checkpoint: Path,
    name: str,
    recipe: dict[str, Any],
    lineage: dict[str, Any],
    notes: Sequence[str] = (),
) -> int:
    """Write a model's files into `folder`; returns the number of weights.

    `checkpoint` is a training's `best.pt`, read without unpickling code; `notes` are sentences for its README. Raises
    IntegrityError: it is not a checkpoint.
    """
    from tasks.train.job import OWN_MODEL
    from tasks.train.state.checkpoint import load

    state = load(checkpoint, mapped=True)
    folder.mkdir(parents=True, exist_ok=True)
    weights = write_tensors(folder / WEIGHTS, state["model"], ("format", "pt"))
    described = {"config": state["model_config"]}
    described |= {key: state.get(key) for key in ("facts", "table_on_host", "epoch")}
    for file, content in ((MODEL, described), ("recipe.json", recipe), ("lineage.json", lineage)):
        write_atomic(folder / file, json.dumps(content, indent=1).encode())
    own_code = state["model_config"].get("file") is not None
    readme = README.format(name=name, trust=', trust_code="SHA256 OF model.py"' if own_code else "")
    if own_code:
        shutil.copyfile(checkpoint.parent / OWN_MODEL, folder / OWN_MODEL)
        readme += OWN_CODE
    readme += "".join(f"\n{note}\n" for note in notes)
    write_atomic(folder / "README.md", readme.encode())
    return weights


CONTROL_README = """# {name}

{what}: a control, published by graphmill in place of a trained model, for it was better on the validation rows.
`model.safetensors` has what it learnt, `trees-N.txt` LightGBM's trees, `model.json` its name; nothing here is pickled.
`graphmill predict` scores rows with it as with a model; the other files are those that a model has.
"""


def write_control(folder: Path, control: str, facts: GraphFacts, state: dict[str, Any], trees: list[str]) -> None:
    """Write what a control learnt in the place of a model's files: arrays, and LightGBM's trees of each label."""
    import torch

    for number, text in enumerate(trees):
        if text:
            (folder / file_name(f"trees-{number}.txt")).write_text(text, encoding="utf-8")
    tensors = {name: torch.from_numpy(values.copy()) for name, values in state.items()}
    write_tensors(folder / WEIGHTS, tensors or {"nothing": torch.empty(0)}, ("format", "pt"))
    described = {"config": {"name": control}, "facts": asdict(facts), "control": control}
    write_atomic(folder / MODEL, json.dumps(described, indent=1).encode())
    (folder / "row_ids.parquet").unlink(missing_ok=True)


def model_digest(folder: Path) -> str:
    """Return a digest of what decides a model's answers: weights, options, fitted transforms."""
    left_out = {"README.md", "recipe.json", "lineage.json", "profile.json", "trained.json", "trained.npy"}
    files = {path.name: file_digest(path) for path in folder.iterdir() if path.name not in left_out}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def load_published(folder: Path, trust_code: str | None = None) -> GraphModel:
    """Rebuild a model from its files, in evaluation mode; or the control that was published in place of one.

    `trust_code`: sha256 of the `model.py` that you have read; it runs from now on in this process (`configs.trust`).
    Raises IntegrityError: they do not fit together; RecipeError: `model.py` is not what the model was trained with, or
    does not run here; UntrustedCodeError: nobody has allowed it to run.
    """
    from tasks.train.job import OWN_MODEL
    from tasks.train.state.checkpoint import rebuild_model

    if trust_code is not None:
        allow([trust_code], "trust_code")
    try:
        described = of_kind(dict[str, Any], read_json(folder / MODEL), folder / MODEL)
        for name in ("config", "facts"):
            of_kind(dict[str, Any], described.get(name), f"{folder / MODEL}: {name}")
        weights = read_tensors(folder / WEIGHTS)
    except OSError as error:
        raise IntegrityError(f"{folder} does not hold a whole model: {error}") from error
    if "control" in described:
        return _load_control(folder, described, weights)
    try:
        return rebuild_model(described["config"], described, weights, folder / OWN_MODEL)
    except (RuntimeError, KeyError) as error:
        raise IntegrityError(f"{folder / WEIGHTS} does not fit {MODEL}: {error}") from error


def _load_control(folder: Path, described: dict[str, Any], weights: dict[str, Tensor]) -> Rule:
    from models.facts import GraphFacts
    from tasks.apply.model.needs import DataNeeds, recoding_of
    from tasks.controls.published import PublishedControl

    facts = of_kind(GraphFacts, described["facts"], f"{folder / MODEL}: facts")
    state = {name: tensor.numpy() for name, tensor in weights.items()}

    def codes(dataset: DatasetStore) -> dict[str, Any]:
        recoding = recoding_of(DataNeeds.read(folder), dataset)
        return {} if recoding is None else {column: one["codes"] for column, one in recoding.nodes.items()}

    return PublishedControl(str(described["control"]), facts, state, folder, codes)


def write_tensors(path: Path, tensors: dict[str, Tensor], note: tuple[str, str]) -> int:
    """Write tensors as a safetensors file, whole or not at all; returns the number of values.

    `note` is name and value of the header's one entry: the format orders several by chance, and equal weights are to
    make equal files.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    seen, separate = set(), {}  # contiguous on the CPU, and copied where memory is shared: weights may be tied
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if place in seen else plain
        seen.add(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = beside(path, f".{os.getpid()}-{secrets.token_hex(3)}")
    try:
        draft.touch()
        mode = draft.stat().st_mode  # the library's own files are their owner's only
        try:
            save_file(separate, draft, dict([note]))
        except SafetensorError as error:
            if f"os error {errno.ENOSPC}" in str(error):  # the library has no other word for it
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise
        draft.chmod(mode)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return sum(tensor.numel() for tensor in tensors.values())


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a safetensors file's tensors; reads its header only. Raises IntegrityError if damaged."""
    with _open_weights(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file onto the CPU, from the disk as its tensors are used. Raises IntegrityError if damaged.

    The tensors may be written to, which does not change the file.
    """
    with _open_weights(path) as file:
        tensors: dict[str, Tensor] = file.get_tensors()
    return tensors


@contextlib.contextmanager
def _open_weights(path: Path) -> Iterator[Any]:
    """Open a safetensors file, whose sizes the library checks; nothing in one is code."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise IntegrityError(f"{path} is not a whole safetensors file: {error}") from error
