#!/bin/sh
# Makes .venv of a Python that the locks resolve for: $PYTHON, else one of this machine, else the one that uv brings.
set -eu
here=${0%/*} # pip.lock and uv.lock hold what installs all else, by its hash

# A first start with less than README.md asks for is allowed, but should not fail unexplained after minutes.
if table=$(LC_ALL=C df -Pk . 2>/dev/null); then
    set -- ${table##*Mounted on}
    [ "$4" -ge 7340032 ] || echo "warning: $(($4 / 1048576)) GiB of disk are free here; Parlance needs about 7" >&2
fi
while read -r name kib _; do
    [ "$name" != MemTotal: ] || [ "$kib" -ge 7340032 ] ||
        echo "warning: this machine has $((kib / 1048576)) GiB of memory; below 8, use \`make serve SMALL=yes\`" >&2
done </proc/meminfo

fits() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)))' 2>/dev/null; }

for python in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    fits "$python" || continue
    echo "setting up .venv with $("$python" -V)"
    "$python" -m venv .venv &&
        .venv/bin/pip install --quiet --require-hashes --only-binary :all: -r "$here/pip.lock" -r "$here/uv.lock" && exit
    rm -rf .venv
    exit 1
done

if [ -z "${PYTHON:-}" ] && command -v uv >/dev/null; then
    echo "setting up .venv with Python 3.11, which uv brings"
    uv venv --quiet --python 3.11 .venv &&
        uv pip install --quiet --python .venv --require-hashes --only-binary :all: -r "$here/pip.lock" -r "$here/uv.lock" && exit
    rm -rf .venv
fi
echo "Parlance needs Python 3.11, 3.12 or 3.13: install one, or uv, or name it with PYTHON=/path/to/python3.11" >&2
exit 1
