#!/usr/bin/env bash
# What graphmill needs from Debian or Ubuntu beside Python 3.11/3.12. Run as root: sudo bash scripts/debian.sh
set -euo pipefail
apt-get update -q
apt-get install -y --no-install-recommends \
  git make \
  python3-venv \
  libgomp1 # DGL's kernels are OpenMP code
