#!/usr/bin/env bash
# Try another torch, as images for GPUs have it: `scripts/other_torch.sh 2.11.0 [PYTHON] [FOLDER]`.
#
# Makes a virtual environment with that torch from PyPI (a CUDA build: 3 GB to download, 7 GB on the disk, once), what
# training reads and pytest, but without Prefect, MLflow, DGL, OGB and METIS; then runs, on the CPU where there is no
# GPU, what is written against torch: every model, the pipeline, precision, ranks and checkpoints.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?"which torch? for example: scripts/other_torch.sh 2.11.0 python3.12"}
python=${2:-python3}
folder=${3:-build/torch-$version}

if [[ ! -x $folder/bin/python ]]; then
  "$python" -m venv "$folder"
fi
"$folder/bin/pip" install -q "torch==$version" numpy numba pyarrow scipy pydantic PyYAML typer rich psutil safetensors \
  isal zstandard matplotlib scikit-learn threadpoolctl packaging pytest pytest-timeout pytest-xdist
"$folder/bin/python" -c 'import sys, torch; print("Python", sys.version.split()[0], "torch", torch.__version__)'

export NUMBA_CACHE_DIR=$folder/kernels # kernels depend on numba's version and on Python's
try_gpu_tests=1
if "$folder/bin/python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  try_gpu_tests=0
fi
GRAPHMILL_TRY_GPU_TESTS=$try_gpu_tests "$folder/bin/python" -m pytest -q -p no:cacheprovider \
  tests/gpu tests/models/test_waiting.py tests/models/test_contract.py tests/train/test_precision.py \
  tests/train/test_pipeline.py tests/train/test_subgraph_loaders.py tests/train/test_gather.py -k "not dgl"
