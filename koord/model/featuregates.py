"""Feature gates: the names and defaults of Koordinator's node agent, as far as they concern what a node daemon does.

So koordlet's ``--feature-gates`` can be pasted, and the annotation ``eviction-policy`` names the same things.
Of a gate the node's rules (``node.features``) count before the command line, that before the default; within each, the
gate's own name counts before ``AllAlpha`` and ``AllBeta``, which mean all that are of this maturity.

Names and defaults are those of Koordinator's koordlet. The maturity is Kubernetes' rule that a gate is off while it is
Alpha and on once it is Beta: of the hooks' gates that is known, of the others assumed.
A name that is not in the table is refused by ``checked``, which names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

ALL_ALPHA, ALL_BETA = "AllAlpha", "AllBeta"
DEFAULT = "default"
Settings = Mapping[str, bool]
"""What one source says, by name."""
NO_SETTINGS: Settings = MappingProxyType({})


class Gate(NamedTuple):
    """A row of the table. ``purpose``: it lets the daemon do that. Not ``switches``: nothing here goes by the gate."""

    is_on: bool
    purpose: str
    switches: bool = True

    @property
    def group(self) -> str:
        return ALL_BETA if self.is_on else ALL_ALPHA


GATES: Mapping[str, Gate] = MappingProxyType({
    "BECPUSuppress": Gate(True, "suppress the CPU of best-effort pods"),
    "BECPUManager": Gate(False, "bind best-effort pods to the pools of their NUMA nodes, instead of suppression"),
    "BECPUEvict": Gate(False, "evict best-effort pods that get too little of the CPU they requested"),
    "BEMemoryEvict": Gate(False, "evict best-effort pods by the node's memory usage"),
    "CPUEvict": Gate(False, "evict pods by priority and the node's CPU usage"),
    "MemoryEvict": Gate(False, "evict pods by priority and the node's memory usage"),
    "CPUAllocatableEvict": Gate(False, "evict pods whose CPU requests exceed what is allocatable"),
    "MemoryAllocatableEvict": Gate(False, "evict pods whose memory requests exceed what is allocatable"),
    "CPUBurst": Gate(True, "let containers that are throttled use more CPU for a while"),
    "CgroupReconcile": Gate(False, "memory QoS: memory.min, memory.low, memory.high, watermarks"),
    "SystemConfig": Gate(False, "set the kernel's memory watermarks and scheduler features"),
    "BlkIOReconcile": Gate(False, "limits and weights of block I/O", switches=False),
    "RdtResctrl": Gate(True, "resctrl groups of the QoS classes"),
    "Resctrl": Gate(False, "resctrl groups of single pods", switches=False),
    "GroupIdentity": Gate(True, "group identity (cpu.bvt_warp_ns)"),
    "CPUSetAllocator": Gate(True, "CPU sets of containers"),
    "BatchResource": Gate(True, "CPU shares, CFS quota and memory limit of batch pods"),
    "CPUNormalization": Gate(False, "divide CFS quotas by the CPU normalization ratio"),
    "CoreSched": Gate(False, "core scheduling", switches=False),
    "OOMScoreAdj": Gate(False, "oom_score_adj of containers"),
    "TCNetworkQoS": Gate(False, "network bandwidth by tc", switches=False),
    "TerwayQoS": Gate(False, "network bandwidth by Terway", switches=False),
    "GPUEnvInject": Gate(False, "environment variables of allocated GPUs", switches=False),
    "RDMADeviceInject": Gate(False, "devices of allocated RDMA functions", switches=False),
    "NodeTopologyReport": Gate(True, "report the node's topology"),
    "Accelerators": Gate(False, "measure and report GPUs and other accelerators", switches=False),
    "RDMADevices": Gate(False, "report RDMA devices", switches=False),
    "HugePageReport": Gate(False, "report huge pages"),
    "PodResourcesProxy": Gate(
        False, "answer kubelet's pod-resources API with the scheduler's allocations", switches=False
    ),
    "HamiCoreVGPUMonitor": Gate(False, "measure virtual GPUs of HAMi", switches=False),
    "CPICollector": Gate(False, "measure cycles per instruction", switches=False),
    "Libpfm4": Gate(False, "measure them by libpfm4", switches=False),
    "PSICollector": Gate(False, "measure pressure (PSI)", switches=False),
    "ResctrlCollector": Gate(False, "measure cache and memory bandwidth by resctrl", switches=False),
    "ColdPageCollector": Gate(False, "measure cold pages (kidled)", switches=False),
    "PerCPUMetric": Gate(False, "metrics of single CPUs", switches=False),
    "NodeMetricPromMetrics": Gate(False, "the reported node usage as metrics", switches=False),
    "AuditEvents": Gate(False, "keep an audit log of what was done", switches=False),
    "AuditEventsHTTPHandler": Gate(False, "serve it by HTTP", switches=False),
})  # fmt: skip
"""By name."""


class GateState(NamedTuple):
    """Is the gate on, and who says so: ``default``, ``by --feature-gates`` or ``by node.features``."""

    is_on: bool
    source: str


def is_name(name: str) -> bool:
    """Returns whether it is a gate, or a group of them."""
    return name in GATES or name in (ALL_ALPHA, ALL_BETA)


def checked(settings: Settings, gates: Mapping[str, Gate] = GATES) -> Settings:
    """Returns ``settings``. Raises ValueError with the first name that is neither of ``gates`` nor a group of them."""
    names = (*gates, ALL_ALPHA, ALL_BETA)
    for name in settings:
        if name not in names:
            raise ValueError(f"{name!r} is no feature gate; there are {', '.join(names)}")
    return settings


def without_effect(flags: Settings, features: Settings) -> list[str]:
    """Returns a sentence for each source that sets gates, otherwise than they are by default, that switch nothing."""
    idle: dict[str, list[str]] = {}
    for name, gate in GATES.items():
        is_on, source = state(name, flags, features)
        if is_on != gate.is_on and not gate.switches:
            idle.setdefault(source, []).append(f"{name}={'true' if is_on else 'false'}")
    return [
        f"feature gates {source}: {', '.join(each)}: koord-qosd switches nothing by them"
        for source, each in idle.items()
    ]


def setting(name: str, gate: Gate, settings: Settings) -> bool | None:
    """Returns what ``settings`` say of the gate, by its own name or its group's; None: nothing."""
    return settings.get(name, settings.get(gate.group))


def is_on(name: str, gates: Mapping[str, Gate], settings: Settings) -> bool:
    """Returns whether the gate of the table is on by the one source that there is. KeyError for a name that is no
    gate's.
    """
    gate = gates[name]
    said = setting(name, gate, settings)
    return gate.is_on if said is None else said


def state(name: str, flags: Settings = NO_SETTINGS, features: Settings = NO_SETTINGS) -> GateState:
    """The gate by the command line's ``flags`` and the rules' ``features``; KeyError for a name that is no gate's."""
    gate = GATES[name]
    for settings, source in ((features, "by node.features"), (flags, "by --feature-gates")):
        said = setting(name, gate, settings)
        if said is not None:
            return GateState(said, source)
    return GateState(gate.is_on, DEFAULT)
