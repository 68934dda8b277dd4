"""From a node to a plan: gather the facts, look at what is in the plan's places, and leave out what is done already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from koordctl import nodefacts
from koordctl.doctor import kubernetes
from koordctl.doctor.facts import Facts
from koordctl.doctor.finding import Finding
from koordctl.host.node import Node
from koordctl.install import facts as node_facts
from koordctl.install import kubelet, plan
from koordctl.install.disk import Content, Disk, Other
from koordctl.install.facts import Flavour, NodeFacts
from koordctl.install.files import Link
from koordctl.install.record import Begun, Record
from koordctl.install.steps import Kubelet, Step
from koordctl.install.systemd import Systemd


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the operator said: "" = find out. ``with_daemon`` None: as the record has it, and with it where none is."""

    runtime: str = ""
    kubelet_unit: str = ""
    package: bool = False
    with_kubelet: bool = True
    with_daemon: bool | None = None
    offline: bool = False
    only_grants: bool = False
    force: bool = False
    """May a restart of kubelet end pods?"""


@dataclass(frozen=True, slots=True)
class Prepared:
    """``steps`` is empty if there are reasons against it, or nothing to change."""

    facts: NodeFacts
    reasons: tuple[Finding, ...]
    steps: tuple[Step, ...]


def remembered(wishes: Wishes, record: Record | None) -> Wishes:
    """``wishes`` and what ``record`` tells of those before; to be asked before what was cut off is undone."""
    if wishes.with_daemon is None and record is not None and not record.with_daemon:
        return replace(wishes, with_daemon=False)
    return wishes


def prepare(root: Path, wishes: Wishes, systemd: Systemd, record: Record | None) -> Prepared:
    """The plan for the node at ``root``; ``record``: of the installation that is there, or that was begun."""
    node = Node(root)
    doctor = nodefacts.gather(root, wishes.offline, wishes.runtime)
    if wishes.kubelet_unit:
        doctor = replace(doctor, kubelet=replace(doctor.kubelet, unit=_with_type(wishes.kubelet_unit)))
    manager = systemd if doctor.systemd and not wishes.offline else None
    facts = node_facts.gather(node, doctor, node_facts.programs(node, wishes.package), manager)
    if wishes.offline:  # the node is another; of this machine only the units' texts are needed
        complete = len(facts.programs.units) == len(node_facts.UNIT_FILES)
        facts = replace(facts, user=0, programs=replace(facts.programs, problem="" if complete else "no unit files"))
    recorded = record.with_daemon if record is not None and record.installed else None
    facts = replace(facts, ours=record.own_paths if record is not None else frozenset())
    if wishes.only_grants:
        return decide_grants(Disk(root), facts)
    with_daemon = wishes.with_daemon if wishes.with_daemon is not None else recorded is not False
    decided = decide(Disk(root), facts, wishes.with_kubelet, recorded is not None, with_daemon)
    restart = () if wishes.force else plan.of_the_restart(facts, decided.steps)
    reasons = (*decided.reasons, *plan.of_the_daemon(facts, wishes.with_daemon, recorded), *restart)
    return replace(decided, reasons=reasons, steps=() if reasons else decided.steps)


def decide_grants(disk: Disk, facts: NodeFacts) -> Prepared:
    """Steps for an installed node of which nothing but the grants is to be brought up to date."""
    if all(place.holds(disk.look(place.path)) for place in plan.grant_places(facts)):
        return Prepared(facts, (), ())
    return Prepared(facts, (), plan.grant_steps(facts))


def decide(disk: Disk, facts: NodeFacts, with_kubelet: bool, installed: bool, with_daemon: bool = True) -> Prepared:
    """Reasons or steps for a node with these ``facts``."""
    if facts.programs.problem:
        return Prepared(facts, plan.refusals(facts, with_kubelet, ()), ())
    current = {place: disk.look(place.path) for place in plan.places(facts, with_kubelet, with_daemon)}
    in_the_way = [
        place.path
        for place, was in current.items()
        if isinstance(was, Other) or (isinstance(place, Link) and isinstance(was, Content))
    ]
    if facts.programs.flavour is Flavour.PACKAGE:  # units in /etc would win over the package's
        own = (f"{node_facts.VENV_UNITS}/{unit}" for unit in node_facts.UNIT_FILES)
        in_the_way += [path for path in own if disk.exists(path)]
    reasons = plan.refusals(facts, with_kubelet, in_the_way)
    if reasons:
        return Prepared(facts, reasons, ())
    steps = plan.steps(facts, with_kubelet, with_daemon)
    if installed:
        differing = {place.path for place, was in current.items() if not place.holds(was)}
        steps = plan.changes(steps, differing, facts)
    return Prepared(facts, (), steps)


def restart_of(root: Path, begun: Sequence[Begun]) -> Finding | None:
    """What kubelet finds when it is restarted because ``begun`` is undone; None if it is not, or is in no cluster."""
    if not any(isinstance(each.step, Kubelet) for each in begun) or not kubelet.on_proxy(Node(root)):
        return None
    found = nodefacts.ask_restart(root)
    return None if found is None else kubernetes.kubelet_restart(Facts(restart=found))


def _with_type(unit: str) -> str:
    return unit if unit.endswith(".service") else f"{unit}.service"
