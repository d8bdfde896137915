"""The images of `cluster/Dockerfile`, built from a debootstrap base, pushed to a registry on loopback and pulled again.

What a build needs of this machine to reach its indexes (a certificate, a configuration of pip) is a matter of its
containers.conf(5). `engine` is built with the libraries for CPUs, because those of CUDA cannot run here.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import httpx
import yaml

from benchmarks.servers import free_port
from tests.docs.pages import ROOT
from tests.waiting import eventually

BASE = "localhost/parlance-base"
TARGETS = ("ingress", "engine")
PACKAGES = "python3.11-venv libpython3.11-dev ca-certificates libsndfile1"
"""The last is for indexes that hold only the wheel of soundfile which has no library in it."""
INSTALL = f"apt-get update && apt-get install --yes --no-install-recommends {PACKAGES}"
BUILD_S = 1800


def done(*command: str | Path, within_s: float = BUILD_S) -> str:
    """The output of a command, which must not fail."""
    words = [str(word) for word in command]
    # The monitor of a container leaves a file `oom` where podman was started, if the container needs too much memory.
    finished = subprocess.run(words, capture_output=True, text=True, timeout=within_s, check=False, cwd=gettempdir())
    assert finished.returncode == 0, f"{words}: {finished.stdout[-2000:]}{finished.stderr[-2000:]}"
    return finished.stdout.strip()


def exists(image: str) -> bool:
    """Tells if this machine has the image."""
    found = subprocess.run(["buildah", "inspect", "--type=image", image], capture_output=True, check=False)
    return found.returncode == 0


def make_base(folder: Path) -> None:
    """Makes the image that `--build-arg PYTHON=` names, unless a run before has."""
    if exists(BASE):
        return
    root = folder / "base"
    done("debootstrap", "--variant=minbase", "bookworm", root)
    container = done("buildah", "from", "scratch")
    done("buildah", "add", "--quiet", container, root, "/")
    install = f"{INSTALL} && ln -s python3.11 /usr/bin/python"
    done("buildah", "run", "--isolation=chroot", container, "--", "sh", "-c", install)
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    done("buildah", "config", "--env", path, container)
    done("buildah", "commit", "--quiet", "--rm", container, BASE)
    shutil.rmtree(root)


def build(target: str, folder: Path, libraries: str = "cpu") -> None:
    """Builds a target out of the last commit, as a clone has it. No layer is kept apart: each is a copy."""
    context = folder / f"context-{target}"
    done("git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", context)
    options = (
        "--isolation=chroot",
        "--format=docker",
        "--quiet",
        f"--build-arg=PYTHON={BASE}",
        f"--build-arg=LIBS={libraries}",
    )
    file = context / "cluster/Dockerfile"
    done("buildah", "build", *options, f"--file={file}", f"--target={target}", f"--tag={local(target)}", context)
    shutil.rmtree(context)


def local(target: str) -> str:
    """The name of an image before it is pushed."""
    return f"localhost/parlance-{target}"


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """The address of a registry on loopback, which keeps its files in `folder` for the block."""
    address, config = f"127.0.0.1:{free_port()}", folder / "registry.yaml"
    storage = {"filesystem": {"rootdirectory": str(folder / "registry")}}
    config.write_text(yaml.safe_dump({"version": 0.1, "storage": storage, "http": {"addr": address}}), "utf-8")
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", config], stdout=log, stderr=log)
    try:
        eventually(lambda: _answers(address), 30, "the registry never answered")
        yield address
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder / "registry", ignore_errors=True)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/v2/", timeout=2).is_success
    except httpx.TransportError:
        return False


def push_and_pull(target: str, address: str) -> str:
    """Pushes an image, forgets it, and pulls it under the name that pods use."""
    name = f"{address}/parlance-{target}:rehearsal"
    done("podman", "push", "--quiet", "--tls-verify=false", local(target), name)
    done("podman", "pull", "--quiet", "--tls-verify=false", name)
    return name
