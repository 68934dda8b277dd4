"""kubelet's process and files: arguments, configuration with drop-ins, CPU manager state.

Files are read through the process's own root (/proc/PID/root), so kubelet in a container is understood too; without a
process, at the usual places. Invariant: nothing here raises for a missing or unreadable file; the answer holds less
then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from koord.host.claims import Claims, flag, of_kubelet_args, of_kubelet_config, of_runtime

CONFIG = "/var/lib/kubelet/config.yaml"
ROOT_DIR = "/var/lib/kubelet"
RUNTIME_CONFIGS = ("/etc/containerd/config.toml", "/etc/crio/crio.conf")


@dataclass(frozen=True, slots=True)
class KubeletProcess:
    """kubelet as it runs, or (``pid`` 0) as its usual files suggest. ``root``: prefix of all its paths here."""

    pid: int
    args: tuple[str, ...]
    root: Path

    @property
    def config(self) -> Path:
        return self._at(flag(self.args, "config") or CONFIG)

    @property
    def root_dir(self) -> Path:
        """Where ``cpu_manager_state`` and the device plugins' sockets are."""
        return self._at(flag(self.args, "root-dir") or ROOT_DIR)

    def config_files(self) -> list[Path]:
        """Its configuration and the drop-ins (``--config-dir``, in order), the strongest first."""
        directory = flag(self.args, "config-dir")
        drop_ins = sorted(_files(self._at(directory), ".conf"), reverse=True) if directory else []
        return [*drop_ins, self.config]

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def find(proc: Path, root: Path) -> KubeletProcess:
    """The process named ``kubelet`` with the lowest pid below ``proc``; paths are below ``root`` without one."""
    for pid in sorted(int(name) for name in _names(proc) if name.isdigit()):
        if _text(proc / str(pid) / "comm") == "kubelet":
            args = (_text(proc / str(pid) / "cmdline") or "").split("\0")
            return KubeletProcess(pid, tuple(args[1:]), proc / str(pid) / "root")
    return KubeletProcess(0, (), root)


def claims(kubelet: KubeletProcess, runtime_configs: Sequence[Path]) -> Claims:
    """Returns all claims of kubelet and of the runtime's files, the strongest first."""
    said = of_kubelet_args(kubelet.args)
    for file in kubelet.config_files():
        text = _text(file)
        if text is not None:
            said += of_kubelet_config(str(file), text)
    for file in runtime_configs:
        text = _text(file)
        if text is not None:
            said += of_runtime(str(file), text)
    return said


def _files(directory: Path, suffix: str) -> Iterator[Path]:
    return (directory / name for name in _names(directory) if name.endswith(suffix))


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").rstrip("\n\0")
    except OSError:
        return None
