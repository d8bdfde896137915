#!/bin/sh
# Installs gpu.lock into a folder of its own, imports what needs no GPU, and takes the folder away again: some 9 GB for
# some minutes. What a resolver calls fitting may still not load together. Usage: gpu.sh path/to/python
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM

"$python" -m venv --without-pip "$folder"
echo "installing $(grep -c == "$here/gpu.lock") pinned packages with CUDA; several GB"
# Without compiling: only what is imported gets compiled then.
"$python" -m pip --python "$folder/bin/python" install --quiet --no-cache-dir --no-compile --no-deps --require-hashes \
    --only-binary :all: -r "$here/gpu.lock"
"$folder/bin/python" "$here/gpu.py"
