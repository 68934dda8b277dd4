"""The facts of a node that koordctl judges and plans by: plain values, read once.

None means "not known"; an empty text or set means "there is none". Paths inside are the node's own, also when
the facts come from a recorded tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koord.host.support import Support
from koord.model.version import numbers
from koordctl.node.units import Unit


@dataclass(frozen=True, slots=True)
class CgroupFacts:
    """``version`` None: nothing is mounted. ``support``: rows of koord.host.files, as kubelet's cgroups show them.

    ``kube_root`` is where all pods are; it may be claimed by kubelet or the runtime (``layout_problems`` say how these
    disagree) and not exist yet. ``best_effort``: the cgroup of BestEffort pods, "" if there is none yet.
    """

    version: int | None = None
    hybrid: bool = False
    controllers: frozenset[str] = frozenset()
    kube_root: str = ""
    kube_root_exists: bool = False
    driver: str = ""  # cgroupfs | systemd
    layout_problems: tuple[str, ...] = ()
    enabled_for_pods: frozenset[str] | None = None  # v2: cgroup.subtree_control of kube_root
    has_containers: bool = False  # of kubelet's pods
    support: Mapping[str, Support] = field(default_factory=dict)
    best_effort: str = ""

    def has(self, row: str) -> bool:
        return self.support.get(row) is Support.PRESENT


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """The running kubelet's settings by its flags and its configuration file, a flag before the file; "" = its default.

    ``version`` is what ``kubelet --version`` says (``v1.30.2``), ``unit`` the systemd unit that runs it; "" = unknown.
    ``unit_files`` None: there are none. ``drop_in_stale``: Koord's drop-in repeats another command than the unit has by
    now; None = there is no drop-in. ``own_endpoint``: ``runtime_endpoint`` as if Koord's drop-in were not there.
    ``healthz``: where it says whether it is well (``host:port``), "" if it is configured not to.
    """

    running: bool = False
    version: str = ""
    unit: str = ""
    unit_files: Unit | None = None
    drop_in_stale: bool | None = None
    config_file: str = ""
    config_problem: str = ""
    cgroup_driver: str = ""  # cgroupfs | systemd
    cgroup_root: str = ""
    cgroups_per_qos: bool = True
    cpu_manager_policy: str = ""
    container_runtime: str = ""  # docker | remote: a flag of kubelet before 1.24
    runtime_endpoint: str = ""
    own_endpoint: str = ""
    root_dir: str = ""
    healthz: str = ""
    fail_swap_on: bool = True
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    writes_memory_protection: bool | None = None  # memory.min, memory.low or memory.high on cgroup v2; None: unknown

    @property
    def minor(self) -> tuple[int, int] | None:
        """(1, 30) of ``v1.30.2``; None if the version is unknown."""
        return numbers(self.version)


@dataclass(frozen=True, slots=True)
class RestartFacts:
    """What would follow from a restart of kubelet now. ``problem``: why the cluster could not say, "" if it did.

    ``shortages``: a sentence for each resource that running pods request more of than their Node offers.
    """

    shortages: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """``name`` and ``version`` as CRI says them (else ""); the rest from the configuration file.

    ``can_be_asked`` False: it was not asked. ``cgroup_driver`` is what it is set to or its default, "" = cannot be
    told. ``socket_group``: the group of its socket, by name if it has one; "" = root's, or there is no socket.
    """

    name: str = ""
    version: str = ""
    socket: str = ""
    socket_exists: bool = False
    config_file: str = ""
    config_problem: str = ""
    nri_disabled: bool | None = None
    nri_socket_exists: bool = False
    cgroup_driver: str = ""
    can_be_asked: bool = True
    socket_group: str = ""

    @property
    def minor(self) -> tuple[int, int]:
        """(1, 6) of ``1.6.20~ds1``; (0, 0) if the version is unknown."""
        return numbers(self.version) or (0, 0)


@dataclass(frozen=True, slots=True)
class HookFileFacts:
    """Another agent's hook-server file. ``answers``: its socket is there; ``fails_calls``: its policy is Fail."""

    file: str
    endpoint: str
    answers: bool
    fails_calls: bool


@dataclass(frozen=True, slots=True)
class OthersFacts:
    """Other programs between kubelet and the runtime. A process is named ``name (pid N)``.

    ``kubelet_inside``: a process that is kubelet and more. ``proxy_backend``: the socket that our running proxy was
    configured to pass on to.
    """

    agents: tuple[str, ...] = ()
    kubelet_inside: str = ""
    hook_files: tuple[HookFileFacts, ...] = ()
    proxy_socket_holder: str = ""
    proxy_backend: str = ""


@dataclass(frozen=True, slots=True)
class KoordFacts:
    """Koord's own files. ``hook_endpoint_exists``: the socket that the hook-server file names is there.

    ``grants``: the text of the drop-in that lets koord-qosd do what the features that are on need, "" = none.
    ``grants_stale``: the unit's drop-in says something else.
    ``slice_memory_min``: what koord.slice says of MemoryMin=, "" = nothing; None: there is no such unit.
    ``bypass_file``: the file that keeps the runtime proxy from editing, if it exists.
    """

    hook_file: str = ""
    hook_endpoint: str = ""
    hook_endpoint_exists: bool = False
    hook_problem: str = ""
    unit_file: str = ""
    unit_open_files: int | None = None
    grants: str = ""
    grants_stale: bool = False
    slice_memory_min: str | None = None
    rules_file: str = ""
    rules_problem: str = ""
    rules_cpu_manager_policy: str = ""
    rules_limits_in_cri: bool = False
    state_free_bytes: int | None = None
    run_is_tmpfs: bool | None = None
    bypass_file: str = ""


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """What the running daemon says of itself."""

    version: str
    open_files_limit: int
    acting_front_end: str
    attached_front_ends: tuple[str, ...]
    failing_loops: tuple[str, ...] = ()
    contested: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    journal_dropped: int = 0
    policy: tuple[str, ...] = ()
    """Says where the policy in force comes from, layer by layer."""
    is_policy_doubtful: bool = False
    lacking: tuple[str, ...] = ()
    """A sentence for each strategy that lacks a right."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts. ``kernel``: the release's leading numbers. ``daemon`` None: it did not answer, ``daemon_says`` why.

    ``recorded``: these are files of another node, or of another time.
    """

    kernel_release: str = ""
    systemd: bool | None = None
    psi: bool = False
    swap_bytes: int = 0
    cpu_flags: frozenset[str] = frozenset()
    isolated_cpus: str = ""
    resctrl_mounted: bool = False
    resctrl_in_mbps: bool = False
    resctrl_classes: frozenset[str] = frozenset()
    perf_paranoid: int | None = None
    perf_hardware: bool = False
    cgroup: CgroupFacts = field(default_factory=CgroupFacts)
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    restart: RestartFacts | None = None
    """None: the cluster was not asked, or kubelet is in none."""
    runtime: RuntimeFacts = field(default_factory=RuntimeFacts)
    koord: KoordFacts = field(default_factory=KoordFacts)
    others: OthersFacts = field(default_factory=OthersFacts)
    leftovers: tuple[str, ...] = ()
    """What another agent left in kernel files, one sentence each; not looked for while koord-qosd runs."""
    recorded: bool = False
    in_pod: bool = False
    """koordctl is in a pod, as that of the chart's DaemonSet; no unit runs koord-qosd there."""
    daemon: DaemonFacts | None = None
    daemon_says: str = ""

    @property
    def kernel(self) -> tuple[int, int] | None:
        """(6, 1) of ``6.1.0-32-cloud-amd64``."""
        return numbers(self.kernel_release)
