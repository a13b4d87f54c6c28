"""Counts the copies of a tensor in a running server: a small library that is loaded first and sees every `memcpy`.

The ledger says how often a tensor is copied; this is how it can be checked. The library is compiled where a C compiler
is found, and reports copies of a few exact sizes, so that nothing else is counted. Embedded server only.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.artifacts import build_once
from workbook.errors import SettingError, SetupError

if TYPE_CHECKING:
    from workbook.analysis.copies import Copy

COMPILERS = ("cc", "gcc", "clang")
LEAST_BYTES, MOST_SIZES = 65_536, 16
_LINE = re.compile(r"^workbook-copy pid=(\d+) bytes=(\d+) ns=(\d+)$", re.MULTILINE)
_LIBRARY = "copy_counter.so"
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int is_wanted(size_t bytes) {
  static size_t sizes[16];
  static int count = -1;
  if (count < 0) {
    char *text = getenv("WORKBOOK_COUNTED_BYTES");
    int found = 0;
    while (text && *text && found < 16) {
      sizes[found++] = strtoull(text, &text, 10);
      if (*text == ',') text++;
    }
    count = found;
  }
  for (int i = 0; i < count; i++)
    if (sizes[i] == bytes) return 1;
  return 0;
}

#define COUNTED(NAME)                                                                        \
  void *NAME(void *to, const void *from, size_t bytes) {                                     \
    static void *(*real)(void *, const void *, size_t);                                      \
    if (!real) real = (void *(*)(void *, const void *, size_t))dlsym(RTLD_NEXT, #NAME);      \
    if (bytes < 65536 || !is_wanted(bytes)) return real(to, from, bytes);                    \
    long start = now_ns();                                                                   \
    void *result = real(to, from, bytes);                                                    \
    char line[128];                                                                          \
    int length = snprintf(line, sizeof line, "workbook-copy pid=%d bytes=%zu ns=%ld\n",      \
                          getpid(), bytes, now_ns() - start);                                \
    if (write(2, line, length) < 0) return result;                                           \
    return result;                                                                           \
  }
COUNTED(memcpy)
COUNTED(memmove)
"""


@dataclass(frozen=True)
class CountedCopy:
    """One copy that was seen.

    Attributes:
        pid: process that copied.
        bytes: how many.
        ns: how long it took.
    """

    pid: int
    bytes: int
    ns: int


def find_compiler() -> str | None:
    """Path of a C compiler; None where there is none."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def build_counter() -> Path:
    """Compile the library once.

    Raises:
        SetupError: there is no C compiler, or it failed.
    """
    compiler = find_compiler()
    if compiler is None:
        raise SetupError(f"Counting copies needs a C compiler ({', '.join(COMPILERS)}): apt-get install gcc libc6-dev.")

    def build(folder: Path) -> None:
        source = folder / "copy_counter.c"
        source.write_text(_SOURCE)
        # without -fno-builtin the compiler would turn our own memcpy into a call of itself
        command = [
            compiler,
            "-O2",
            "-fno-builtin",
            "-shared",
            "-fPIC",
            str(source),
            "-o",
            str(folder / _LIBRARY),
            "-ldl",
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        except subprocess.CalledProcessError as error:
            raise SetupError(f"{compiler} could not compile the copy counter: {error.stderr.strip()}") from None

    return build_once("copy_counter", {"source": _SOURCE, "compiler": compiler}, build) / _LIBRARY


def counter_environment(sizes_bytes: Sequence[int]) -> dict[str, str]:
    """Environment with which a server reports every copy of exactly these sizes in its log.

    Args:
        sizes_bytes: at most 16, each 65,536 or more; no other tensor or buffer should have one of them.

    Raises:
        SettingError: too many sizes, or one too small.
        SetupError: the library cannot be built.
    """
    if not 1 <= len(sizes_bytes) <= MOST_SIZES or min(sizes_bytes) < LEAST_BYTES:
        raise SettingError(
            f"sizes_bytes is {list(sizes_bytes)}: give 1 to {MOST_SIZES} sizes, each {LEAST_BYTES:,} or more."
        )
    return {"LD_PRELOAD": str(build_counter()), "WORKBOOK_COUNTED_BYTES": ",".join(map(str, sizes_bytes))}


def read_counted(log_text: str) -> list[CountedCopy]:
    """The copies that a stretch of a server's log reports, in order."""
    return [CountedCopy(int(pid), int(size), int(ns)) for pid, size, ns in _LINE.findall(log_text)]


def counted_row(
    arrangement: str,
    size_bytes: int,
    requests: Sequence[Sequence[CountedCopy]],
    expected: Sequence[Copy],
    server_pid: int,
) -> dict[str, Any]:
    """Counted copies beside those of the ledger.

    Args:
        arrangement: which.
        size_bytes: of the tensor that was handed on.
        requests: what each of some equal requests reported.
        expected: the ledger of the arrangement at that size.
        server_pid: process of the server itself; every other one is a stub.

    Returns:
        `arrangement`, `bytes`, `counted_by_server`, `counted_by_stubs` (of a request), `ledger_by_server`,
        `ledger_by_stubs`, `agree` (in every request), `counted_ms` (time in those copies, median over requests).
    """
    seen = [sum(copy.pid == server_pid for copy in copies) for copies in requests]
    by_stubs = [len(copies) - server for copies, server in zip(requests, seen, strict=True)]
    big = [copy for copy in expected if copy.bytes == size_bytes]
    said = sum(copy.copied_by == "server" for copy in big)
    return {
        "arrangement": arrangement,
        "bytes": size_bytes,
        "counted_by_server": seen[0],
        "counted_by_stubs": by_stubs[0],
        "ledger_by_server": said,
        "ledger_by_stubs": len(big) - said,
        "agree": set(seen) == {said} and set(by_stubs) == {len(big) - said},
        "counted_ms": statistics.median(sum(copy.ns for copy in copies) for copies in requests) / 1e6,
    }
