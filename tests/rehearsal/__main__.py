"""Rehearses production on this machine: the images of `cluster/` as the pods of `cluster/kubernetes`.

    python -m tests.rehearsal             builds the images, and runs the story: half an hour, as root
    python -m tests.rehearsal --built     with the images of the run before
    python -m tests.rehearsal --publish   writes docs/made/rehearsal.json, too, for docs/cluster.md

Needs podman, runc, buildah, docker-registry, debootstrap, nginx, PostgreSQL, Redis and iproute2.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp

from tests.docs.pages import ROOT
from tests.rehearsal import images
from tests.rehearsal.place import Place, leftovers, place
from tests.rehearsal.story import STEPS, Record

PROGRAMS = ("podman", "runc", "buildah", "docker-registry", "debootstrap", "nginx", "redis-server", "ip", "openssl")
PUBLISHED = ROOT / "docs/made/rehearsal.json"


def main() -> None:
    """Entry point. Exits with 1 if a step failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description=__doc__.splitlines()[0])
    parser.add_argument("--built", action="store_true", help="take the images that an earlier run built")
    parser.add_argument("--publish", action="store_true", help=f"write {PUBLISHED.relative_to(ROOT)}")
    parser.add_argument("--only", nargs="*", metavar="STEP", help="of the story, these steps and the first three")
    parser.add_argument("--stream-s", type=int, default=60, help="how long the long stream lasts (60)")
    parser.add_argument("--keep", type=Path, help="folder for the logs of all pods")
    options = parser.parse_args()
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if os.geteuid() or missing or leftovers():
        sys.exit(f"needs root, these programs: {missing}, and no other rehearsal: {leftovers()}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # all is taken away then, too
    record, folder = Record(options.stream_s), Path(mkdtemp(prefix="rehearse-"))
    folder.chmod(0o755)
    try:
        ready = prepare(folder, record, options.built)
        with place(folder, ready, record.report) as here:
            os.environ["SSL_CERT_FILE"] = str(here.proxy.certificate)
            for name, step in STEPS.items():
                if options.only is None or name in [*list(STEPS)[:3], *options.only]:
                    try:
                        record.time(name, lambda step=step: step(here, record))
                    except Exception:
                        traceback.print_exc()
                        if name in list(STEPS)[:3]:
                            break
            if options.keep:
                keep(here, options.keep)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.publish:
        publish(record)
    print(f"{time.monotonic() - record.began_s:.0f} s in all; failed: {record.failed or 'nothing'}", flush=True)
    sys.exit(bool(record.failed))


def publish(record: Record) -> None:
    """Writes the record. Steps that this run left out stay as they were published."""
    row = record.row(datetime.now(UTC).date().isoformat())
    known = json.loads(PUBLISHED.read_text("utf-8"))["steps"] if PUBLISHED.exists() else []
    names = {step["step"] for step in row["steps"]}
    steps = [*(step for step in known if step["step"] not in names), *row["steps"]]
    PUBLISHED.write_text(json.dumps(row | {"steps": steps}, indent=1) + "\n", "utf-8")


def keep(here: Place, to: Path) -> None:
    """Copies what each pod has logged."""
    for pod in here.kubelet.pods:
        (to / pod.name).mkdir(parents=True, exist_ok=True)
        (to / pod.name / "log").write_text(pod.log(), "utf-8")
        for logs in pod.mounts["tmp"].glob("ray/session_2*/logs"):
            shutil.copytree(logs, to / pod.name / logs.parent.name, dirs_exist_ok=True)


def prepare(folder: Path, record: Record, is_built: bool) -> dict[str, str]:
    """The images by targets, as pods name them."""
    if is_built:
        return {target: images.local(target) for target in images.TARGETS}
    record.time("base image", lambda: images.make_base(folder))
    for target in images.TARGETS:
        record.time(f"image {target} built", lambda target=target: images.build(target, folder))
    with images.registry(folder) as address:
        pulled: dict[str, str] = {}
        for target in images.TARGETS:
            record.time(
                f"image {target} pushed to the registry and pulled",
                lambda target=target: pulled.update({target: images.push_and_pull(target, address)}),
            )
    return pulled


if __name__ == "__main__":
    main()
