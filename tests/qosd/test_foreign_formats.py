"""Files and answers of others, a row for each parser: what one line of rubbish costs, and what it must not cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host import cgroup, proc, psi, resctrl
from koord.host.keyed import DeviceLimit, DeviceWeight, SchemataLine
from koord.host.spelling import At
from koord.model import kubeletconfig
from qosd.pods.cpumanager import read_state
from qosd.pods.cri import detail_of_container
from qosd.pods.kubelet import read_pods
from qosd.sense import io
from qosd.sense.flatkeys import FlatKeys

Values = Mapping[str, Any]
"""By the number of the line that says it, and a name."""


class Parser(NamedTuple):
    """``read``: what the text says, by name; ``said``: by the name of a value, the line of ``text`` that says it.

    ``fixed``: lines that the values of all others hang on (a head, the first line).
    """

    text: str
    read: Callable[[str], Values]
    said: Mapping[str, int]
    fixed: tuple[int, ...] = ()


NET = """\
Inter-|   Receive                                     |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 100 2 0 0 0 0 0 0 100 2 0 0 0 0 0 0
team0:1: 1468243376 66360 1 2 0 0 0 0 4693973 44643 3 4 0 0 0 0
  eth0:1468243376 66360 1 2 0 0 0 0 4693973 44643 3 4 0 0 0 0
"""
DISKS = """\
 259       0 nvme0n1 10 0 2 3 4 0 0 0 0 6 7
   8       0 sda 1 0 2 3 5 0 0 0 0 6 7
   8      16 sdb 1 0 2 3 0 0 0 0 0 6 7 0 0 0 0 1 2
"""
STAT = "cpu  10 1 10 100 0 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8\ncpu2 1 2 3 4 5 6 7 8\ncpu7 1 2 3 4 5 6 7 8\nintr 5 6\n"
MEMINFO = "MemTotal:       16 kB\nMemFree:        8 kB\nSwapCached:     0 kB\nCached:         4 kB\n"
VMSTAT = "pgscan_direct 5\npswpin 6\npgmajfault 7\n"
IO_V2 = (
    "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n8:16 rbytes=512 wbytes=0 rios=2 wios=0 dbytes=0 dios=0\n"
)
IO_V1 = "8:0 Read 4096\n8:0 Write 512\nTotal 4608\n"
PRESSURE = "some avg10=1.00 avg60=2.00 avg300=3.00 total=40\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
MEMORY_STAT = "anon 5\nfile 6\ninactive_file 7\nslab_reclaimable 8\n"
MOUNTINFO = """\
30 25 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
33 30 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
34 30 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 30 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""
SCHEMATA = "    L3:0=7ff;1=7ff\n    MB:0= 100;1= 100\n    L2:0=f\n"
IO_MAX = "8:0 rbps=1048576 wbps=max riops=max wiops=max\n253:0 rbps=2048 wbps=max riops=max wiops=max\n"
IO_WEIGHT = "default 100\n8:0 200\n253:0 300\n"
CPUINFO = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu rdt_a\n"
STATE = {"a": "1", "b": "2", "c": "3"}


def io_v2(text: str) -> Values:
    """Device by device: the sum is of what can be read."""
    counts = io._v2([text.encode()])
    return {"reads": counts[2]}


def mounts(text: str) -> Values:
    return {str(path): kind for path, kind, _ in cgroup._mounts(text, Path("/sys/fs/cgroup"))}


def state(text: str) -> Values:
    entries = dict(zip("abc", text.splitlines(), strict=True))
    document = {
        "policyName": "static",
        "defaultCpuSet": "0",
        "entries": {uid: {"c": cpus} for uid, cpus in entries.items()},
    }
    return read_state(json.dumps(document).encode()).exclusive


def _members(text: str) -> Mapping[str, Any]:
    """A JSON object whose members stand one on a line; a line that is none has another name."""
    found: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines()):
        try:
            found.update(msgspec.json.decode(f"{{{line}}}", type=dict[str, Any]))
        except ValueError:
            found[f"rubbish {number}"] = line
    return found


def runtime_spec(text: str) -> Values:
    told = detail_of_container({"runtimeSpec": {"linux": _members(text)}})
    return {"cgroup": told.cgroup, "resources": told.requested}


def pods(text: str) -> Values:
    items = [_json(line) for line in text.splitlines()]
    return {pod.uid: pod.phase for pod in read_pods(json.dumps({"items": items}).encode()).items}


def _json(line: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except ValueError:
        return line


def weights(text: str) -> Values:
    return {device: DeviceWeight(1, 10000).parse(text, At(2, device)) for device in ("8:0", "253:0")}


PARSERS: Mapping[str, Parser] = {
    "/proc/stat": Parser(
        STAT,
        lambda text: {str(cpu): times for cpu, times in proc.per_cpu_times(text.encode()).items()},
        {"0": 1, "2": 2, "7": 3},
    ),
    "/proc/meminfo": Parser(
        MEMINFO,
        lambda text: _each(
            ("MemTotal", "MemFree", "Cached"), lambda key: proc.meminfo_bytes(text.encode(), key.encode())
        ),
        {"MemTotal": 0, "MemFree": 1, "Cached": 3},
    ),
    "/proc/vmstat": Parser(
        VMSTAT,
        lambda text: {
            key.decode(): count
            for key, count in proc.counters(
                "vmstat", text.encode(), (b"pgscan_direct", b"pswpin", b"pgmajfault")
            ).items()
        },
        {"pgscan_direct": 0, "pswpin": 1, "pgmajfault": 2},
    ),
    "/proc/diskstats": Parser(
        DISKS,
        lambda text: {disk.name: disk for disk in proc.disks(text.encode())},
        {"nvme0n1": 0, "sda": 1, "sdb": 2},
    ),
    "/proc/net/dev": Parser(
        NET,
        lambda text: {each.name: each for each in proc.interfaces(text.encode())},
        {"lo": 2, "team0:1": 3, "eth0": 4},
        (0, 1),
    ),
    "/proc/cpuinfo": Parser(
        CPUINFO,
        lambda text: proc.cpuinfo(text)._asdict(),
        {"vendor": 1, "model": 2, "flags": 3},
    ),
    "/proc/self/mountinfo": Parser(
        MOUNTINFO,
        mounts,
        {"/sys/fs/cgroup/cpuset": 1, "/sys/fs/cgroup/cpu,cpuacct": 2, "/sys/fs/cgroup/memory": 3},
    ),
    "pressure": Parser(PRESSURE, lambda text: {"some": psi.parse("cpu.pressure", text.encode()).some}, {"some": 0}),
    "pressure, totals": Parser(
        PRESSURE, lambda text: {"some": psi.totals_us("cpu.pressure", text.encode())[0]}, {"some": 0}
    ),
    "memory.stat": Parser(
        MEMORY_STAT,
        lambda text: dict(
            zip(
                ("anon", "file", "slab"),
                FlatKeys((), (b"anon", b"file", b"slab_reclaimable"), -1).numbers(text.encode()) or (),
                strict=False,
            )
        ),
        {"anon": 0, "file": 1, "slab": 3},
    ),
    "blkio.throttle": Parser(
        IO_V1, lambda text: dict(zip("rw", io._by_direction(text.encode()), strict=True)), {"r": 0, "w": 1}
    ),
    "io.max": Parser(
        IO_MAX,
        lambda text: {device: DeviceLimit("rbps").parse(text, At(2, device)) for device in ("8:0", "253:0")},
        {"8:0": 0, "253:0": 1},
    ),
    "io.weight": Parser(IO_WEIGHT, weights, {"8:0": 1, "253:0": 2}),
    "resctrl schemata": Parser(
        SCHEMATA,
        lambda text: _each(("L3", "MB"), lambda name: SchemataLine().parse(text, At(2, f"BE/{name}"))),
        {"L3": 0, "MB": 1},
    ),
    "resctrl tasks": Parser(
        "11\n0\n13\n14\n",
        lambda text: {str(task): task for task in resctrl.parse_tasks(text, "tasks")},
        {"11": 0, "13": 2, "14": 3},
    ),
    "a NUMA node's meminfo": Parser(
        "Node 0 MemTotal:  16 kB\nNode 0 MemFree:  8 kB\nNode 0 MemUsed:  8 kB\n",
        lambda text: _each(("MemTotal", "MemUsed"), lambda key: proc.meminfo_bytes(text.encode(), key.encode(), "m")),
        {"MemTotal": 0, "MemUsed": 2},
    ),
    "/proc/net/snmp": Parser(
        "Ip: A\nIp: 1\nTcp: OutSegs RetransSegs\nTcp: 5 6\nUdp: A\n",
        lambda text: {"tcp": proc.tcp(text.encode())},
        {"tcp": 3},
        (2,),
    ),
    "a runtime's verbose status": Parser(
        '"cgroupsPath": "/kubepods/pod1/c"\n"resources": {"cpu": {"quota": 5000, "period": 10000}}\n"x": 1\n',
        runtime_spec,
        {"cgroup": 0, "resources": 1},
    ),
    "kubelet's /configz": Parser(
        '"kubeReserved": {"cpu": "500m"}\n"cpuManagerPolicy": "static"\n"evictionHard": {}\n',
        lambda text: {"policy": kubeletconfig.cpu_manager_policy(_members(text))},
        {"policy": 1},
    ),
    "cpu_manager_state": Parser("1\n2\n3\n", state, {"a": 0, "b": 1, "c": 2}),
    "kubelet's /pods": Parser(
        "".join(f'{{"metadata": {{"uid": "{uid}"}}, "status": {{"phase": "Running"}}}}\n' for uid in "abc"),
        pods,
        {"a": 0, "b": 1, "c": 2},
    ),
}


def _each(names: tuple[str, ...], read: Callable[[str], Any]) -> Values:
    """What can be read of ``names``, each asked for by itself."""
    found = {}
    for name in names:
        try:
            found[name] = read(name)
        except ValueError:
            continue
    return found


RUBBISH = st.one_of(
    st.sampled_from(["", ":", "=", "(unknown) x", "a b c d e", "8:0", "rbytes=x", "cpux 1 2", "- - -", "some"]),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cs")), max_size=30),
)  # fmt: skip


@pytest.mark.parametrize("name", PARSERS)
@given(line=st.integers(0, 10), rubbish=RUBBISH)
def test_a_line_of_rubbish_costs_itself_only(name: str, line: int, rubbish: str) -> None:
    parser = PARSERS[name]
    lines, whole = parser.text.splitlines(), parser.read(parser.text)
    assert whole.keys() >= parser.said.keys()
    at = line % len(lines)
    if at in parser.fixed or (len(parser.said) == 1 and at in parser.said.values()):
        return
    lines[at] = rubbish
    left = parser.read("\n".join(lines) + "\n")
    assert {key: left.get(key) for key, its in parser.said.items() if its != at} == {
        key: whole[key] for key, its in parser.said.items() if its != at
    }


UNKNOWN = "(unknown) rbytes=0 wbytes=0 rios=6 wios=0 dbytes=0 dios=0\n"


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (UNKNOWN + "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n", (4096, 0, 7, 0)),
        (UNKNOWN, (0, 0, 6, 0)),
        ("8:0 8:16 rbytes=1 wbytes=2 rios=3 wios=4\n", (1, 2, 3, 4)),
        ("8:0 rbytes=x wbytes=2 rios=3 wios=4 cost.usage=9\n", (0, 2, 3, 4)),
        ("", (0, 0, 0, 0)),
        ("nonsense\n", (None, None, None, None)),
    ],
)
def test_io_stat(text: str, counts: tuple[int | None, ...]) -> None:
    assert io._v2([text.encode()]) == counts


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"team0:1", "team0:1"),
        (b"  eth0.5", "eth0.5"),
        ("ü".encode(), "ü"),
        (b"\xff\xfe", "\\xff\\xfe"),
        (b"a:b:c", "a:b:c"),
    ],
)
@pytest.mark.parametrize("gap", [b":", b": "])
def test_names_of_interfaces(name: bytes, shown: str, gap: bytes) -> None:
    line = name + gap + b"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"
    assert proc.interfaces(b"head\nhead\n" + line) == [proc.Interface(shown, 1, 2, 3, 4, 9, 10, 11, 12)]


OWN = (
    "840 825 0:31 /kubepods/burstable/pod1/docker-0123.scope /sys/fs/cgroup/pods/cpu,cpuacct rw - cgroup cgroup "
    "rw,cpu,cpuacct\n"
)


NAMESPACED = OWN.replace("/kubepods/burstable/pod1/docker-0123.scope", "/") + MOUNTINFO.replace(" / ", " /../../.. ")


@pytest.mark.parametrize(
    "mountinfo", [MOUNTINFO + OWN, OWN + MOUNTINFO, NAMESPACED], ids=["last", "first", "in a cgroup namespace"]
)
def test_a_containers_own_part_of_a_hierarchy_is_not_the_tree(tmp_path: Path, mountinfo: str) -> None:
    found = cgroup.detect(tmp_path, mountinfo.replace("/sys/fs/cgroup", str(tmp_path)))
    assert (found.version, found.controllers["cpu"]) == (1, tmp_path / "cpu,cpuacct")
