"""Every row of ``koord.host.files`` against a real v2 kernel, in a container's scope that systemd and runc made.

All steps of a table go to the guest at once; the tests judge what came back. What this kernel (6.1, Debian's cloud
build) lacks is listed, so that a row cannot be forgotten.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from integration.guest import kernelsteps, payload, programs
from integration.guest.guest import Guest
from integration.guest.kernelsteps import TREE, Step
from koord.host.files import ROWS, Target, Value, row
from koord.host.order import Change, order
from koord.host.spelling import IDLE_SHARES
from koord.host.weights import Weights
from koordctl.doctor.kernel import NO_REMOTE_PARTITIONS
from tests.fakes.cgroupstates import Machine, Scene, scenes

MIB = 1 << 20
PAGE_BYTES = 4096
DEVICE = "DEVICE"
"""Stands for the disk's numbers."""
LACKING = {
    *("cpuset.cpus.exclusive", "cpu.uclamp.min", "cpu.uclamp.max", "memory.zswap.max", "io.latency", "irq.pressure"),
    *(name for name, each in ROWS.items() if 2 in each.vendor_on),
}
"""Rows of v2 that this kernel has no file for."""
SHARES = (2, 100, 512, 1024, 262_144)
CREATED = (1024, 262_144)
SCENES = 40

# row, value → the kernel's text
WRITTEN: tuple[tuple[str, Value, str], ...] = (
    ("cpu_shares", 2, "1"),
    ("cpu_shares", 1024, "39"),
    ("cpu_shares", 262_144, "10000"),
    ("cpu_quota", 33_333, "33333 100000"),
    ("cpu.max.burst", 20_000, "20000"),
    ("cpu.max.burst", 0, "0"),
    ("cpu_quota", 1000, "1000 100000"),
    ("cpu_quota", -1, "max 100000"),
    ("cpuset_cpus", "1", "1"),
    ("cpuset_cpus", "1,0", "0-1"),
    ("cpuset_mems", "0", "0"),
    ("cpuset.cpus.partition", "member", "member"),
    ("memory_limit_in_bytes", 64 * MIB + 1, str(64 * MIB)),
    ("memory_limit_in_bytes", -1, "max"),
    ("memory.min", 4 * MIB, str(4 * MIB)),
    ("memory.min", 0, "0"),
    ("memory.low", 4 * MIB, str(4 * MIB)),
    ("memory.low", 0, "0"),
    ("memory.high", 48 * MIB, str(48 * MIB)),
    ("memory.high", -1, "max"),
    ("memory.oom.group", 0, "0"),
    ("memory.oom.group", 1, "1"),
    ("memory.swap.max", 0, "0"),
    ("memory.swap.max", -1, "max"),
    ("memory.swap.high", MIB, str(MIB)),
    ("memory.swap.high", -1, "max"),
    (f"io.max.rbps@{DEVICE}", MIB, f"{DEVICE} rbps={MIB} wbps=max riops=max wiops=max"),
    (f"io.max.wiops@{DEVICE}", 100, f"{DEVICE} rbps={MIB} wbps=max riops=max wiops=100"),
    (f"io.max.rbps@{DEVICE}", -1, f"{DEVICE} rbps=max wbps=max riops=max wiops=100"),
    (f"io.max.wiops@{DEVICE}", -1, ""),
    (f"io.max.wbps@{DEVICE}", MIB, f"{DEVICE} rbps=max wbps={MIB} riops=max wiops=max"),
    (f"io.max.wbps@{DEVICE}", -1, ""),
    (f"io.max.riops@{DEVICE}", 50, f"{DEVICE} rbps=max wbps=max riops=50 wiops=max"),
    (f"io.max.riops@{DEVICE}", -1, ""),
    ("io.weight", 200, "default 200"),
    ("io.weight", 100, "default 100"),
    ("pids.max", 1000, "1000"),
    ("pids.max", -1, "max"),
    ("cgroup.freeze", 1, "1"),
    ("cgroup.freeze", 0, "0"),
    ("cpu.idle", 1, "1"),
    ("cpu.idle", 0, "0"),
    ("vm.watermark_scale_factor", 20, "20"),
    ("vm.min_free_kbytes", 20_480, "20480"),
    ("oom_score_adj@1", -900, "-900"),
)
AT_THE_ROOT: tuple[tuple[str, Value, str], ...] = (
    (
        f"io.cost.qos@{DEVICE}",
        "enable=1 ctrl=user",
        f"{DEVICE} enable=1 ctrl=user rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00",
    ),
    (
        f"io.cost.model@{DEVICE}",
        "ctrl=user model=linear rbps=1000000 rseqiops=100 rrandiops=100 wbps=1000000 wseqiops=100 wrandiops=100",
        f"{DEVICE} ctrl=user model=linear rbps=1000000 rseqiops=100 rrandiops=100"
        " wbps=1000000 wseqiops=100 wrandiops=100",
    ),
)
# before, row, value → errno: what the kernel refuses although the row allows it
REFUSED: tuple[tuple[tuple[tuple[str, Value], ...], str, Value, int], ...] = (
    ((("cpu_quota", 50_000), ("cpu.max.burst", 20_000)), "cpu_quota", 10_000, errno.EINVAL),
    ((("cpu_quota", 50_000),), "cpu.max.burst", 50_001, errno.EINVAL),
    ((("cpu.idle", 1),), "cpu_shares", 1024, errno.EINVAL),
    ((("cpuset_cpus", "0"),), "cpuset_cpus", "", errno.ENOSPC),
    ((), "cpuset_cpus", "1000", errno.ERANGE),
    ((), "cpuset_mems", "1", errno.EINVAL),
)
# file, text: what the rows refuse themselves, and the kernel too
SENSELESS: tuple[tuple[str, Value, str, str], ...] = (
    ("cpu_quota", 999, "cpu.max", "999"),
    ("cpu_shares", 1, "cpu.weight", "0"),
    ("cpu_shares", 262_145, "cpu.weight", "10001"),
    ("cpu.idle", 2, "cpu.idle", "2"),
    ("cpuset_cpus", "two", "cpuset.cpus", "two"),
    ("io.weight", 0, "io.weight", "default 0"),
    ("io.weight", 10_001, "io.weight", "default 10001"),
    ("memory.oom.group", 2, "memory.oom.group", "2"),
    ("cgroup.freeze", 2, "cgroup.freeze", "2"),
    (f"io.max.rbps@{DEVICE}", 0, "io.max", f"{DEVICE} rbps=0"),
)


class Node:
    """The guest with one pod; ``group`` and ``other`` are its containers' cgroups. ``device``: the disk's numbers."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        programs.put(guest)
        guest.put("/etc/resolv.conf", "")  # which the runtime copies where no kubelet gives it another
        argv = ("python3", "-B", "-m", "integration.guest.inside.shares", "/run/containerd/containerd.sock")
        shares = (",".join(map(str, each)) for each in (CREATED, SHARES))
        said = guest.do(*argv, *shares, timeout_s=300, PYTHONPATH=payload.PYTHONPATH)
        self.shares: dict[str, Any] = json.loads(said)
        self.other, self.cgroup = self.shares["groups"]
        self.device = guest.text("/sys/block/vda/dev")

    def here(self, text: Value) -> Value:
        return text.replace(DEVICE, self.device) if isinstance(text, str) else text

    def do(self, steps: list[Step]) -> list[Any]:
        return kernelsteps.do(self.guest, [tuple(self.here(word) for word in step) for step in steps])


@pytest.fixture(scope="module")
def node(guest: Guest) -> Node:
    return Node(guest)


def test_every_row_of_v2_is_tried_or_known_to_be_lacking(node: Node) -> None:
    written = {name.partition("@")[0] for name, _, _ in (*WRITTEN, *AT_THE_ROOT)}
    rows = {name: each for name, each in ROWS.items() if each.v2 is not None and name not in LACKING}
    values_of = {name: each for name, each in rows.items() if not each.is_one_shot}
    assert {name for name, each in values_of.items() if each.writable and each.file_name(2, for_write=True)} <= written
    only_read = sorted(name for name, each in values_of.items() if not each.writable)
    values = node.do([("read", node.cgroup, name) for name in only_read])
    assert {name: value for name, value in zip(only_read, values, strict=True) if not _is_shown(value)} == {}
    lacking = node.do([("read", node.cgroup, name) for name in sorted(LACKING)])
    assert set(lacking) == {None}


def _is_shown(value: Any) -> bool:
    return isinstance(value, int | str)


def test_a_device_has_a_weight_where_io_cost_is_on(node: Node) -> None:
    weigh: Step = ("write", node.cgroup, f"io.weight@{DEVICE}", 300)
    qos = f"io.cost.qos@{DEVICE}"
    release: Step = ("write", node.cgroup, f"io.weight@{DEVICE}", "default")
    steps = [weigh, ("write", "/", qos, "enable=1"), weigh, release, ("write", "/", qos, "enable=0")]
    off, _, on, released, _ = node.do(steps)
    assert off["errno"] == errno.EOPNOTSUPP
    assert "io.cost.qos" in off["error"]
    assert on == {"text": node.here(f"default 100\n{DEVICE} 300"), "value": 300}
    assert released == {"text": node.here("default 100"), "value": "default"}, "the line goes"


def test_values_are_spelled_as_the_kernel_does(node: Node) -> None:
    results = node.do([("write", node.cgroup, name, value) for name, value, _ in WRITTEN])
    results += node.do([("write", "/", name, value) for name, value, _ in AT_THE_ROOT])
    for (name, value, text), result in zip((*WRITTEN, *AT_THE_ROOT), results, strict=True):
        assert result.get("text") == node.here(text), (name, value, result)
        written = row(name.replace(DEVICE, node.device))
        assert written.same(value, result["value"], PAGE_BYTES, version=2), (name, value, result)


def test_what_the_kernel_refuses_has_its_rule(node: Node) -> None:
    clean: list[Step] = [
        ("write", node.cgroup, name, value)
        for name, value in (("cpu.idle", 0), ("cpu.max.burst", 0), ("cpu_quota", -1), ("cpuset_cpus", "0-1"))
    ]
    steps: list[Step] = []
    tries = []
    for before, name, value, _ in REFUSED:
        steps += [*clean, *(("write", node.cgroup, *each) for each in before), ("write", node.cgroup, name, value)]
        tries.append(len(steps) - 1)
    results = node.do([*steps, *clean])
    for (_, name, value, number), index in zip(REFUSED, tries, strict=True):
        refused = results[index]
        assert refused.get("errno") == number, (name, value, refused)
        assert refused["error"].endswith(")"), f"without the kernel's rule: {refused['error']}"


@pytest.mark.parametrize(
    ("name", "of_container", "of_pod", "everything"),
    [
        ("cpu_quota", 90_000, 30_000, -1),
        ("memory_limit_in_bytes", 96 * MIB, 64 * MIB, -1),
        ("cpuset_cpus", "0-1", "1", "0-1"),
    ],
)
def test_a_pod_may_have_less_than_its_container(
    node: Node, name: str, of_container: Value, of_pod: Value, everything: Value
) -> None:
    """Which is how a contested file is enforced one level up; v1 refuses it for quotas and CPU sets."""
    pod = node.cgroup.rpartition("/")[0]
    bound: list[Step] = [("write", node.cgroup, name, of_container), ("write", pod, name, of_pod)]
    undo: list[Step] = [("write", pod, name, everything), ("write", node.cgroup, name, everything)]
    effective = f"{TREE}{node.cgroup}/cpuset.cpus.effective"
    results = node.do([*bound, ("read", node.cgroup, name), ("text", effective), *undo])
    assert not [each for each in results if _is_error(each)]
    assert (results[1]["value"], results[2]) == (of_pod, of_container)
    assert results[3].strip() == (of_pod if name == "cpuset_cpus" else "0-1")


def test_what_a_row_refuses_the_kernel_refuses_too(node: Node) -> None:
    steps: list[Step] = []
    for name, value, file, text in SENSELESS:
        steps += [("write", node.cgroup, name, value), ("put", f"{TREE}{node.cgroup}/{file}", text)]
    results = node.do(steps)
    for (name, value, _, text), by_row, by_kernel in zip(SENSELESS, results[::2], results[1::2], strict=True):
        assert by_row["errno"] is None, (name, value, by_row)
        assert by_kernel is not None, f"{name}: the kernel takes {text!r}"
        assert by_kernel["errno"] in (errno.EINVAL, errno.ERANGE), (name, by_kernel)


def test_an_idle_group_weighs_nothing_and_100_after_it(node: Node) -> None:
    """v1 would show 3 shares, and 1024."""
    weight = f"{TREE}{node.cgroup}/cpu.weight"
    cgroup = node.cgroup
    results = node.do(
        [
            *(("write", cgroup, "cpu_shares", 2), ("write", cgroup, "cpu.idle", 1), ("text", weight)),
            *(("read", cgroup, "cpu_shares"), ("write", cgroup, "cpu.idle", 0), ("text", weight)),
        ]
    )
    assert (results[2], results[3], results[5]) == ("0\n", IDLE_SHARES, "100\n")


def test_a_cpu_set_with_processes_in_it_is_given_back_as_all(node: Node) -> None:
    results = node.do([("write", node.cgroup, "cpuset_cpus", "1"), ("release", node.cgroup, "cpuset_cpus", "")])
    assert results[1] == {"text": "0-1", "value": "0-1"}


def test_shares_become_the_weights_that_the_runtime_makes_of_them(node: Node) -> None:
    assert node.shares["created"] == {str(shares): str(Weights.LINEAR.weight(shares)) for shares in CREATED}
    assert node.shares["updated"] == {str(shares): str(Weights.LINEAR.weight(shares)) for shares in SHARES}


def test_there_are_no_remote_cpuset_partitions_and_doctor_says_so(node: Node) -> None:
    partition = f"{TREE}{node.cgroup}/cpuset.cpus.partition"
    made, text, _ = node.do([("put", partition, "root"), ("text", partition), ("put", partition, "member")])
    assert (made, text.split()[:2]) == (None, ["root", "invalid"])
    findings = json.loads(node.guest.run("koordctl", "doctor", "-o", "json").stdout)
    (finding,) = (each for each in findings["findings"] if each["check"] == "cpuset-partition")
    assert (finding["status"], finding["sentence"]) == ("info", NO_REMOTE_PARTITIONS)


# --- what systemd keeps ----------------------------------------------------------------------------------------------

KEPT: tuple[tuple[str, Value], ...] = (
    ("cpu_shares", 2),
    ("cpu_quota", 33_333),
    ("cpuset_cpus", "1"),
    ("cpuset_mems", "0"),
    ("memory_limit_in_bytes", 64 * MIB),
    ("memory.min", MIB),
    ("memory.low", 2 * MIB),
    ("memory.high", 48 * MIB),
    ("memory.swap.max", 0),
    ("pids.max", 1000),
    ("io.weight", 200),
)
IN_PERCENTS = 34_000
"""What systemd keeps of that quota."""
UNKNOWN_TO_IT: tuple[tuple[str, Value], ...] = (
    ("cpu.max.burst", 1000),
    (f"io.max.rbps@{DEVICE}", MIB),
)
NOT_TOLD: tuple[tuple[str, Value], ...] = (
    *(("memory.high", 32 * MIB), ("cpu.idle", 1), ("io.weight", 300), ("memory.oom.group", 1)),
)
Held = dict[str, Value]


@dataclass(frozen=True)
class Reloaded:
    """What one container's files held before and after a reload; another's that is idle; and the slice's of their pod,
    which nobody told systemd of. ``told``: what became of the telling of the first."""

    told: dict[str, Any]
    before: Held
    after: Held
    idle: Held
    untold: Held


@pytest.fixture(scope="module", params=["daemon-reload", "daemon-reexec"])
def reloaded(request: pytest.FixtureRequest, node: Node) -> Reloaded:
    cgroup, idle, pod = node.cgroup, node.other, node.cgroup.rpartition("/")[0]
    mine, others = dict((*KEPT, *UNKNOWN_TO_IT)), dict(NOT_TOLD)
    reading: list[Step] = [("read", cgroup, name) for name in mine]
    results = node.do(
        [
            *(("write", cgroup, *each) for each in (("cpu.max.burst", 0), *KEPT, *UNKNOWN_TO_IT)),
            *(("write", pod, *each) for each in NOT_TOLD),
            *(("write", idle, "cpu.idle", 1), ("tell", [idle, "cpu.idle"])),
            *(("tell", *([cgroup, name] for name, _ in KEPT)), *reading),
        ]
    )
    assert not [each for each in results if _is_error(each)]
    told, before = results[-len(mine) - 1], dict(zip(mine, results[-len(mine) :], strict=True))
    node.guest.do("systemctl", request.param)
    steps: list[Step] = [*reading, ("read", idle, "cpu.idle"), *(("read", pod, name) for name in others)]
    after = node.do(steps)
    found = dict(zip(mine, after, strict=False))
    return Reloaded(
        told, before, found, {"cpu.idle": after[len(mine)]}, dict(zip(others, after[-len(others) :], strict=True))
    )


def test_what_systemd_was_told_outlasts_a_reload(reloaded: Reloaded) -> None:
    assert reloaded.before == dict((*KEPT, *UNKNOWN_TO_IT))
    assert {**reloaded.after, "cpu_quota": 0} == {**reloaded.before, "cpu_quota": 0}
    assert reloaded.idle == {"cpu.idle": 1}


def test_a_quota_is_kept_in_whole_percents_and_written_exactly(reloaded: Reloaded) -> None:
    kept = {"cpu_quota": IN_PERCENTS}
    assert reloaded.told == {name: {"why": "", "kept": kept.get(name)} for name, _ in KEPT}
    assert (reloaded.before["cpu_quota"], reloaded.after["cpu_quota"]) == (33_333, IN_PERCENTS)


def test_what_it_was_not_told_does_not(reloaded: Reloaded) -> None:
    """The reason for all this."""
    assert reloaded.untold == {"memory.high": -1, "cpu.idle": 0, "io.weight": 100, "memory.oom.group": 0}


def test_systemd_rewrites_the_whole_unit_and_telling_it_puts_back_what_was_there(node: Node) -> None:
    limit = (node.cgroup, "memory.high")
    steps: list[Step] = [("write", *limit, 32 * MIB), ("tell", [node.cgroup, "pids.max"]), ("read", *limit)]
    assert node.do(steps)[-1] == 32 * MIB
    unit = node.cgroup.rpartition("/")[2]
    tasks = node.guest.do("systemctl", "show", "--property=TasksMax", unit).strip()
    node.guest.do("systemctl", "set-property", "--runtime", unit, tasks)
    assert node.do([("read", *limit)])[-1] == 48 * MIB


def test_telling_keeps_what_systemd_resets_without_being_told(node: Node) -> None:
    """kubelet has the runtime set it, and no property stands for it."""
    of_kubelet = (node.cgroup, "memory.oom.group")
    steps: list[Step] = [("write", *of_kubelet, 1), ("tell", [node.cgroup, "pids.max"]), ("read", *of_kubelet)]
    assert node.do(steps)[-1] == 1


# --- the order of writes ---------------------------------------------------------------------------------------------

TOP = "/koordtest"
_NOT_ALONE = ("cpu_period", "memory_swap_limit_in_bytes")
"""v2 has no file of their own for these."""


def test_the_kernel_refuses_no_legal_change_that_is_ordered(node: Node) -> None:
    drawn = _drawn()
    bursts = [scene for scene in drawn if any(change.target.name == "cpu.max.burst" for change in scene.changes)]
    assert len(bursts) >= SCENES / 2, "it is the burst that v2 checks, against the quota"
    steps: list[Step] = [("mkdir", f"{TREE}{TOP}"), _enabled(TOP)]
    checks: list[tuple[int, Scene, str]] = []
    for scene in drawn:
        steps += [step for cgroup in scene.groups for step in (("mkdir", f"{TREE}{cgroup}"), _enabled(cgroup))]
        steps += [("write", *_named(target), value) for target, value in _made(scene.current).items()]
        checks.append((len(steps), scene, "current"))
        steps += [("read", *_named(target)) for target in _made(scene.current, all_of=True)]
        current = _as_read(scene.current)
        changes = [
            Change(change.target, current[change.target], change.desired)
            for change in scene.changes
            if change.target.name not in _NOT_ALONE
        ]
        steps += [("write", *_named(step.target), step.value) for step in order(changes, 2)]
        checks.append((len(steps), scene, "desired"))
        steps += [("read", *_named(target)) for target in _made(scene.desired, all_of=True)]
        steps += [("rmdir", f"{TREE}{cgroup}") for cgroup in reversed(scene.groups)]
    results = node.do([*steps, ("rmdir", f"{TREE}{TOP}")])
    failed = [(step, result) for step, result in zip(steps, results, strict=False) if _is_error(result)]
    assert failed == []
    for start, scene, state in checks:
        wanted = _made(_as_read(getattr(scene, state)), all_of=True)
        found = dict(zip(wanted, results[start : start + len(wanted)], strict=True))
        differing = {target: (found[target], value) for target, value in wanted.items() if found[target] != value}
        assert not differing, f"{state} (found, wanted): {differing} of {scene}"


def _drawn() -> list[Scene]:
    drawn: list[Scene] = []

    @settings(max_examples=SCENES, phases=[Phase.generate], database=None, deadline=None, derandomize=True)
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        drawn.append(data.draw(scenes(Machine(2, "0-1", "0", TOP), with_processes=False)))

    collect()
    return drawn


def _enabled(cgroup: str) -> Step:
    return ("put", f"{TREE}{cgroup}/cgroup.subtree_control", "+cpu +cpuset +memory")


def _named(target: Target) -> tuple[str, str]:
    return target.cgroup, target.name


def _made(state: Mapping[Target, Value], all_of: bool = False) -> dict[Target, Value]:
    """What v2 has files for; the shares of an idle group cannot be written, and read as idle."""
    return {
        target: value
        for target, value in state.items()
        if target.name not in _NOT_ALONE
        and (all_of or target.name != "cpu_shares" or state[Target(target.cgroup, "cpu.idle")] == 0)
    }


def _as_read(state: Mapping[Target, Value]) -> dict[Target, Value]:
    """What the files of ``state`` read: a weight stands for several shares, and an idle group has none."""
    return {
        target: Weights.LINEAR.shares(Weights.LINEAR.weight(int(value)))
        if target.name == "cpu_shares" and state[Target(target.cgroup, "cpu.idle")] == 0
        else value
        for target, value in state.items()
    }


def _is_error(result: Any) -> bool:
    return isinstance(result, dict) and "error" in result
