#!/bin/sh
# Makes .venv of a Python that the locks resolve for: $PYTHON, else one of this machine, else the one that uv brings.
set -eu

fits() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)))' 2>/dev/null; }

for python in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    fits "$python" || continue
    echo "setting up .venv with $("$python" -V)"
    "$python" -m venv .venv || { rm -rf .venv; exit 1; }
    exec .venv/bin/pip install --quiet --upgrade pip
done

if [ -z "${PYTHON:-}" ] && command -v uv >/dev/null; then
    echo "setting up .venv with Python 3.11, which uv brings"
    uv venv --quiet --seed --python 3.11 .venv && exit
    rm -rf .venv
fi
echo "Parlance needs Python 3.11, 3.12 or 3.13: install one, or uv, or name it with PYTHON=/path/to/python3.11" >&2
exit 1
