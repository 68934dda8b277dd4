"""The pod cgroups that kubelet would make, and a container's values read back from the kernel (cgroup v1).

Invariant: only directories below the pod's own cgroup parent are removed, and of its parents those that are empty and
were not there before. Values are read by a path built here, not by Koord's code, so that the two can be compared.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from integration.harness.pods import Pod, pod_resources
from integration.harness.processes import HarnessError, wait_for


@dataclass(frozen=True, slots=True)
class Values:
    """What the kernel has for one cgroup; ``cfs_quota_us`` is -1 without a limit, ``cpuset_cpus`` a kernel list."""

    cpu_shares: int
    cfs_quota_us: int
    cfs_period_us: int
    cpuset_cpus: str
    cpuset_mems: str
    memory_limit_bytes: int


def hierarchies() -> dict[str, Path]:
    """Mount points by controller; ``unified`` for cgroup2, ``systemd`` for the named v1 hierarchy."""
    found: dict[str, Path] = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            fields = line.split()
            rest = fields[fields.index("-") + 1 :]
            if rest[0] == "cgroup2":
                found["unified"] = Path(fields[4])
            elif rest[0] == "cgroup":
                for name in Path(fields[4]).name.split(","):
                    found[name] = Path(fields[4])
    return found


def make(path: str) -> None:
    """Make ``path`` in every hierarchy, its cpuset filled from above (v1 makes it empty, and then nothing can join)."""
    for mount in hierarchies().values():
        _directory(mount, path).mkdir(parents=True, exist_ok=True)
    cpuset = hierarchies()["cpuset"]
    above = cpuset
    for part in path.strip("/").split("/"):
        below = above / part
        for name in ("cpuset.cpus", "cpuset.mems"):
            if not (below / name).read_text().strip():
                write(below / name, (above / name).read_text())
        above = below


def make_pod(pod: Pod) -> None:
    """Make the pod's cgroup with the limits that kubelet writes there."""
    make(pod.cgroup_parent)
    resources = pod_resources(pod)
    mounts = hierarchies()
    write(_directory(mounts["cpu"], pod.cgroup_parent) / "cpu.shares", str(resources.cpu_shares))
    if resources.cpu_quota:
        write(_directory(mounts["cpu"], pod.cgroup_parent) / "cpu.cfs_quota_us", str(resources.cpu_quota))
    if resources.memory_limit_in_bytes:
        limit = str(resources.memory_limit_in_bytes)
        write(_directory(mounts["memory"], pod.cgroup_parent) / "memory.limit_in_bytes", limit)


def read(path: str, mounts: Mapping[str, Path] | None = None) -> Values:
    """The values of one cgroup, such as ``<cgroup_parent>/<container id>``; FileNotFoundError if it is not there.

    ``mounts``: where the controllers are, by default where this machine has them mounted.
    """
    mounts = mounts or hierarchies()
    cpu, cpuset = _directory(mounts["cpu"], path), _directory(mounts["cpuset"], path)
    return Values(
        cpu_shares=int((cpu / "cpu.shares").read_text()),
        cfs_quota_us=int((cpu / "cpu.cfs_quota_us").read_text()),
        cfs_period_us=int((cpu / "cpu.cfs_period_us").read_text()),
        cpuset_cpus=(cpuset / "cpuset.cpus").read_text().strip(),
        cpuset_mems=(cpuset / "cpuset.mems").read_text().strip(),
        memory_limit_bytes=int((_directory(mounts["memory"], path) / "memory.limit_in_bytes").read_text()),
    )


def all_cpus() -> str:
    """The root cgroup's CPUs, as a kernel list."""
    return (hierarchies()["cpuset"] / "cpuset.cpus").read_text().strip()


def of_container(container_id: str) -> str:
    """The cgroup whose directory is named after a container, to be given to ``read``; there must be exactly one."""
    cpu = hierarchies()["cpu"]
    found = [Path(directory) for directory, _, _ in os.walk(cpu) if Path(directory).name == container_id]
    if len(found) != 1:
        raise HarnessError(f"cgroups of container {container_id} below {cpu}: {found}")
    return f"/{found[0].relative_to(cpu)}"


def write(file: Path, value: str) -> None:
    """One write(2): a buffered write would report the kernel's refusal late or not at all."""
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, value.strip().encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{file} <- {value!r}") from error
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove ``path`` with what is below it in every hierarchy; waits for ended processes to leave."""
    for mount in hierarchies().values():
        top = _directory(mount, path)
        for directory in [*sorted(_below(top), key=lambda entry: -len(entry.parts)), top]:
            wait_for(lambda directory=directory: _removed(directory), 5, f"{directory} to be empty")  # type: ignore[misc]


def existing(path: str) -> bool:
    return any(_directory(mount, path).exists() for mount in hierarchies().values())


@contextlib.contextmanager
def root(path: str) -> Iterator[str]:
    """A cgroup for pods, made in every hierarchy and removed with all that is in it, unless it was there before."""
    ours = not existing(path)
    make(path)
    try:
        yield path
    finally:
        if ours:
            remove(path)


def _directory(mount: Path, path: str) -> Path:
    return mount / path.strip("/")


def _below(top: Path) -> list[Path]:
    return [Path(directory) for directory, _, _ in os.walk(top) if Path(directory) != top]


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
