"""Takes every right from this process that it does not need to read a client's sound, for good.

After `confine` the process may read and write what is open already, and use memory and time up to a limit:

    no new file, socket or pipe     RLIMIT_NOFILE, and the system calls are not on the list
    no growing file                 RLIMIT_FSIZE
    no process, thread or program   not on the list; no new privileges either way
    no tracing, signals, limits     not on the list

The list is a seccomp filter, on x86_64 and aarch64 Linux, as root or not; a Linux that refuses it makes `confine` fail.
On other machines the limits alone hold. Landlock and namespaces would add nothing: what they guard begins with a file,
socket or process that cannot be opened here.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys

MEMORY_BYTES = 512 * 1024**2
"""Address space. An idle child with PyAV has 120 MiB."""

_SYSTEM_CALLS = {
    # name: number on x86_64, on aarch64
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "exit": (60, 93),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the table, and the kernel's name for the machine."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
"""Results of a filter; a refused call fails with EPERM."""


def confine(cpu_s: int | None, memory_bytes: int = MEMORY_BYTES) -> None:
    """Confines this process, which must have one thread, for good.

    Args:
        cpu_s: seconds of processor time that it may still use; None: without a limit.
        memory_bytes: address space that it may have.

    Raises OSError where the kernel refuses.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 3,
    }
    if cpu_s is not None:
        limits[resource.RLIMIT_CPU] = cpu_s + int(used.ru_utime + used.ru_stime) + 1
    # Loaded before the limits: afterwards no library could be opened.
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None
    for name, value in limits.items():
        resource.setrlimit(name, (value, value))
    if prctl is None:
        return
    _call(prctl, _PR_SET_PDEATHSIG, signal.SIGKILL)
    _call(prctl, _PR_SET_DUMPABLE, 0)
    _call(prctl, _PR_SET_NO_NEW_PRIVS, 1)
    if machine := _MACHINES.get(os.uname().machine):
        filter = ctypes.create_string_buffer(_program(*machine))
        head = ctypes.create_string_buffer(struct.pack("@HP", len(filter) // 8, ctypes.addressof(filter)))
        _call(prctl, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(head))


def _call(prctl: ctypes._NamedFuncPointer, option: int, *arguments: int) -> None:
    if prctl(option, *(ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4])) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"the kernel refuses to confine this process (prctl {option}): {os.strerror(code)}")


def _program(column: int, machine: int) -> bytes:
    """The filter, in the kernel's classic BPF: 8 bytes an instruction (code, jump if true, if false, operand)."""
    allowed = [numbers[column] for numbers in _SYSTEM_CALLS.values()]
    program = [
        (_LOAD, 0, 0, 4),  # the machine whose numbers are used
        (_JUMP_IF_EQUAL, 1, 0, machine),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # the number of the call
        *((_JUMP_IF_EQUAL, len(allowed) - at, 0, number) for at, number in enumerate(allowed)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
