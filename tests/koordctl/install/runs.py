"""Installing and uninstalling as the commands do, in whatever state an earlier run left the node."""

from __future__ import annotations

from collections.abc import Sequence

from koordctl.install import execute
from koordctl.install import record as records
from koordctl.install.host import Host
from koordctl.install.steps import Step


def install(host: Host, steps: Sequence[Step]) -> None:
    records.sweep(host.disk)
    record = records.load(host.disk)
    if record is not None and not record.complete:
        execute.roll_back(host, record)
        record = record if record.complete else None
    execute.install(host, record, steps, "1")


def uninstall(host: Host, purge: bool = False) -> tuple[str, ...]:
    record = records.load(host.disk)
    records.sweep(host.disk)
    return execute.uninstall(host, record, purge) if record is not None else ()
