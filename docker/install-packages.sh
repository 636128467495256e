#!/usr/bin/env bash
# Everything pinned that graphmill needs, into a new virtual environment: install-packages.sh VENV cpu|cuda [EXTRA,...]
set -euo pipefail
venv=$1 device=$2 extras=${3:-kubernetes,s3,cluster}
cd "$(dirname "$0")/.."
python -m venv "$venv"
pip=("$venv/bin/pip" install --quiet --disable-pip-version-check)
torch=$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
case $device in
  cpu) # 2.x+cpu counts as newer than the plain one, which is gigabytes of CUDA
    "${pip[@]}" --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu "$torch"
    "$venv/bin/python" -c 'import sys, torch; sys.exit(torch.version.cuda and "the index of CPU builds was out of reach")'
    ;;
  cuda) "${pip[@]}" "$torch" ;; # brings CUDA's wheels and Triton
  *) echo "DEVICE=$device: cpu or cuda" >&2; exit 2 ;;
esac
"$venv/bin/python" - "$extras" >/tmp/requirements.txt <<'EOF'
import sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
print(*project["dependencies"], *(name for extra in sys.argv[1].split(",") for name in extras[extra]), sep="\n")
EOF
"${pip[@]}" --constraint constraints.txt --requirement /tmp/requirements.txt
"$venv/bin/pip" --disable-pip-version-check check
