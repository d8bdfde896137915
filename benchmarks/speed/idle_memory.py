"""What a graph takes in memory while every engine is at zero, process by process.

    python -m benchmarks.speed.idle_memory
    python -m benchmarks.speed.idle_memory --awake          and with the engines awake one after the other

PSS shares out what several processes have in common, so the sum is what the machine would have back. Its own is what
the kernel cannot take from a process: no other has it, and no file.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path

import psutil

from benchmarks.servers import Server, working_folder
from benchmarks.speed.cold_requests import CAPABILITIES
from benchmarks.speed.cold_start import WITH, await_zero, graph, wait, warm_up

MIB = 1 << 20


def of_graph(folder: Path) -> list[psutil.Process]:
    """All processes of the graph whose Ray has its folder in `folder`."""
    processes = {process for process in psutil.process_iter() if _is_of(process, folder)}
    for process in list(processes):
        processes.update(process.children(recursive=True))
    return sorted(processes, key=lambda process: process.pid)


def _is_of(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(Path(file.path).is_relative_to(folder) for file in process.open_files())
    except psutil.Error:
        return False


def title(process: psutil.Process) -> str:
    """What `ps` shows, shortened to what tells it from others."""
    line = " ".join(process.cmdline()).strip()
    if named := re.match(r"(ray::(?:ServeReplica[\w:.-]+|\w+)|parlance::\w+)", line):
        return re.sub(r"(ingress|\w)#.*", r"\1", named[1])
    if "-m deployments.fork_server" in line:  # before it has its title
        return "parlance::ForkServer"
    for part in ("-m launch", "gcs_server", "raylet/raylet", "haproxy"):
        if part in line:
            return "python -m launch" if part == "-m launch" else Path(part).stem
    return str(process.name())


def memory_mib(process: psutil.Process) -> tuple[float, ...]:
    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    sizes = {match[1]: int(match[2]) / 1024 for match in re.finditer(r"^(\w+): +(\d+) kB", text, re.M)}
    return sizes["Pss"], sizes["Private_Dirty"], sizes["Rss"]


def table(folder: Path) -> str:
    rows: defaultdict[str, list[tuple[float, ...]]] = defaultdict(list)
    for process in of_graph(folder):
        rows[title(process)].append(memory_mib(process))
    sums = {name: tuple(map(sum, zip(*sizes, strict=True))) for name, sizes in rows.items()}
    lines = ["| process | how many | PSS MiB | its own | RSS MiB |", "|---|---|---|---|---|"]
    for name, (pss, own, rss) in sorted(sums.items(), key=lambda row: -row[1][0]):
        lines.append(f"| `{name}` | {len(rows[name])} | {pss:.0f} | {own:.0f} | {rss:.0f} |")
    all_pss, all_own, _ = map(sum, zip(*sums.values(), strict=True))
    return "\n".join([*lines, f"| **all** | | **{all_pss:.0f}** | **{all_own:.0f}** | |"])


def measure(folder: Path, awake: bool) -> None:
    with graph(folder, WITH) as (server, session):
        warm_up(server, session, WITH)
        await_zero(server, CAPABILITIES["chat"].deployment)
        wait(lambda: not engines(session), "an engine at zero has a process")
        print(f"\nAll engines at zero\n\n{table(session)}", flush=True)
        for name in CAPABILITIES if awake else ():
            one_awake(server, session, name)


def engines(session: Path) -> list[str]:
    titles = [title(process) for process in of_graph(session)]
    return [name for name in titles if name.startswith("ray::ServeReplica") and "ingress" not in name]


def one_awake(server: Server, session: Path, name: str) -> None:
    """Prints the table while one engine is awake."""
    CAPABILITIES[name].answered_s(server)
    print(f"\n{name} awake\n\n{table(session)}", flush=True)
    await_zero(server, CAPABILITIES[name].deployment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--awake", action="store_true", help="also with each engine awake")
    options = parser.parse_args()
    with working_folder("memory-") as folder:
        measure(folder, options.awake)


if __name__ == "__main__":
    main()
