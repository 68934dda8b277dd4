"""Prints everything on this node that an installation might leave behind, as JSON: ``python3 snapshot.py``.

``files`` maps each path below ``TREES`` to its type, mode, owner and content (a digest, a size, or a link's target);
``cgroups`` maps each writable cgroup file to its text, with containers by pod and name instead of by their random ids;
``units`` are the states of systemd's unit files; ``kubelet`` its command line. Standard library only.

Invariant: it only reads, and what vanishes while it reads is left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping

TREES = ("/etc", "/run", "/var/lib", "/usr", "/opt", "/srv")
BY_SIZE = ("/usr/", "/opt/", "/var/lib/containerd/")  # large; written by packages, and by the runtime, alone
CGROUPS = "/sys/fs/cgroup"
RESCTRL = "/sys/fs/resctrl"
SKIPPED = ("/srv/payload", "/run/udev", "/usr/share", "/usr/lib/modules")
PODS = "http://127.0.0.1:10255/pods"
_CONTAINER = re.compile(r"cri-containerd-([0-9a-f]{64})\.scope")
_NO_VALUE = re.compile(r"/(cgroup\.(procs|threads|kill)|memory\.reclaim|(cpu|io|memory|irq)\.pressure|hugetlb\.[^/]*)$")


def main() -> int:
    found = {
        "files": dict(_files()),
        "cgroups": dict(_cgroups(_containers())),
        "resctrl": sorted(path for path, _ in _walk(RESCTRL)),
        "units": _unit_files(),
        "kubelet": _kubelet(),
        "mounts": sorted({line.split()[1] for line in _text("/proc/self/mounts").splitlines()}),
    }
    json.dump(found, sys.stdout)
    return 0


def _files() -> Iterator[tuple[str, str]]:
    for tree in TREES:
        for path, status in _walk(tree):
            try:
                yield path, f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid} {_content(path, status)}"
            except OSError:
                continue


def _walk(tree: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every path below ``tree`` on its own file system, directories too."""
    try:
        device = os.lstat(tree).st_dev
    except OSError:
        return
    pending = [tree]
    while pending:
        try:
            names = os.listdir(directory := pending.pop())
        except OSError:
            continue
        for name in names:
            path = f"{directory}/{name}"
            try:
                status = os.lstat(path)
            except OSError:
                continue
            if path in SKIPPED or status.st_dev != device:
                continue
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                pending.append(path)


def _content(path: str, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(status.st_mode):
        return ""
    if path.startswith(BY_SIZE):
        return f"{status.st_size} bytes"
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _cgroups(containers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for path, status in _walk(CGROUPS):
        if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o200 or _NO_VALUE.search(path):
            continue
        named = _CONTAINER.sub(lambda match: containers.get(match.group(1), "sandbox"), path)
        try:
            yield named, _text(path)
        except OSError:
            continue


def _containers() -> dict[str, str]:
    """Container ids to ``pod/container``, as kubelet's read-only port tells."""
    try:
        with urllib.request.urlopen(PODS, timeout=30) as answer:
            pods = json.load(answer)["items"] or []
    except OSError:
        return {}
    return {
        each["containerID"].rpartition("/")[2]: f"{pod['metadata']['name']}.{each['name']}"
        for pod in pods
        for each in pod["status"].get("containerStatuses") or []
        if each.get("containerID")
    }


def _kubelet() -> str:
    pids = _output("pgrep", "-x", "kubelet").split()
    return _text(f"/proc/{pids[0]}/cmdline").replace("\0", " ").strip() if pids else ""


def _unit_files() -> list[str]:
    """Each unit file and its state; systemd's bus gives up after 25 s, which a busy machine may need several times."""
    while not (said := _output("systemctl", "list-unit-files", "--no-legend", "--no-pager")):
        continue
    lines = (" ".join(line.split()) for line in said.splitlines())
    return sorted(line for line in lines if " transient " not in line)  # those are of running containers


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(main())
