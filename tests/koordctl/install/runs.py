"""Installing, changing and uninstalling as the commands do, in whatever state an earlier run left the node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from koord.model.locations import PROXY_SOCKET
from koordctl.install import execute
from koordctl.install import record as records
from koordctl.install.machine import Machine
from koordctl.install.prepare import Prepared, decide
from koordctl.install.steps import Step
from koordctl.node.facts import Facts
from koordctl.node.units import UNITS
from tests.koordctl.install.world import World, facts, node_facts


def install(machine: Machine, steps: Sequence[Step], with_daemon: bool = True) -> None:
    records.sweep(machine.disk)
    record = records.load(machine.disk)
    if record is not None and not record.complete:
        execute.roll_back(machine, record)
        record = record if record.complete else None
    execute.install(machine, record, steps, "1", with_daemon)


def uninstall(machine: Machine, purge: bool = False) -> tuple[str, ...]:
    record = records.load(machine.disk)
    records.sweep(machine.disk)
    return execute.uninstall(machine, record, purge) if record is not None else ()


def changes(world: World, node: Facts | None = None, **changed: Any) -> Prepared:
    """What a second look finds to do on an installed node, of which ``node`` and ``changed`` are known by now."""
    node = node or node_facts()
    on_proxy = replace(node, kubelet=replace(node.kubelet, runtime_endpoint=f"unix://{PROXY_SOCKET}"))
    record = records.load(world.machine().disk)
    known: dict[str, Any] = {
        "node": on_proxy,
        "running": frozenset(UNITS) & world.active,
        "ours": record.own_paths if record is not None else frozenset(),
    }
    found = facts(world.root, **{**known, **changed})
    with_daemon = record is None or record.with_daemon
    return decide(world.machine().disk, found, with_kubelet=True, installed=record is not None, with_daemon=with_daemon)
