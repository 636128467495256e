#!/usr/bin/env bash
# What graphmill needs from Debian or Ubuntu beside Python 3.11 to 3.13. Run as root: sudo bash scripts/debian.sh
# With --developer also what the tests of services, pages and machines need: `make developer` calls it.
# With --containers also what those need that build and run containers: `make containers` calls it.
set -euo pipefail
packages=(
  git make
  python3-venv
  libgomp1 # DGL's kernels are OpenMP code
)
case ${1:-} in
  --developer)
    packages+=(postgresql chromium docker-compose)
    command -v kubectl >/dev/null || packages+=(kubernetes-client)
    ;;
  --containers)
    packages+=(podman runc iptables netavark aardvark-dns debootstrap docker-compose)
    ;;
  "") ;;
  *) echo "$0 [--developer | --containers]" >&2; exit 2 ;;
esac
export DEBIAN_FRONTEND=noninteractive # nobody answers in CI
apt-get update -q
apt-get install -y --no-install-recommends "${packages[@]}"
if [ "${1:-}" = --developer ]; then
  echo "Debian starts PostgreSQL as a service; the tests do not use it: systemctl disable --now postgresql"
fi
