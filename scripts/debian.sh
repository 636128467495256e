#!/usr/bin/env bash
# What graphmill needs from Debian or Ubuntu beside Python 3.11 to 3.13. Run as root: sudo bash scripts/debian.sh
# With --developer also what the tests of services, pages and containers need; without it they are skipped.
set -euo pipefail
packages=(
  git make
  python3-venv
  libgomp1 # DGL's kernels are OpenMP code
)
case ${1:-} in
  --developer) packages+=(postgresql chromium docker-compose) ;;
  "") ;;
  *) echo "$0 [--developer]" >&2; exit 2 ;;
esac
apt-get update -q
apt-get install -y --no-install-recommends "${packages[@]}"
