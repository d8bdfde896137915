"""Bills of materials of what the locks pin, and its known vulnerabilities: `make audit`, in an environment of its own.

Writes var/sbom/LOCK.json (CycloneDX) for each lock, then asks the index of packages for advisories. Exit 1 if there is
a vulnerability. An index without advisories is no failure, but it is said: silence must not look like safety.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
BILLS = FOLDER.parent / "var/sbom"
LOCKS = sorted(FOLDER.glob("*.lock"), key=lambda lock: lock.stat().st_size)
"""The smallest first: it shows soonest whether the index has advisories."""


def main() -> None:
    """Prints a line for each lock and for each vulnerability."""
    BILLS.mkdir(parents=True, exist_ok=True)
    for lock in (*LOCKS, FOLDER / "torch-cpu.txt"):
        write_bill(lock, BILLS / f"{lock.stem}.json")
    print(f"{len(LOCKS) + 1} bills of materials in {BILLS}")
    sys.exit(1 if found_in(LOCKS) else 0)


def found_in(locks: Sequence[Path]) -> int:
    """Counts known vulnerabilities and prints them, lock by lock, until the index proves to have no advisories."""
    total = 0
    for lock in locks:
        packages = audit(lock)
        audited = [package for package in packages if "skip_reason" not in package]
        if not audited:
            print(f"{lock.name}: NOT AUDITED, nor what follows: the index of packages here has no advisories")
            break
        faults = list(vulnerabilities(audited))
        total += len(faults)
        print(f"{lock.name}: {len(audited)} of {len(packages)} packages audited, {len(faults)} vulnerabilities")
        print("".join(f"  {fault}\n" for fault in faults), end="")
    return total


def write_bill(lock: Path, bill: Path) -> None:
    """The packages of `lock` with versions and hashes, in CycloneDX's JSON; the same for the same lock."""
    command = ["-m", "cyclonedx_py", "requirements", str(lock), "--output-reproducible", "--output-file", str(bill)]
    subprocess.run([sys.executable, *command, "--output-format", "JSON"], check=True)


def audit(lock: Path) -> list[dict[str, Any]]:
    """Each package of `lock` as pip-audit tells of it; none where it could not ask at all."""
    command = ["-m", "pip_audit", "--requirement", str(lock), "--no-deps", "--disable-pip", "--format", "json"]
    done = subprocess.run(
        [sys.executable, *command, "--progress-spinner", "off"], capture_output=True, text=True, check=False
    )
    try:
        return list(json.loads(done.stdout)["dependencies"])
    except json.JSONDecodeError:
        print(done.stderr.strip()[-500:], file=sys.stderr)
        return []


def vulnerabilities(packages: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each advisory."""
    for package in packages:
        for advisory in package["vulns"]:
            remedy = ", ".join(advisory["fix_versions"]) or "no version yet"
            yield f"{package['name']} {package['version']}: {advisory['id']}, mended in {remedy}"


if __name__ == "__main__":
    main()
