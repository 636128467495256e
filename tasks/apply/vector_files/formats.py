"""Formats of vectors, apart from what writes them: the command line is checked without NumPy."""

import filecmp
from pathlib import Path

from configs.errors import DataError

_IDS = ".ids.parquet"

ENDINGS = {
    "parquet": ".parquet",
    "npy": ".npy",
    "safetensors": ".safetensors",
    "word2vec": ".txt",
    "word2vec-binary": ".bin",
}
"""How files' names end."""
COMPLETION_ENDINGS = {"parquet": ".parquet", "csv": ".csv", "csv.gz": ".csv.gz"}
"""Of completions of triples."""
HAS_IDS_BESIDE = frozenset({"npy", "safetensors"})


def ids_path(matrix: Path) -> Path:
    """Return where the ids of a matrix' rows stand: `x.npy` and `x.safetensors` have `x.ids.parquet`."""
    return matrix.with_name(f"{matrix.stem}{_IDS}")


def refuse_other_ids(work: Path, output: Path) -> None:
    """Raise DataError if the ids that lie in `work` would replace those of another matrix beside `output`.

    `x.npy` and `x.safetensors` share theirs: of one model and one graph they are the same.
    """
    new, old = next(work.glob(f"*{_IDS}"), None), ids_path(output)
    others = [output.with_suffix(suffix) for suffix in (".npy", ".safetensors") if suffix != output.suffix]
    other = next((path for path in others if path.exists()), None)
    if other is None or new is None or not old.exists() or filecmp.cmp(new, old, shallow=False):
        return
    raise DataError(f"{old.name} holds the ids of {other.name}, which differ; write to another name than {output}")
