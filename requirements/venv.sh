#!/bin/sh
# Makes .venv of a Python that the locks resolve for: $PYTHON, else one of this machine, else the one that uv brings.
set -eu
lock=${0%/*}/pip.lock # what installs all else, by its hash

fits() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)))' 2>/dev/null; }

for python in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    fits "$python" || continue
    echo "setting up .venv with $("$python" -V)"
    "$python" -m venv .venv &&
        .venv/bin/pip install --quiet --require-hashes --only-binary :all: -r "$lock" && exit
    rm -rf .venv
    exit 1
done

if [ -z "${PYTHON:-}" ] && command -v uv >/dev/null; then
    echo "setting up .venv with Python 3.11, which uv brings"
    uv venv --quiet --python 3.11 .venv &&
        uv pip install --quiet --python .venv --require-hashes --only-binary :all: -r "$lock" && exit
    rm -rf .venv
fi
echo "Parlance needs Python 3.11, 3.12 or 3.13: install one, or uv, or name it with PYTHON=/path/to/python3.11" >&2
exit 1
