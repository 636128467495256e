"""All tests that a GPU changes, in one command: `python -m tests.gpu [--parts kernels,ranks] [-x] [-k WORDS]`.

They are those of this folder, and those of Triton's kernels, which run in its interpreter where there is no GPU.
Further options go to pytest. Each result is kept as it comes, a JSON line, and a test that breaks the GPU's context,
crashes or takes longer than the limit costs itself only. Neither Prefect nor MLflow, DGL, OGB or METIS is needed, nor
pytest-timeout. Under compute-sanitizer: `compute-sanitizer --target-processes all python -m tests.gpu --parts kernels`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.gpu.watch import AGAIN, Watch, results

TESTS = Path(__file__).parents[1]
FILES = sorted(str(path) for path in TESTS.rglob("test_*.py") if "from tests.triton_device" in path.read_text())
PARTS = {
    "kernels": "test_triton or test_skipgram_triton",
    "sampling": "test_device_triton or test_device_neighbors or test_device_rows",
    "tables": "test_device_tables",
    "steps": "test_device_sampling",
    "models": "test_models",
    "bits": "test_equal_bits or test_upload",
    "large": "test_large_tables",
    "ranks": "test_ranks",
}
"""Files by their names, as pytest's -k has them."""


class NoTimeouts:
    """Knows pytest-timeout's option and mark, and does nothing with them."""

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        parser.addini("timeout", "seconds of a test")

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "timeout(seconds): of a test")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", type=lambda text: text.split(","), default=[], help=f"of {','.join(PARTS)}")
    parser.add_argument("--limit", type=float, default=150, help="seconds of a test")
    parser.add_argument("--results", type=Path, default=Path("build/gpu-tests.jsonl"), help="a JSON line a test")
    parser.add_argument("-k", default="", help="pytest's: of the tests, those whose names have these words")
    parser.add_argument("--files", nargs="+", default=[str(Path(__file__).parent), *FILES], help="other ones")
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    args, others = parser.parse_known_args(arguments)
    if unknown := set(args.parts) - PARTS.keys():
        parser.error(f"--parts: {', '.join(sorted(unknown))} is none of {', '.join(PARTS)}")
    if args.in_this_process:
        return run_here(args, others)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    args.results.unlink(missing_ok=True)
    while True:
        before = len(results(args.results))
        command = [sys.executable, "-m", "tests.gpu", "--in-this-process", *arguments]
        status = subprocess.run(command, env={**os.environ, "GRAPHMILL_GPU_TESTS": "1"}).returncode
        done = results(args.results)
        if (status != AGAIN and status >= 0) or len(done) == before:
            break
    if not done:
        return status
    counts = Counter(line["outcome"] for line in done.values())
    print(f"{args.results}: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")
    return int(status not in (0, AGAIN, 5) or bool(counts.keys() - {"passed", "skipped"}))


def run_here(args: argparse.Namespace, others: list[str]) -> int:
    words = " and ".join(f"({each})" for each in (" or ".join(PARTS[part] for part in args.parts), args.k) if each)
    plugins: list[object] = [Watch(args.results, args.limit)]
    if not importlib.util.find_spec("pytest_timeout"):
        plugins.append(NoTimeouts())
    options = ["-q", "-W", "default", "-o", "faulthandler_timeout=0", *(["-k", words] if words else []), *others]
    return int(pytest.main([*options, *args.files], plugins))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
