"""Where the tests of Triton kernels run: on a GPU, or where there is none in Triton's interpreter.

Imported before any kernel, which is made for the one or the other when its module is read.
"""

from __future__ import annotations

import os

import pytest
import torch

from models.kernels.backends import has_triton

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
MARKS = [
    pytest.mark.skipif(not has_triton(), reason="Triton is not installed: pip install -e .[triton]"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # the interpreter's: overflow in hashes, 0 / 0 left unused
]
