#!/usr/bin/env bash
# Make .venv with everything pinned. Without an NVIDIA driver a CPU build of torch is preferred (minutes, not gigabytes).
# With --developer also Triton, and in build/packages what only tests want; without them they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
"$python" - <<'EOF' || exit 1
import sys
if not (3, 11) <= sys.version_info[:2] < (3, 14):
    sys.exit(f"graphmill needs Python 3.11, 3.12 or 3.13, this is {sys.version.split()[0]}; set PYTHON=python3.12")
if sys.version_info >= (3, 13):
    print("setup: DGL has no wheel for Python 3.13: without the model dgl and `export graph` (PYTHON=python3.12 has them)")
EOF
[ -x .venv/bin/python ] || "$python" -m venv .venv
# Of all that lies there byte code takes a minute: only of what is imported below, or later.
pip=(.venv/bin/python -m pip --disable-pip-version-check install --quiet --no-compile)
torch=$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
  echo "setup: NVIDIA GPU found, installing $torch with CUDA"
  "${pip[@]}" "$torch"
else
  echo "setup: no GPU, installing $torch for CPU"
  # The CPU index's build (2.x+cpu) counts as newer than the plain one; where that index is out of reach pip goes on without.
  "${pip[@]}" --retries 0 --timeout 15 --extra-index-url https://download.pytorch.org/whl/cpu "$torch"
fi
echo "setup: installing graphmill and its packages (about two minutes)"
extras=dev
[ "${1:-}" = --developer ] && extras=dev,triton
"${pip[@]}" --constraint constraints.txt --editable ".[$extras]"
if [ "${1:-}" = --developer ]; then
  # Apart: Prefect imports prefect-kubernetes into every process that has it.
  apart=$(grep -iE '^(torch-geometric|xxhash|prefect-kubernetes|kubernetes_asyncio|kopf|iso8601|pyopenssl)==' constraints.txt)
  rm -rf build/packages
  # shellcheck disable=SC2086
  "${pip[@]}" --no-deps --target build/packages $apart
fi
.venv/bin/python -m pip --disable-pip-version-check check
echo "setup: making the databases that new homes begin with"
unset PYTHONDONTWRITEBYTECODE # where it stands, each command would compile torch, Prefect and the rest anew: half its time
.venv/bin/python -m flows.services.templates
.venv/bin/python -c "import flows.pipeline.train, flows.apply.flows, tasks.train.worker, tasks.evaluate.worker, tasks.apply.worker"
