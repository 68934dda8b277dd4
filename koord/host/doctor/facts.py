"""What the doctor knows of a node: plain values, read once.

None means "could not be told"; an empty text or set means "there is none". Paths inside are the node's own, also when
the facts come from a recorded tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koord.host.support import Support


@dataclass(frozen=True, slots=True)
class CgroupFacts:
    """``version`` None: nothing is mounted. ``support``: rows of koord.host.files, as kubelet's cgroups show them.

    ``kube_root`` is where all pods are; it may be claimed by kubelet or the runtime (``layout_problems`` say how these
    disagree) and not exist yet.
    """

    version: int | None = None
    hybrid: bool = False
    controllers: frozenset[str] = frozenset()
    kube_root: str = ""
    kube_root_exists: bool = False
    driver: str = ""  # cgroupfs | systemd
    layout_problems: tuple[str, ...] = ()
    enabled_for_pods: frozenset[str] | None = None  # v2: cgroup.subtree_control of kube_root
    support: Mapping[str, Support] = field(default_factory=dict)

    def has(self, row: str) -> bool:
        return self.support.get(row) is Support.PRESENT


@dataclass(frozen=True, slots=True)
class KubeletFacts:
    """Of the running kubelet's flags and its configuration file, a flag before the file; "" = its default."""

    running: bool = False
    config_file: str = ""
    config_problem: str = ""
    cpu_manager_policy: str = ""
    runtime_endpoint: str = ""
    fail_swap_on: bool = True
    feature_gates: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """``name`` and ``version`` as CRI tells them (else ""); the rest from the configuration file."""

    name: str = ""
    version: str = ""
    socket: str = ""
    socket_exists: bool = False
    config_file: str = ""
    config_problem: str = ""
    nri_disabled: bool | None = None
    nri_socket_exists: bool = False


@dataclass(frozen=True, slots=True)
class KoordFacts:
    """Koord's own files. ``hook_endpoint_exists``: the socket that the hook-server file names is there."""

    hook_file: str = ""
    hook_endpoint: str = ""
    hook_endpoint_exists: bool = False
    hook_problem: str = ""
    unit_file: str = ""
    unit_open_files: int | None = None
    rules_file: str = ""
    rules_problem: str = ""
    rules_cpu_manager_policy: str = ""
    state_free_bytes: int | None = None
    run_is_tmpfs: bool | None = None


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """What the running daemon says of itself."""

    version: str
    open_files_limit: int
    acting_front_end: str
    attached_front_ends: tuple[str, ...]
    failing_loops: tuple[str, ...] = ()
    contested: tuple[str, ...] = ()
    rules_warnings: tuple[str, ...] = ()
    journal_dropped: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it. ``kernel``: the release's leading numbers. ``daemon`` None: it did not answer, ``daemon_says`` why."""

    kernel_release: str = ""
    systemd: bool | None = None
    psi: bool = False
    swap_bytes: int = 0
    cpu_flags: frozenset[str] = frozenset()
    resctrl_mounted: bool = False
    resctrl_classes: frozenset[str] = frozenset()
    perf_paranoid: int | None = None
    perf_hardware: bool = False
    cgroup: CgroupFacts = field(default_factory=CgroupFacts)
    kubelet: KubeletFacts = field(default_factory=KubeletFacts)
    runtime: RuntimeFacts = field(default_factory=RuntimeFacts)
    koord: KoordFacts = field(default_factory=KoordFacts)
    daemon: DaemonFacts | None = None
    daemon_says: str = ""

    @property
    def kernel(self) -> tuple[int, int] | None:
        """(6, 1) of ``6.1.0-32-cloud-amd64``."""
        major, _, rest = self.kernel_release.partition(".")
        minor = rest.partition(".")[0].partition("-")[0]
        return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
