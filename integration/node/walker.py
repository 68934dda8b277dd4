"""All settable values of a cgroup tree, read by a walk that does not know which files Koord writes.

A value is the text of a file that can be both read and written; counters and lists of processes are none.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from integration.harness import cgroups

CONTROLLERS = ("cpu", "cpuset", "memory")
_MEMBERS = ("cgroup.procs", "tasks")
_COUNTERS = ("failcnt", "max_usage_in_bytes", "memory.oom_control")  # written only to reset them; the last counts kills
_FOLLOWING = ("cpuset.effective_cpus", "cpuset.effective_mems")
Values = Mapping[str, bytes]


def values(cgroup: str) -> Values:
    """Content by path of every value file in ``group`` and below it; what vanishes meanwhile is left out."""
    mounts = cgroups.hierarchies()
    found: dict[str, bytes] = {}
    for controller in CONTROLLERS:
        for directory, _, names in os.walk(mounts[controller] / cgroup.strip("/")):
            for file in (Path(directory, name) for name in names):
                with contextlib.suppress(FileNotFoundError, OSError):
                    if _is_value(file):
                        found[str(file)] = file.read_bytes()
    return found


def changed(before: Values, after: Values) -> dict[str, tuple[bytes, bytes | None]]:
    """Of the files in ``before`` those that hold something else now, with both contents."""
    return {path: (held, after.get(path)) for path, held in before.items() if after.get(path) != held}


def by_name(paths: Mapping[str, object]) -> Counter[str]:
    """How many of each file."""
    return Counter(path.rpartition("/")[2] for path in paths)


def _is_value(file: Path) -> bool:
    if file.name in _FOLLOWING:
        return True
    mode = file.stat().st_mode
    settable = bool(mode & stat.S_IWUSR) and bool(mode & stat.S_IRUSR)
    return settable and file.name not in _MEMBERS and not file.name.endswith(_COUNTERS)
