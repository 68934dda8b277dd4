"""The model of the CPU, as far as it decides what a CPU's time is worth: name, vendor, turbo, ways of the L3 cache.

None of it changes while the kernel runs, except turbo, which an administrator may switch. A file that is not there
gives "" or False; one that the kernel refuses is a ReadError, one of unknown form a ParseError.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from koord.host import proc, resctrl
from koord.host.cgroup import ReadError, Tree, read_number

_NO_TURBO = "devices/system/cpu/intel_pstate/no_turbo"
_FIRST_CPU_BYTES = 8192
"""How much of /proc/cpuinfo is read: the file is long on a large machine, and the kernel asks each CPU for its
frequency while the file is read."""


@dataclass(frozen=True, slots=True)
class CPUModel:
    """``has_turbo``: what the driver intel_pstate says; no other driver tells. ``l3_mask``: the ways of the L3 cache
    that resctrl can give, 0 where it gives none."""

    name: str = ""
    vendor: str = ""
    has_turbo: bool = False
    l3_mask: int = 0


def read(tree: Tree) -> CPUModel:
    info = proc.cpuinfo(_head(tree.proc / "cpuinfo"))
    has_turbo = read_number(tree.sys / _NO_TURBO, 1) == 0
    return CPUModel(info.model, info.vendor, has_turbo, resctrl.l3_mask(tree.resctrl))


def _head(cpuinfo: Path) -> str:
    try:
        with cpuinfo.open("rb", buffering=0) as file:
            return file.read(_FIRST_CPU_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ReadError(error.errno, str(error.strerror), str(cpuinfo)) from error
