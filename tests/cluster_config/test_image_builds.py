"""The images, built from nothing and run as the pages say. It takes half an hour, 30 GB of disk, root and a network.

    apt-get install buildah debootstrap
    export STORAGE_DRIVER=overlay                       where the kernel lets root mount it: half the disk
    .venv/bin/python -m pytest -m slow tests/cluster_config/test_image_builds.py
    buildah rmi --all                                   the base is left, which makes the next run shorter

The base is Debian 12 with its own Python 3.11, as debootstrap makes it; `python:3.11-slim-bookworm` is the same Debian
with a Python of Docker's. Both have Python's headers, against which torch compiles when a chat engine starts. What a
build needs of this machine to reach its indexes (a certificate, a configuration of pip) is a matter of its
containers.conf(5). CosyVoice is left out: its stage clones a repository of a code host.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from benchmarks.servers import free_port
from tests.rehearsal.images import BASE, build, done, local, make_base

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

LIMITS = ("--ulimit=nofile=16384:16384", "--shm-size=1g")
"""As `docker run` gets them on the page, but for fewer files: who has 20,000 may not give more."""
USER = 1000
READY_WITHIN_S = 300


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image that `--build-arg PYTHON=` names."""
    if not (shutil.which("buildah") and shutil.which("debootstrap")):
        pytest.skip("buildah or debootstrap is not installed")
    if os.geteuid():
        pytest.skip("only root can make a base image with debootstrap")
    make_base(tmp_path_factory.mktemp("base"))
    return BASE


@contextmanager
def container_of(target: str, folder: Path) -> Iterator[str]:
    """A container of a freshly built image. No layer is kept apart: each would be a copy of some gigabytes."""
    build(target, folder, libraries="gpu")
    image = local(target)
    container = done("buildah", "from", *LIMITS, image)
    try:
        yield container
    finally:
        done("buildah", "rm", container)
        done("buildah", "rmi", image)


def config_of(container: str) -> dict[str, object]:
    """What a container engine would start it with."""
    config: dict[str, object] = json.loads(done("buildah", "inspect", container))["Docker"]["config"]
    return config


def command_in(container: str, *command: str) -> list[str]:
    """A command as the image's user, in its folder and environment."""
    return ["buildah", "run", "--isolation=chroot", container, "--", *command]


@contextmanager
def started(container: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command of the image, with further arguments. Its processes, which are among ours, end with the block."""
    words = config_of(container)["Cmd"]
    assert isinstance(words, list)
    child = subprocess.Popen(command_in(container, *words, *more), start_new_session=True)
    try:
        yield child
    finally:
        family = psutil.Process(child.pid).children(recursive=True) if child.poll() is None else []
        for process in family:
            if process.uids().real == USER:
                process.terminate()
        _, alive = psutil.wait_procs(family, 60)
        for process in alive:
            process.kill()
        child.wait(60)


def until_healthy(container: str, child: subprocess.Popen[bytes], *test: str) -> None:
    """Waits as a container engine does: until the command of HEALTHCHECK succeeds."""
    end_s = time.monotonic() + READY_WITHIN_S
    while subprocess.run(command_in(container, *test), stderr=subprocess.DEVNULL).returncode:
        assert child.poll() is None, "the container ended"
        assert time.monotonic() < end_s, "the container did not become healthy"
        time.sleep(1)


def health_check_of(container: str) -> list[str]:
    health = config_of(container)["Healthcheck"]
    assert isinstance(health, dict)
    kind, *command = health["Test"]
    assert kind == "CMD"
    return list(command)


def assert_the_program_is_not_the_users(container: str) -> None:
    owned = done(*command_in(container, "find", "/srv/parlance", "-user", "1000"))
    assert owned == ""
    assert done(*command_in(container, "id", "-u")) == "1000"
    done(*command_in(container, "touch", "/var/lib/parlance/mine"))


def test_the_embedded_image_answers_as_its_page_says(base: str, tmp_path: Path) -> None:
    with container_of("embedded", tmp_path) as container:
        assert_the_program_is_not_the_users(container)
        port = free_port()
        with started(container, "--port", str(port)) as child:
            health = [word.replace(":8000", f":{port}") for word in health_check_of(container)]
            until_healthy(container, child, *health)
            key = done(*command_in(container, "cat", "/var/lib/parlance/demo.key"))
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}/v1", headers={"Authorization": f"Bearer {key}"}
            ) as api:
                models = api.get("/models").json()["data"]
                model = next(each["id"] for each in models if each["kind"] == "chat")
                question = [{"role": "user", "content": "Name the capital of France."}]
                reply = api.post("/chat/completions", json={"model": model, "messages": question}, timeout=120)
                assert reply.status_code == 200, reply.text
                assert "Paris" in reply.json()["choices"][0]["message"]["content"]
                speech = api.post("/audio/speech", json={"input": "Hello.", "language": "en"}, timeout=120)
                assert len(speech.content) > 1000


def test_an_engine_has_the_libraries_of_a_gpu_and_a_compiler(base: str, tmp_path: Path) -> None:
    """`make rehearse` runs heads and engines as pods, with the libraries for CPUs."""
    with container_of("engine", tmp_path) as engine:
        assert_the_program_is_not_the_users(engine)
        done(*command_in(engine, "python", "requirements/gpu.py"))
        done(*command_in(engine, "g++", "--version"))
