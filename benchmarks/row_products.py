"""Whether a row of a product keeps its bits beside other rows: MKL, oneDNN and graphmill's own products.

    python -m benchmarks.row_products

338 shapes of weights, of each the first 64 to 2,048 rows against the same rows among 4,096: 3,380 cases, in float32 and
bfloat16, with the instructions that this processor has and with fewer, which stand for other processors. Then how fast
three products are, on one thread.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from models.kernels.dense.row_products import stable_rows

SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41"},
)
WIDTHS = (1, 2, 3, 7, 8, 16, 24, 33, 64, 100, 128, 136, 150, 200, 255, 256, 272, 300, 384, 500, 512, 602, 768, 1000,
          1433, 2048)  # fmt: skip
COLUMNS = (1, 2, 3, 4, 8, 16, 24, 40, 47, 64, 128, 136, 256)
ROWS = (64, 128, 192, 256, 320, 448, 512, 704, 1024, 2048)
SPEEDS = ((15_000, 256, 256), (20_000, 100, 128), (20_000, 500, 16))


def by_onednn(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W^T + b by oneDNN, rounding nothing."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def by_rows(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return it as a pass does whose rows may be taken over."""
    with stable_rows():
        return F.linear(x, weight, bias)


def halves(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the function of bfloat16."""
    return lambda *tensors: function(*(one.bfloat16() for one in tensors))


WAYS: dict[str, Callable[..., Tensor]] = {
    "torch": F.linear, "oneDNN": by_onednn, "graphmill": by_rows, "torch, bfloat16": halves(F.linear),
    "graphmill, bfloat16": halves(by_rows),
}  # fmt: skip


def count() -> None:
    """Print how many cases differ."""
    generator = torch.Generator().manual_seed(0)
    differing = dict.fromkeys(WAYS, 0)
    for width in WIDTHS:
        for columns in COLUMNS:
            weight, bias, x = (
                torch.randn(*shape, generator=generator) for shape in ((columns, width), (columns,), (4096, width))
            )
            for name, multiply in WAYS.items():
                whole = multiply(x, weight, bias)
                differing[name] += sum(not torch.equal(multiply(x[:n], weight, bias), whole[:n]) for n in ROWS)
    cases = len(WIDTHS) * len(COLUMNS) * len(ROWS)
    print(f"of {cases:,}: " + ", ".join(f"{name} {number:,}" for name, number in differing.items()), flush=True)


def measure() -> None:
    """Print GFLOP/s of each way, the best of seven."""
    for rows, width, columns in SPEEDS:
        x, weight, bias = torch.randn(rows, width), torch.randn(columns, width), torch.randn(columns)
        speeds = []
        for name in ("torch", "oneDNN", "graphmill"):
            WAYS[name](x, weight, bias)
            seconds = []
            for _ in range(7):
                started = time.thread_time()
                WAYS[name](x, weight, bias)
                seconds.append(time.thread_time() - started)
            speeds.append(f"{name} {2e-9 * rows * width * columns / min(seconds):.0f}")
        print(f"{rows:,} x {width} times {width} x {columns}, GFLOP/s: {', '.join(speeds)}", flush=True)


def main() -> None:
    """Count under each setting in a process of its own: libraries read them as they start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="count under this process's settings only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        if options.here:
            count()
            return
        for setting in SETTINGS:
            print(" ".join(f"{name}={value}" for name, value in setting.items()) or "as it is", end=": ", flush=True)
            command = [sys.executable, "-m", "benchmarks.row_products", "--here"]
            subprocess.run(command, env={**os.environ, **setting}, check=True)
        measure()


if __name__ == "__main__":
    main()
