#!/bin/sh
# Resolves the locks anew from pyproject.toml. Usage: lock.sh path/to/uv
set -eu
cd "$(dirname "$0")"

resolve() { # lock extras...
    lock=$1
    shift
    "$UV" pip compile ../pyproject.toml --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
        --generate-hashes --no-annotate --no-header --quiet "$@" --output-file "$lock"
}

UV=$1
if [ -n "${PIP_FIND_LINKS:-}" ]; then export UV_FIND_LINKS="$PIP_FIND_LINKS"; fi
resolve cpu.lock --extra cpu --extra speech --extra transcription --extra embedded --override cpu-overrides.txt
UV_FIND_LINKS= resolve gpu.lock --extra gpu --extra speech --extra transcription  # a local wheel of the CPU build must not be taken for it
UV_FIND_LINKS= resolve ingress.lock --constraint gpu.lock  # heads and ingress replicas beside engines of that lock
# The wheel that holds the network for speech, without Whisper's engine.
awk '/^[a-z]/ { keep = /^faster-whisper==/ } keep' gpu.lock >listening.lock
resolve dev.full --extra dev --override cpu-overrides.txt --constraint cpu.lock
resolve batch.full --extra batch --override cpu-overrides.txt --constraint cpu.lock --constraint dev.full

# torch's +cpu build comes from an index of its own; the locks of dev and batch hold only what those of the engines lack.
# Its hashes are kept for as long as its version: an index may have the wheel of one Python only.
torch=$(grep -o '^torch==[^ ]*' cpu.lock)
grep -q "^$torch " torch-cpu.txt || awk '/^[a-z]/ { keep = /^torch==/ } keep' cpu.lock >torch-cpu.txt
awk '/^[a-z]/ { keep = !/^torch==/ } keep' cpu.lock >cpu.tmp && mv cpu.tmp cpu.lock
awk 'NR == FNR { if (/^[a-z]/) have[$1]; next } /^[a-z]/ { keep = !($1 in have) } keep' cpu.lock dev.full >dev.lock
awk 'NR == FNR { if (/^[a-z]/) have[$1]; next } /^[a-z]/ { keep = !($1 in have) } keep' cpu.lock batch.full >batch.lock
rm dev.full batch.full

# Environments that lie beside the main one hold only what they need otherwise than it.
beside() { # name arguments...
    name=$1
    shift
    "$UV" pip compile "$name.in" --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
        --generate-hashes --no-annotate --no-header --quiet "$@" --output-file "$name.lock"
}
beside qwen --no-deps
beside cosyvoice-build --constraint cosyvoice.lock
beside pip
beside uv
beside conformance
beside browser
beside audit
beside campaign
beside peer-litellm
beside peer-kokoro
beside peer-llama --no-deps
beside peer-router --no-deps
beside peer-serve-llm --no-deps
beside peer-infinity --override cpu-overrides.txt --no-emit-package torch  # which is taken from the main environment
