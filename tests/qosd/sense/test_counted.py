"""What the kernel counts of each cgroup, on both versions: rates within one life of a cgroup, and of that one only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest

from koord.model.qos import QoSClass
from qosd.model.metric import Scope
from qosd.sense.host import CollectorHost
from qosd.sense.io import IO_ROWS, IOCollector
from qosd.sense.memoryevents import MEMORY_EVENTS, MemoryEventsCollector
from qosd.sense.row import Row
from qosd.sense.sampler import Sampler
from qosd.sense.targets import SampleTargets
from qosd.sense.tick import Collector, NotApplicable
from qosd.sense.usage import USAGE
from tests.qosd.sense.trees import TIERS, World, pod

A, B = pod("a"), pod("b", QoSClass.BE, TIERS.besteffort)
CGROUPS = {
    "tier": TIERS.besteffort,
    "pod": A.cgroup,
    "latency-sensitive container": A.containers[1].cgroup,
    "other container": B.containers[1].cgroup,
}
NAN = math.nan
Files = Mapping[str, str]
Rates = Mapping[str, float]


class Counted(NamedTuple):
    """A collector with its rows; the files of a cgroup at two readings, and the rates if a second is between them."""

    collector: Callable[[CollectorHost], Collector]
    rows: Mapping[Scope, type[Row]]
    before: Files
    after: Files
    rates: Rates


def throttled(devices: Iterable[tuple[int, int]]) -> str:
    """(read, written) of each device, as v1 prints it."""
    lines = (
        f"8:{minor} Read {read}\n8:{minor} Write {written}\n8:{minor} Sync 5\n8:{minor} Async 0\n8:{minor} Discard 3\n"
        f"8:{minor} Total {read + written}\n"
        for minor, (read, written) in enumerate(devices)
    )
    return "".join(lines) + "Total 99\n"


def io(version: int, *devices: tuple[int, int, int, int]) -> Files:
    """(bytes read, bytes written, reads, writes) of each device."""
    if version == 2:
        lines = (
            f"8:{minor} rbytes={read} wbytes={written} rios={reads} wios={writes} dbytes=7 dios=7\n"
            for minor, (read, written, reads, writes) in enumerate(devices)
        )
        return {"io.stat": "".join(lines)}
    return {
        "blkio.throttle.io_service_bytes_recursive": throttled(device[:2] for device in devices),
        "blkio.throttle.io_serviced_recursive": throttled(device[2:] for device in devices),
    }


def io_counted(version: int, before: Files, after: Files, *rates: float) -> Counted:
    names = ("io_read_bytes", "io_written_bytes", "io_reads", "io_writes")
    return Counted(IOCollector, IO_ROWS, before, after, dict(zip(names, rates, strict=True)))


def io_of_two_devices(version: int) -> Counted:
    before = io(version, (1000, 0, 10, 0), (500, 0, 1, 1))
    return io_counted(version, before, io(version, (3000, 100, 12, 1), (1000, 0, 1, 1)), 2500, 100, 2, 1)


def no_io(version: int) -> Counted:
    return io_counted(version, io(version, (4096, 0, 1, 0)), io(version, (4096, 0, 1, 0)), 0, 0, 0, 0)


EVENTS = "low", "high", "max", "oom", "oom_kill"
EVENT_NAMES = "memory_low_events", "memory_high_events", "memory_max_events", "oom_events", "oom_kills"


def memory_events(version: int, *counts: int) -> Files:
    """In the order of ``EVENTS``, as far as this version counts them."""
    if version == 2:
        return {"memory.events": "".join(f"{name} {count}\n" for name, count in zip(EVENTS, counts, strict=False))}
    _, _, failures, _, kills = counts
    return {
        "memory.failcnt": f"{failures}\n",
        "memory.oom_control": f"oom_kill_disable 0\nunder_oom 1\noom_kill {kills}\n",
    }


def events_counted(before: Files, after: Files, **rates: float) -> Counted:
    return Counted(MemoryEventsCollector, MEMORY_EVENTS, before, after, rates)


def every_event(version: int) -> Counted:
    rates = dict(zip(EVENT_NAMES, (1, 2, 3, 4, 5), strict=True))
    counted = rates if version == 2 else {name: rates[name] for name in ("memory_max_events", "oom_kills")}
    return events_counted(memory_events(version, 9, 9, 9, 9, 9), memory_events(version, 10, 11, 12, 13, 14), **counted)


def without_oom_kills(version: int) -> Counted:
    """Linux before 4.13."""
    if version == 2:
        low, high, most = EVENT_NAMES[:3]
        return events_counted(memory_events(2, 1, 2, 3), memory_events(2, 2, 2, 5), **{low: 1, high: 0, most: 2})
    text = "oom_kill_disable 0\nunder_oom 0\n"
    before, after = ({"memory.failcnt": f"{count}\n", "memory.oom_control": text} for count in (7, 9))
    return events_counted(before, after, memory_max_events=2)


COUNTED = [io_of_two_devices, no_io, every_event, without_oom_kills]


class Scene:
    """One collector, once a tick."""

    def __init__(self, world: World, counted: Counted) -> None:
        self.world, self.counted, self.collector = world, counted, counted.collector(world.host)
        self.before_ns = 0
        world.targets = SampleTargets.of((A, B), TIERS, ())

    def put(self, files: Files, cgroup: str = TIERS.besteffort) -> None:
        for name, text in files.items():
            self.world.put(self.world.path(cgroup, name), text)

    def tick(self, seconds: float = 1) -> None:
        self.world.clock.advance(seconds)
        self.batch()

    def batch(self) -> None:
        tick = replace(self.world.tick(), before_ns=self.before_ns)
        self.world.store_batch(self.collector.collect(tick))
        self.before_ns = tick.at_ns

    def rates(self, of: str = "tier") -> Rates:
        """Those of one of ``CGROUPS``, by what is particular of their names."""
        return {
            metric.name.removeprefix(f"{metric.scope}_").removesuffix("_per_s"): samples[CGROUPS[of]]
            for metric, samples in self.world.store.newest().items()
            if CGROUPS[of] in samples
        }


@pytest.fixture
def scene(request: pytest.FixtureRequest, world: World) -> Scene:
    return Scene(world, request.param(world.version))


all_counted = pytest.mark.parametrize("scene", COUNTED, indirect=True, ids=lambda one: str(one.__name__))


@all_counted
def test_rates_are_exact_and_the_first_reading_has_none(scene: Scene) -> None:
    scene.put(scene.counted.before)
    scene.tick()
    assert scene.rates() == {}
    scene.put(scene.counted.after)
    scene.tick(0.5)
    assert scene.rates() == {name: 2 * rate for name, rate in scene.counted.rates.items()}


@all_counted
def test_who_is_read_every_second_and_who_every_ten(scene: Scene) -> None:
    """Of a container that is not latency-sensitive the newest rates hold until then."""
    for cgroup in CGROUPS.values():
        scene.put(scene.counted.before, cgroup)
    for _ in range(10):
        scene.tick()
    for cgroup in CGROUPS.values():
        scene.put(scene.counted.after, cgroup)
    seen: dict[str, list[Rates]] = {cgroup: [] for cgroup in CGROUPS}
    for _ in range(20):
        scene.tick()
        for cgroup, rates in seen.items():
            rates.append(scene.rates(cgroup))
    fast, none = scene.counted.rates, dict.fromkeys(scene.counted.rates, 0.0)
    slow = {name: rate / 10 for name, rate in fast.items()}
    for cgroup in ("tier", "latency-sensitive container"):
        assert seen[cgroup] == [fast, *[none] * 19]
    for cgroup in ("pod", "other container"):
        changes = [rates for rates, before in zip(seen[cgroup], [{}, *seen[cgroup]], strict=False) if rates != before]
        assert [rates for rates in changes if rates] == ([slow, none] if slow != none else [none])


@pytest.mark.parametrize("cores", [0.0, 0.5, None], ids=["idle", "ran", "not known"])
def test_a_latency_sensitive_container_that_did_not_run_is_seldom_read(world: World, cores: float | None) -> None:
    """Of one that did not, the kernel may have written back pages: seen at the tenth tick, and counted once."""
    scene, container = Scene(world, io_of_two_devices(world.version)), CGROUPS["latency-sensitive container"]
    scene.put(scene.counted.before)
    scene.put(scene.counted.before, container)

    def tick() -> float:
        world.clock.advance(1)
        if cores is not None:
            world.store.put(USAGE[Scope.CONTAINER].panel, world.clock(), {container: used(cores)})
        scene.batch()
        return scene.rates("latency-sensitive container").get("io_read_bytes", NAN)

    assert math.isnan(tick())
    scene.put(scene.counted.after, container)
    growth = scene.counted.rates["io_read_bytes"]
    quiet = 9 if cores == 0 else 0
    assert [tick() for _ in range(12)] == [*[0.0] * quiet, growth, *[0.0] * (11 - quiet)]


def test_after_a_batch_that_was_left_out_everybody_is_read(world: World) -> None:
    scene, container = Scene(world, io_of_two_devices(world.version)), CGROUPS["latency-sensitive container"]
    for files in (scene.counted.before, scene.counted.after):
        scene.put(files)
        scene.put(files, container)
        world.clock.advance(1)
        world.store.put(USAGE[Scope.CONTAINER].panel, world.clock(), {container: used(0.0)})
        scene.batch()
        scene.before_ns += 1
    assert scene.rates("latency-sensitive container").items() >= scene.counted.rates.items()


def used(cores: float) -> Row:
    columns = {column.stem: NAN for column in USAGE[Scope.CONTAINER].columns}
    return USAGE[Scope.CONTAINER](**columns | {"cpu_usage_cores": cores})


@all_counted
@pytest.mark.parametrize("again", ["fallen", "another cgroup of the same name", "no file in between"])
def test_nothing_is_counted_across_two_lives(scene: Scene, again: str) -> None:
    later, earlier = scene.counted.after, scene.counted.before
    scene.put(earlier, TIERS.burstable)
    scene.put(later if again == "fallen" else earlier)
    scene.tick()
    if again == "fallen":
        scene.put(earlier)
    else:
        renewed(scene, later, vanishes=again == "no file in between")
    scene.tick()
    assert {name: rate for name, rate in scene.rates().items() if again != "fallen" or rate} == {}
    scene.tick()
    assert set(scene.rates().values()) == {0.0}


def renewed(scene: Scene, files: Files, vanishes: bool) -> None:
    """Another cgroup at the same path; ``vanishes``: a tick saw none in between."""
    for name, text in files.items():
        file, newer = scene.world.path(TIERS.besteffort, name), scene.world.root / "newer"
        newer.write_text(text)
        scene.world.files.drop([str(file)])  # as a kernel's own does, when its cgroup is gone
        if vanishes:
            file.unlink()
            newer.rename(file.with_name("put back later"))
        else:
            newer.replace(file)
    if vanishes:
        scene.tick()
        assert scene.rates() == {}
        scene.put(files)


@all_counted
def test_a_cgroup_without_the_files_has_no_row_and_the_others_have(scene: Scene) -> None:
    scene.put(scene.counted.before)
    scene.tick()
    batch = dict(scene.collector.collect(scene.world.tick()))
    assert list(batch[scene.counted.rows[Scope.TIER].panel]) == [TIERS.besteffort]


NONSENSE = [
    "junk\n",
    "low\n",
    "low 1\nhigh 2\nmax many\noom 1\noom_kill 2\n",
    "8:0 rbytes=many\n",
    "8:0 Read\n",
    "8:0 Read much\n",
    "8:0 Read 1 2\n",
    "\xff\n",
]


@all_counted
@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_costs_its_cgroup_only_and_what_follows_is_a_first_reading(scene: Scene, text: str) -> None:
    for cgroup in (TIERS.besteffort, TIERS.burstable):
        scene.put(scene.counted.before, cgroup)
    scene.tick()
    scene.put(dict.fromkeys(scene.counted.before, text))
    scene.tick()
    tier = scene.counted.rows[Scope.TIER].panel
    assert {metric for metric in tier.metrics if TIERS.burstable in scene.world.store.newest()[metric]}
    assert scene.rates() == {}
    scene.put(scene.counted.after)
    scene.tick()
    assert scene.rates() == {}


@all_counted
def test_a_cgroup_that_is_gone_keeps_no_file_open(scene: Scene) -> None:
    for cgroup in CGROUPS.values():
        scene.put(scene.counted.before, cgroup)
    for _ in range(11):
        scene.tick()
    assert len(scene.world.files) == len(CGROUPS) * len(scene.counted.before)
    scene.world.targets = SampleTargets.of((), TIERS, ())
    scene.tick()
    assert len(scene.world.files) == len(scene.counted.before)
    scene.collector.close()
    assert len(scene.world.files) == 0


def test_the_first_io_counts_on_v2(v2: World) -> None:
    scene = Scene(v2, no_io(2))
    for devices in ([], [(4096, 0, 1, 0)]):
        scene.put(io(2, *devices))
        scene.tick()
    assert scene.rates() == {"io_read_bytes": 4096, "io_written_bytes": 0, "io_reads": 1, "io_writes": 0}


@pytest.mark.parametrize("there", [True, False])
def test_where_nothing_is_counted_the_reason_is_said(world: World, there: bool) -> None:
    """On v1 a file without a device says nothing; on v2 there is none without the controller."""
    scene = Scene(world, no_io(world.version))
    if there:
        scene.put(io(1) if world.version == 1 else {"memory.events": ""})
    with pytest.raises(NotApplicable, match="throttle limit" if world.version == 1 else "io controller"):
        scene.tick()
    Sampler([scene.collector], world.store, world.clock).sample((A, B), TIERS)
    assert len(world.files) == 0, "it is not tried again soon, and cgroups go meanwhile"


def test_without_kubelets_tiers_nothing_lacks(world: World) -> None:
    scene = Scene(world, no_io(world.version))
    world.targets = SampleTargets()
    scene.tick()


def test_devices_without_io_in_front_of_anothers_line(v2: World) -> None:
    """As Linux 5.15 prints them."""
    scene = Scene(v2, io_of_two_devices(2))
    for count in (0, 4096):
        scene.put({"io.stat": f"7:1 7:0 8:0 rbytes={count} wbytes=0 rios=0 wios=0 dbytes=0 dios=0 cost.usage=1.5\n"})
        scene.tick()
    assert scene.rates()["io_read_bytes"] == 4096
