"""Makes the sampler with its collectors and store."""

from __future__ import annotations

from dataclasses import dataclass

from qosd.sense.host import CollectorHost
from qosd.sense.sampler import Sampler
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemCollector
from qosd.sense.table import COLLECTORS, PANELS


@dataclass(frozen=True, slots=True)
class Sense:
    """``system`` names the pods that could not be read."""

    sampler: Sampler
    store: SampleStore
    system: SystemCollector


def build(host: CollectorHost) -> Sense:
    """Makes every collector, and a store for all that they measure."""
    collectors = [collector(host) for collector in COLLECTORS]
    (system,) = (one for one in collectors if isinstance(one, SystemCollector))
    store = SampleStore(PANELS)
    return Sense(Sampler(collectors, store, host.clock), store, system)
