#!/usr/bin/env bash
# Compile the one C file for which Triton wants a compiler at run time, its bridge to the CUDA driver, and put a stand-in
# for the compiler into the environment that hands it out: cuda-driver.sh VENV
# Triton 3.7 and later launch all kernels by it; the kernels themselves are compiled by Triton's own LLVM and ptxas.
set -euo pipefail
venv=$1
here=$(cd "$(dirname "$0")" && pwd)
backend=$("$venv/bin/python" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("triton").origin).parent / "backends/nvidia")')
include=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The driver's library comes from the host with the GPU; here a library of that name without content does.
: >"$work/empty.c"
gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so.1" "$work/empty.c"
mkdir -p "$venv/lib/triton-driver"
gcc -O3 -shared -fPIC -Wno-psabi -Wl,--no-as-needed -I "$backend/include" -I "$include" \
  "$backend/driver.c" -L "$work" -l:libcuda.so.1 -o "$venv/lib/triton-driver/cuda_utils.so"
install -m 0755 "$here/cc" "$venv/bin/gcc"
