"""What an installation must know beside the doctor's facts: the programs, kubelet's unit, the group of the socket.

Read once below one root; a recorded tree can be read as well. Nothing here changes or judges.
"""

from __future__ import annotations

import os
import stat
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from koord.host import undo
from koord.host.claims import flag
from koord.host.kubelet import Kubelet
from koord.host.layout import tiers_of
from koord.model.qos import KubeQoS
from koordctl.doctor import grants, settings
from koordctl.doctor.facts import Facts
from koordctl.host import kubelet_unit, unitfile
from koordctl.host.kubelet_unit import PROXY_UNITS
from koordctl.host.node import Node
from koordctl.host.unitfile import Unit
from koordctl.install import kubelet
from koordctl.install.steps import QOSD
from koordctl.install.systemd import Systemd

PROGRAMS = ("koord-runtime-proxy", "koord-qosd", "koordctl")
UNITS = (QOSD, *PROXY_UNITS)
UNIT_FILES = (*UNITS, "koord.slice")
"""The slice comes and goes with the services in it: it is neither started nor enabled."""
VENV_UNITS = "/etc/systemd/system"
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""What units with ProtectHome= and a /tmp of their own cannot see."""
_HEALTHZ_PORT = "10248"


class Flavour(StrEnum):
    """How the programs came here, which says what of them is ours to put and to remove."""

    VENV = "virtual environment"
    PACKAGE = "package"


@dataclass(frozen=True, slots=True)
class Programs:
    """``directory`` has the programs; ``units``: the text of each unit by its name; ``problem``: why it cannot be."""

    flavour: Flavour
    directory: str
    units_directory: str
    units: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """``endpoint``: kubelet's runtime endpoint as if our drop-in were not there; ``root_dir``: its flag, "" = default.

    ``tier``: the cgroup of BestEffort pods, "" if there is none yet. ``socket_group``: "" = root's. ``grants``: the
    text of the drop-in that lets koord-qosd do what is on, "" = none. ``running``: Koord's active units.
    ``acts_besides``: a koord-qosd that is not the unit's acts here. ``ours``: paths that the record says we made.
    ``uid``: of the pod that the installation verifies with. ``user``: who runs this.
    """

    doctor: Facts
    programs: Programs
    kubelet_unit: Unit | None = None
    endpoint: str = ""
    root_dir: str = ""
    healthz: str = ""
    tier: str = ""
    socket_group: str = ""
    grants: str = ""
    running: frozenset[str] = frozenset()
    acts_besides: bool = False
    ours: frozenset[str] = frozenset()
    uid: str = ""
    user: int = 0

    @property
    def kubelet_name(self) -> str:
        return self.doctor.kubelet.unit


def gather(node: Node, doctor: Facts, programs: Programs, systemd: Systemd | None) -> NodeFacts:
    """The facts around ``doctor``'s; ``systemd`` None: nobody is asked, so nothing of Koord's is known to run."""
    process = settings.kubelet_process(node)
    drop_in = kubelet_unit.drop_in_path(doctor.kubelet.unit)
    installed = bool(doctor.kubelet.unit) and node.exists(drop_in)
    plain = replace(process, args=tuple(_without_ours(process.args))) if installed else process
    running = [unit for unit in UNITS if systemd is not None and systemd.state(unit) == "active"]
    return NodeFacts(
        doctor=doctor,
        programs=programs,
        kubelet_unit=unitfile.find(node, doctor.kubelet.unit) if doctor.kubelet.unit else None,
        endpoint=settings.kubelet(node, plain, doctor.kubelet.version).runtime_endpoint,
        root_dir=flag(process.args, "root-dir") or "",
        healthz=_healthz(node, process),
        tier=_tier(node, doctor),
        socket_group=_group_of(node, doctor.runtime.socket),
        grants=grants.drop_in(grants.wanted(node)),
        running=frozenset(running),
        acts_besides=systemd is not None and QOSD not in running and undo.is_in_use(node.at(grants.UNDO_RECORD)),
        uid=str(uuid.uuid4()),
        user=os.geteuid(),
    )


def programs(
    node: Node,
    package: bool,
    prefix: Path = Path(sys.prefix),
    python: Path = Path(sys.executable),
    hidden: Sequence[str] = HIDDEN,
) -> Programs:
    """The programs of the package, if ``package``; else those of the virtual environment ``prefix`` that runs this."""
    if package:
        directory = next((each for each in unitfile.DIRECTORIES[::-1] if node.exists(f"{each}/{QOSD}")), "")
        units = {name: text for name in UNIT_FILES if (text := node.text(f"{directory}/{name}"))} if directory else {}
        problem = "" if len(units) == len(UNIT_FILES) else "the package's units are not there"
        return Programs(Flavour.PACKAGE, "/usr/bin", directory, units, problem)
    sources = prefix / "share/koord/systemd"
    units = {name: (sources / name).read_text(encoding="utf-8") for name in UNIT_FILES if (sources / name).is_file()}
    return Programs(Flavour.VENV, f"{prefix}/bin", VENV_UNITS, units, _problem(prefix, python, hidden, units))


def _problem(prefix: Path, python: Path, hidden: Sequence[str], units: Mapping[str, str]) -> str:
    if not (prefix / "pyvenv.cfg").is_file():
        return f"koordctl runs neither from a virtual environment ({prefix} is none) nor with --package"
    for place in (prefix.resolve(), python.resolve()):
        if any(place.is_relative_to(each) for each in hidden):
            return f"{place} is where the units cannot see it"
    missing = [f"{prefix}/bin/{name}" for name in PROGRAMS if not (prefix / "bin" / name).exists()]
    missing += [f"{prefix}/share/koord/systemd/{name}" for name in UNIT_FILES if name not in units]
    return f"not there: {', '.join(missing)}" if missing else ""


def _without_ours(args: tuple[str, ...]) -> list[str]:
    return [arg for arg in args if not (arg.startswith("--") and kubelet.is_proxy(arg.partition("=")[2]))]


def _healthz(node: Node, process: Kubelet) -> str:
    """Where kubelet says whether it is well (``host:port``); "" if it is told not to."""

    def setting(flag_name: str, key: str, default: str) -> str:
        argument = flag(process.args, flag_name)
        configs = (settings.yaml_file(node, node.own(file)) for file in process.config_files())
        in_file = next((str(value) for config in configs if (value := config.at(key)) is not None), default)
        return in_file if argument is None else argument

    port = setting("healthz-port", "healthzPort", _HEALTHZ_PORT)
    address = setting("healthz-bind-address", "healthzBindAddress", "127.0.0.1")
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address, f"[{address}]" if ":" in address else address)
    return "" if port == "0" else f"{host}:{port}"


def _tier(node: Node, doctor: Facts) -> str:
    root = doctor.cgroup.kube_root
    tier = tiers_of(root)[KubeQoS.BEST_EFFORT] if root else ""
    shown = "/sys/fs/cgroup" if doctor.cgroup.version == 2 else "/sys/fs/cgroup/cpu"
    return tier if tier and node.exists(shown + tier) else ""


def _group_of(node: Node, socket: str) -> str:
    """The group of the runtime's socket, by name; "" if it is root's or there is no socket."""
    try:
        status = node.at(socket).stat()
    except OSError:
        return ""
    if not stat.S_ISSOCK(status.st_mode) or status.st_gid == 0:
        return ""
    groups = (line.split(":") for line in (node.text("/etc/group") or "").splitlines())
    return next((each[0] for each in groups if each[2:3] == [str(status.st_gid)]), str(status.st_gid))
