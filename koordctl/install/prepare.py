"""Gathers the facts for a plan, looks at the files in its places, and leaves out the steps that are done already."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from koord.host import undo
from koord.model.locations import UNDO_RECORD
from koordctl.doctor import CheckResult, Judgement, kubernetes
from koordctl.install import plan, probes
from koordctl.install.disk import Content, NodeDisk, Other, PlacedLink
from koordctl.install.machine import Systemd
from koordctl.install.plan import PROGRAMS, Flavour, InstallFacts, Programs
from koordctl.install.record import Begun, Record
from koordctl.install.steps import PointKubelet, Step
from koordctl.node import collect, settings
from koordctl.node.facts import Facts
from koordctl.node.files import NodeFiles
from koordctl.node.units import DIRECTORIES, LOCAL, QOSD, UNIT_FILES, UNITS

HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""What units with ProtectHome= and a /tmp of their own cannot see."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The operator's options: "" = find out. ``with_daemon`` None: as the record has it, and with it where none is."""

    runtime: str = ""
    kubelet_unit: str = ""
    package: bool = False
    with_kubelet: bool = True
    with_daemon: bool | None = None
    offline: bool = False
    only_grants: bool = False
    force: bool = False
    """A restart of kubelet may end pods."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """``steps`` is empty if there are reasons against it, or nothing to change."""

    facts: InstallFacts
    reasons: tuple[CheckResult, ...]
    steps: tuple[Step, ...]


def remembered(wishes: Wishes, record: Record | None) -> Wishes:
    """Returns ``wishes`` with those that ``record`` keeps from before; call it before what was cut off is undone."""
    if wishes.with_daemon is None and record is not None and not record.with_daemon:
        return replace(wishes, with_daemon=False)
    return wishes


def prepare(root: Path, wishes: Wishes, systemd: Systemd, record: Record | None) -> Prepared:
    """Makes the plan for the node at ``root``; ``record``: of the installation that is there, or that was begun."""
    facts = gather(root, wishes, systemd, record)
    if wishes.only_grants:
        return decide_grants(NodeDisk(root), facts)
    recorded = record.with_daemon if record is not None and record.installed else None
    with_daemon = wishes.with_daemon if wishes.with_daemon is not None else recorded is not False
    decided = decide(NodeDisk(root), facts, wishes.with_kubelet, recorded is not None, with_daemon)
    restart = () if wishes.force else plan.restart_refusals(facts, decided.steps)
    reasons = (*decided.reasons, *plan.daemon_refusals(facts, wishes.with_daemon, recorded), *restart)
    return replace(decided, reasons=reasons, steps=() if reasons else decided.steps)


def gather(root: Path, wishes: Wishes, systemd: Systemd, record: Record | None) -> InstallFacts:
    """Collects what a plan is made of. Offline the node is another: of this machine only the units' texts count."""
    name = wishes.kubelet_unit
    unit = name if not name or name.endswith(".service") else f"{name}.service"
    node = collect.gather(root, wishes.offline, wishes.runtime, kubelet_unit=unit)
    found = programs(NodeFiles(root), wishes.package)
    is_asked = bool(node.systemd) and not wishes.offline
    running = frozenset(unit for unit in UNITS if is_asked and systemd.state(unit) == "active")
    if wishes.offline:
        found = replace(found, problem="" if len(found.units) == len(UNIT_FILES) else "no unit files")
    return InstallFacts(
        node=node,
        programs=found,
        running=running,
        acts_besides=is_asked and QOSD not in running and undo.is_in_use(NodeFiles(root).at(UNDO_RECORD)),
        ours=record.own_paths if record is not None else frozenset(),
        uid=str(uuid.uuid4()),
        user=0 if wishes.offline else os.geteuid(),
    )


def decide_grants(disk: NodeDisk, facts: InstallFacts) -> Prepared:
    """Returns the steps that bring the grants of an installed node up to date, and nothing else."""
    if all(place.holds(disk.look(place.path)) for place in plan.grant_places(facts)):
        return Prepared(facts, (), ())
    return Prepared(facts, (), plan.grant_steps(facts))


def decide(
    disk: NodeDisk, facts: InstallFacts, with_kubelet: bool, installed: bool, with_daemon: bool = True
) -> Prepared:
    """Returns reasons or steps for a node with these ``facts``."""
    if facts.programs.problem:
        return Prepared(facts, plan.refusals(facts, with_kubelet, ()), ())
    steps = plan.steps(facts, with_kubelet, with_daemon)
    current = {place: disk.look(place.path) for place in plan.places(steps)}
    in_the_way = [
        place.path
        for place, was in current.items()
        if isinstance(was, Other) or (isinstance(place, PlacedLink) and isinstance(was, Content))
    ]
    if facts.programs.flavour is Flavour.PACKAGE:  # units in /etc would win over the package's
        own = (f"{LOCAL}/{unit}" for unit in UNIT_FILES)
        in_the_way += [path for path in own if disk.exists(path)]
    reasons = plan.refusals(facts, with_kubelet, in_the_way)
    if reasons:
        return Prepared(facts, reasons, ())
    if installed:
        differing = {place.path for place, was in current.items() if not place.holds(was)}
        steps = plan.changes(steps, differing, facts)
    return Prepared(facts, (), steps)


def restart_of(root: Path, begun: Sequence[Begun]) -> Judgement | None:
    """Returns what kubelet finds if undoing ``begun`` restarts it; None if it does not, or kubelet is in no cluster."""
    if not any(isinstance(each.step, PointKubelet) for each in begun) or not probes.on_proxy(root):
        return None
    node = NodeFiles(root)
    found = collect.ask_restart(node, settings.kubelet_process(node))
    return None if found is None else kubernetes.kubelet_restart(Facts(restart=found))


def programs(
    node: NodeFiles,
    package: bool,
    prefix: Path = Path(sys.prefix),
    python: Path = Path(sys.executable),
    hidden: Sequence[str] = HIDDEN,
) -> Programs:
    """Returns the package's programs, if ``package``; else those of the virtual environment that this runs in."""
    if package:
        directory = next((each for each in DIRECTORIES[::-1] if node.exists(f"{each}/{QOSD}")), "")
        units = {name: text for name in UNIT_FILES if (text := node.text(f"{directory}/{name}"))} if directory else {}
        problem = "" if len(units) == len(UNIT_FILES) else "the package's units are not there"
        return Programs(Flavour.PACKAGE, "/usr/bin", directory, units, problem)
    sources = prefix / "share/koord/systemd"
    units = {name: (sources / name).read_text(encoding="utf-8") for name in UNIT_FILES if (sources / name).is_file()}
    return Programs(Flavour.VENV, f"{prefix}/bin", LOCAL, units, _problem(prefix, python, hidden, units))


def _problem(prefix: Path, python: Path, hidden: Sequence[str], units: Mapping[str, str]) -> str:
    if not (prefix / "pyvenv.cfg").is_file():
        return f"koordctl runs neither from a virtual environment ({prefix} is none) nor with --package"
    for place in (prefix.resolve(), python.resolve()):
        if any(place.is_relative_to(each) for each in hidden):
            return f"{place} is where the units cannot see it"
    missing = [f"{prefix}/bin/{name}" for name in PROGRAMS if not (prefix / "bin" / name).exists()]
    missing += [f"{prefix}/share/koord/systemd/{name}" for name in UNIT_FILES if name not in units]
    return f"not there: {', '.join(missing)}" if missing else ""
