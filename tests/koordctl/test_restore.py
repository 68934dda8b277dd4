"""``koordctl restore`` as a process on a tree of its own: refusals, plan, consent, and what the files hold after it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from koord.host import cgroup
from koord.host.files import Target
from koord.host.undo import UndoRecord
from koord.host.weights import Weights
from koord.host.writer import Writer
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
    def group(self) -> Path:
        return self.root / "sys/fs/cgroup/cpu/kubepods/pod1"

    def held(self) -> tuple[str, str]:
        return (self.group / "cpu.cfs_quota_us").read_text(), (self.group / "cpu.shares").read_text()

    async def restore(self, *more: str, stdin: str = "") -> tuple[int, str, str]:
        return await koordctl("restore", "--root", f"{self.root}", "--undo-file", f"{self.record}", *more, stdin=stdin)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A v1 node on which Koord holds a quota (base -1) and shares (base 2)."""
    place = Place(tmp_path)
    for directory in (place.group, place.record.parent, tmp_path / "proc/sys/kernel/random"):
        directory.mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    for name, text in {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "cpu.shares": "2"}.items():
        (place.group / name).write_text(text)
    writer = Writer(cgroup.detect(tmp_path / "sys/fs/cgroup", ""))
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


async def test_what_others_wrote_is_left_alone(place: Place) -> None:
    (place.group / "cpu.shares").write_text("1024")
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
    group = tmp_path / "sys/fs/cgroup/kubepods/pod1"
    for directory in (group, place.record.parent, tmp_path / "proc/sys/kernel/random"):
        directory.mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu\n")
    (group / "cpu.weight").write_text("59\n")  # 512 shares as newer runtimes map them
    writer = Writer(cgroup.detect(tmp_path / "sys/fs/cgroup", ""), Weights.QUADRATIC)
    with UndoRecord(place.record, "boot-1") as record:
        record.spell(writer.weights)
        found = writer.look(SHARES)
        assert found is not None
        record.remember(SHARES, found, 2048)
        writer.write(SHARES, 2048)
    code, _, _ = await place.restore("--yes", "--cgroup-root", "sys/fs/cgroup", *more)
    assert (code, (group / "cpu.weight").read_text()) == (0, weight)
