"""Where the tests of Triton kernels run: on a GPU, or where there is none in Triton's interpreter.

Imported before any kernel, which is made for the one or the other when its module is read.
"""

from __future__ import annotations

import importlib
import os

import pytest
import torch

from models.kernels.backends import has_triton
from tests.gpu import launches
from tests.needs import reason

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
    if has_triton():
        launches.record()


def missing(least: tuple[int, int]) -> str:
    """Why kernels cannot run here; empty: they can. `least`: the first version whose interpreter runs them."""
    if not has_triton():
        return reason("Triton")
    version: str = importlib.import_module("triton").__version__
    major, minor = (int(number) for number in version.split(".")[:2])
    if DEVICE.type == "cpu" and (major, minor) < least:
        return reason(f"an interpreter that runs these kernels, as that of Triton {version} does not")
    return ""


def marks(least: tuple[int, int] = (0, 0)) -> list[pytest.MarkDecorator]:
    """Marks of a file of tests; `least` as in `missing`."""
    lacks = missing(least)
    return [
        pytest.mark.skipif(bool(lacks), reason=lacks),
        pytest.mark.filterwarnings(
            "ignore::RuntimeWarning"
        ),  # the interpreter's: overflow in hashes, 0 / 0 left unused
    ]


MARKS = marks()
MARKS_OF_TABLES = marks((3, 9))
"""Of the kernels that train tables."""
