"""``koordctl restore`` as a process on a tree of its own: refusals, plan, consent, and what the files hold after it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from koord.host.cgroup import detect
from koord.host.files import Target
from koord.host.originals import ContainerKey, Original, Originals, Pending
from koord.host.undo import UndoRecord
from koord.host.weights import Weights
from koord.host.writer import Writer
from koord.model.cfs import PERIOD_US
from koord.pb.cri import api_pb2 as cri
from koordctl import exits
from koordctl.restoring import RestoreReport, restore_node
from tests.fakes.runtime import FakeRuntime
from tests.koordctl.runs import koordctl

QUOTA = Target("/kubepods/pod1", "cpu_quota")
SHARES = Target("/kubepods/pod1", "cpu_shares")


@dataclass(frozen=True)
class Place:
    root: Path

    @property
    def record(self) -> Path:
        return self.root / "run/undo"

    @property
    def cgroup(self) -> Path:
        return self.root / "sys/fs/cgroup/cpu/kubepods/pod1"

    def held(self) -> tuple[str, str]:
        return (self.cgroup / "cpu.cfs_quota_us").read_text(), (self.cgroup / "cpu.shares").read_text()

    async def restore(self, *more: str, stdin: str = "") -> tuple[int, str, str]:
        return await koordctl("restore", "--root", f"{self.root}", "--undo-file", f"{self.record}", *more, stdin=stdin)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A v1 node on which Koord holds a quota (base -1) and shares (base 2)."""
    place = Place(tmp_path)
    for directory in (place.cgroup, place.record.parent, tmp_path / "proc/sys/kernel/random"):
        directory.mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    for name, text in {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "cpu.shares": "2"}.items():
        (place.cgroup / name).write_text(text)
    writer = Writer(detect(tmp_path / "sys/fs/cgroup", ""))
    with UndoRecord(place.record, "boot-1") as record:
        for target, value in ((QUOTA, 50_000), (SHARES, 512)):
            found = writer.look(target)
            assert found is not None
            record.remember(target, found, value)
            writer.write(target, value)
    return place


async def test_without_a_record(tmp_path: Path) -> None:
    code, _, err = await Place(tmp_path).restore("--yes")
    assert (code, "no undo record at" in err) == (3, True)


async def test_a_running_daemon_has_the_record(place: Place) -> None:
    with UndoRecord(place.record, "boot-1"):
        code, _, err = await place.restore("--yes")
    assert (code, "in use by a running koord-qosd" in err, "systemctl stop koord-qosd" in err) == (4, True, True)
    assert place.held() == ("50000", "512")


@pytest.mark.parametrize(("more", "stdin", "code"), [(("--dry-run",), "", 0), ((), "n\n", 130), ((), "", 130)])
async def test_nothing_is_written_without_a_yes(place: Place, more: tuple[str, ...], stdin: str, code: int) -> None:
    done, out, _ = await place.restore(*more, stdin=stdin)
    assert (done, place.held()) == (code, ("50000", "512"))
    assert [line.split()[1:] for line in out.splitlines()] == [
        ["HOLDS", "BASE", "TO", "DO"],
        ["50000", "-1", "put", "back"],
        ["512", "2", "put", "back"],
    ]


@pytest.mark.parametrize(("more", "stdin"), [(("--yes",), ""), ((), "y\n")])
async def test_restored(place: Place, more: tuple[str, ...], stdin: str) -> None:
    code, out, _ = await place.restore(*more, stdin=stdin)
    assert (code, place.held()) == (0, ("-1", "2"))
    assert [line.split()[-1] for line in out.splitlines()[-2:]] == ["restored", "restored"]
    code, out, _ = await place.restore("--yes")
    assert (code, out) == (0, "Koord holds no file.\n")


async def test_what_the_kernel_doubled_is_ours_and_put_back_doubled(place: Place) -> None:
    def hold(value: int) -> None:
        with UndoRecord(place.record, "boot-1") as record:
            writer = Writer(detect(place.root / "sys/fs/cgroup", ""))
            found = writer.look(QUOTA)
            assert found is not None
            record.remember(QUOTA, found, value)
            writer.write(QUOTA, value)

    (place.cgroup / "cpu.cfs_quota_us").write_text("80000")
    hold(50_000)
    (place.cgroup / "cpu.cfs_quota_us").write_text("100000")
    (place.cgroup / "cpu.cfs_period_us").write_text("200000")
    assert (await place.restore("--yes"))[0] == 0
    assert place.held() == ("160000", "2")


async def test_what_others_wrote_is_left_alone(place: Place) -> None:
    (place.cgroup / "cpu.shares").write_text("1024")
    code, out, _ = await place.restore("--yes", "-o", "json")
    assert code == 0
    assert [(file["name"], file["outcome"]) for file in json.loads(out)["files"]] == [
        ("cpu_quota", "restored"),
        ("cpu_shares", "foreign value left alone"),
    ]
    assert place.held() == ("-1", "1024")


async def test_another_boot_leaves_nothing_to_do(place: Place) -> None:
    (place.root / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    assert (await place.restore("--yes"))[:2] == (0, "Koord holds no file.\n")
    assert place.held() == ("50000", "512")


async def test_without_a_boot_id_the_record_is_left_as_it_is(place: Place) -> None:
    (place.root / "proc/sys/kernel/random/boot_id").unlink()
    before = place.record.read_bytes()
    code, _, err = await place.restore("--yes")
    assert (code, "boot_id cannot be read" in err) == (3, True)
    assert (place.record.read_bytes(), place.held()) == (before, ("50000", "512"))


@pytest.mark.parametrize(("more", "weight"), [((), "59"), (("--weights", "linear"), "20")])
async def test_shares_are_put_back_by_the_mapping_that_the_record_names(
    tmp_path: Path, more: tuple[str, ...], weight: str
) -> None:
    place = Place(tmp_path)
    cgroup = tmp_path / "sys/fs/cgroup/kubepods/pod1"
    for directory in (cgroup, place.record.parent, tmp_path / "proc/sys/kernel/random"):
        directory.mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu\n")
    (cgroup / "cpu.weight").write_text("59\n")  # 512 shares as newer runtimes map them
    writer = Writer(detect(tmp_path / "sys/fs/cgroup", ""), Weights.QUADRATIC)
    with UndoRecord(place.record, "boot-1") as record:
        record.spell(writer.weights, PERIOD_US)
        found = writer.look(SHARES)
        assert found is not None
        record.remember(SHARES, found, 2048)
        writer.write(SHARES, 2048)
    code, _, _ = await place.restore("--yes", "--cgroup-root", "sys/fs/cgroup", *more)
    assert (code, (cgroup / "cpu.weight").read_text()) == (0, weight)


# --- containers that the runtime made with values of ours ------------------------------------------------------------

KEY = ContainerKey("uid-p", "main", 0)
EDITED = {"cpu_quota": Original(-1, 50_000, Pending.CREATED), "cpu_shares": Original(2, 512, Pending.CREATED)}


@dataclass
class Edited:
    """A container with an edited quota and edited shares. Nobody has looked at its files since."""

    place: Place
    runtime: FakeRuntime
    id: str
    socket: Path

    @property
    def directory(self) -> Path:
        return self.runtime.directory(self.id)

    def held(self) -> tuple[str, str]:
        return (self.directory / "cpu.cfs_quota_us").read_text(), (self.directory / "cpu.shares").read_text()

    def ask(self, values: dict[str, Original] | None = None, cgroup: str = "") -> None:
        with UndoRecord(self.place.record, "boot-1") as record:
            record.note_originals(Originals(KEY, values or EDITED, cgroup))

    async def restore(self, *more: str) -> tuple[int, str, str]:
        async with self.runtime.serving(self.socket):
            return await self.place.restore("--runtime", str(self.socket), *more)


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    place = Place(tmp_path)
    runtime = FakeRuntime(tmp_path / "sys/fs/cgroup/cpu", cpu_shares=512)
    made = runtime.container(runtime.pod("p"), "main")
    runtime.start(made)
    edited = Edited(place, runtime, made, tmp_path / "cri.sock")
    for directory in (place.record.parent, tmp_path / "proc/sys/kernel/random"):
        directory.mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    for name, text in {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000", "cpu.shares": "512"}.items():
        (edited.directory / name).write_text(text)
    edited.ask()
    return edited


@pytest.mark.parametrize("applies", [True, False], ids=["the runtime writes files", "it is a fake"])
async def test_the_runtime_is_told_what_kubelet_asked_for(edited: Edited, applies: bool) -> None:
    def apply(request: cri.UpdateContainerResourcesRequest) -> None:
        (edited.directory / "cpu.cfs_quota_us").write_text(str(request.linux.cpu_quota))

    if applies:
        edited.runtime.updated = apply
    code, out, _ = await edited.restore("--yes", "-o", "json")
    (update,) = edited.runtime.updates
    assert update == cri.UpdateContainerResourcesRequest(
        container_id=edited.id, linux=cri.LinuxContainerResources(cpu_quota=-1, cpu_shares=2)
    )
    done = json.loads(out)
    assert (code, edited.held()) == (0, ("-1", "2"))
    assert [(file["name"], file["before"], file["outcome"]) for file in done["files"]] == [
        ("cpu_quota", 50_000, "restored"),
        ("cpu_shares", 512, "restored"),
    ]
    assert done["containers"] == [{"container": "default/p main", "outcome": "restored", "why": ""}]
    assert (await edited.restore("--yes"))[1] == "Koord holds no file.\n"


async def test_the_plan_shows_files_and_containers(edited: Edited) -> None:
    code, out, _ = await edited.restore("--dry-run")
    assert (code, edited.held(), edited.runtime.updates) == (0, ("50000", "512"), [])
    assert [line.split()[-2:] for line in out.splitlines()] == [
        ["TO", "DO"], ["put", "back"], ["put", "back"], [], ["TO", "DO"], ["put", "back"],
    ]  # fmt: skip


@pytest.mark.parametrize("cgroup", ["", "known"])
async def test_a_runtime_that_does_not_answer(edited: Edited, cgroup: str) -> None:
    """Files whose cgroup is known are put back; the rest is said, and done another time."""
    if cgroup:
        edited.ask(cgroup=edited.runtime.cgroup(edited.id))
    edited.runtime.failing = True
    code, _, err = await edited.restore("--yes")
    what = "its specification" if cgroup else "its specification and its files"
    assert code == exits.FAILED
    assert f"container main (attempt 0) of pod uid-p: {what} cannot be put back: the runtime at" in err
    assert edited.held() == (("-1", "2") if cgroup else ("50000", "512"))
    edited.runtime.failing = False
    assert ((await edited.restore("--yes"))[0], edited.held()) == (0, ("-1", "2"))
    assert len(edited.runtime.updates) == 1


async def test_what_kubelet_has_updated_since_is_left_alone(edited: Edited) -> None:
    edited.runtime.quotas_us[edited.id] = 70_000
    (edited.directory / "cpu.cfs_quota_us").write_text("70000")
    assert (await edited.restore("--yes"))[0] == 0
    (update,) = edited.runtime.updates
    assert update.linux == cri.LinuxContainerResources(cpu_shares=2)
    assert edited.held() == ("70000", "2")


async def test_a_set_that_kubelet_left_open_becomes_the_pods(edited: Edited) -> None:
    tree = edited.place.root / "sys/fs/cgroup/cpuset"
    cgroup = edited.runtime.cgroup(edited.id).lstrip("/")
    (tree / cgroup).mkdir(parents=True)
    (tree / cgroup / "cpuset.cpus").write_text("1")
    (tree / cgroup / "cgroup.procs").write_text("1\n")
    (tree / cgroup / "../cpuset.cpus").write_text("0-3")
    edited.runtime.silent = True  # then the specification may hold anything
    edited.ask({"cpuset_cpus": Original("", "1", Pending.CREATED)}, f"/{cgroup}")
    assert (await edited.restore("--yes"))[0] == 0
    assert (tree / cgroup / "cpuset.cpus").read_text() == "0-3"
    edited.runtime.silent = False
    edited.ask({"cpuset_cpus": Original("", "", Pending.CREATED), "memory.high": Original(-1, 4096)}, f"/{cgroup}")
    assert (await edited.restore("--yes"))[0] == 0


@pytest.mark.parametrize("end", ["removed", "ended", "between two calls"])
async def test_a_container_that_is_gone_leaves_nothing_to_do(edited: Edited, end: str) -> None:
    if end == "removed":
        edited.runtime.containers.clear()
    elif end == "ended":
        edited.runtime.containers[edited.id].state = cri.CONTAINER_EXITED
    else:
        edited.runtime.vanishing.add(edited.id)
    code, out, _ = await edited.restore("--yes", "-o", "json")
    assert (code, edited.runtime.updates, json.loads(out)["containers"][0]["outcome"]) == (0, [], "gone")
    assert restore_node(edited.place.record, edited.socket, root=edited.place.root) == RestoreReport()


def test_without_a_record_there_is_nothing_to_restore(tmp_path: Path) -> None:
    assert restore_node(tmp_path / "absent", tmp_path / "cri.sock", root=tmp_path) == RestoreReport()
