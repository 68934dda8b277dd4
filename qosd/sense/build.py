"""All of sensing, put together."""

from __future__ import annotations

from dataclasses import dataclass

from qosd.sense.host import Host
from qosd.sense.sampler import Sampler
from qosd.sense.store import Store
from qosd.sense.system import System
from qosd.sense.table import COLLECTORS, PANELS


@dataclass(frozen=True, slots=True)
class Sense:
    """``system`` names the pods that could not be read."""

    sampler: Sampler
    store: Store
    system: System


def build(host: Host) -> Sense:
    """Every collector, and room for all that they measure."""
    collectors = [collector(host) for collector in COLLECTORS]
    (system,) = (one for one in collectors if isinstance(one, System))
    store = Store(PANELS)
    return Sense(Sampler(collectors, store, host.clock), store, system)
