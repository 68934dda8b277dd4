"""resctrl groups that come and go while qosd runs: noticed without a reload, and never named once they are gone."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from koord.pb.nri import api_pb2 as nri
from qosd.metrics import Metrics
from qosd.model.besteffort import NO_LIMITS
from qosd.nri.service import Hooks
from qosd.policy import resctrlwatch
from qosd.policy.resctrlwatch import ResctrlWatch
from tests.qosd.contexts import V2, policy
from tests.qosd.machine import Machine
from tests.qosd.nri.containers import be, container
from tests.qosd.test_node import Living, living
from tests.support.waiting import until

RESCTRL = {"resourceQOSStrategy": {"beClass": {"resctrlQOS": {"enable": True}}}}


def make(root: Path, name: str) -> None:
    """At once with its files, as the kernel does."""
    beside = root.parent / f".{name}"
    beside.mkdir()
    (beside / "schemata").write_text("L3:0=ff\n")
    os.rename(beside, root / name)


async def test_groups_that_come_and_go_are_noticed_without_a_reload(tmp_path: Path) -> None:
    root = tmp_path / "resctrl"
    await asyncio.to_thread(root.mkdir)
    async with living(Machine(tmp_path)) as alive:
        assert groups(alive) == set()
        make(root, "BE")
        await until(lambda: groups(alive) == {"BE"})
        make(root, "LS")
        await until(lambda: groups(alive) == {"BE", "LS"})
        shutil.rmtree(root / "BE")
        await until(lambda: groups(alive) == {"LS"})


def groups(alive: Living) -> set[str]:
    return set(alive.node.policy.current.host.resctrl_groups)


async def test_other_directories_leave_the_rules_as_they_are(tmp_path: Path) -> None:
    root = tmp_path / "resctrl"
    await asyncio.to_thread(root.mkdir)
    async with living(Machine(tmp_path)) as alive:
        before = alive.node.policy.current
        make(root, "mine")
        make(root, "BE")
        await until(lambda: groups(alive) == {"BE"})
        shutil.rmtree(root / "BE")
        await until(lambda: groups(alive) == set())
        assert alive.node.policy.current == before


class TestLookingAgain:
    """For what inotify does not tell."""

    @pytest.fixture
    def told(self) -> list[int]:
        return []

    async def test_a_mount_that_comes_and_goes(self, tmp_path: Path, told: list[int]) -> None:
        watch = ResctrlWatch(asyncio.get_running_loop(), tmp_path / "resctrl", lambda: told.append(1))
        watch.look_again()
        assert told == []
        os.mkdir(tmp_path / "other")
        os.rename(tmp_path / "other", tmp_path / "resctrl")
        watch.look_again()
        assert told == [1]
        make(tmp_path / "resctrl", "BE")
        await until(lambda: len(told) > 1)
        watch.close()

    async def test_a_kernel_without_watches_left(
        self, tmp_path: Path, told: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def none_left(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(resctrlwatch, "DirectoryWatch", none_left)
        os.mkdir(tmp_path / "resctrl")
        watch = ResctrlWatch(asyncio.get_running_loop(), tmp_path / "resctrl", lambda: told.append(1))
        make(tmp_path / "resctrl", "BE")
        watch.look_again()
        watch.look_again()
        assert told == [1]
        watch.close()


@pytest.mark.parametrize(("is_there", "names"), [(True, "BE"), (False, "")])
def test_nri_never_names_a_class_whose_group_is_gone(is_there: bool, names: str) -> None:
    """Even if the rules in force have not heard of it yet."""
    by = policy(V2, RESCTRL)
    by = type(by)(by.slo, by.node, type(by.host)(2, resctrl_groups=frozenset({"BE"})))
    hooks = Hooks(
        lambda: (by, NO_LIMITS), Metrics(), lambda: True, lambda target: "0-7", has_resctrl_group=lambda name: is_there
    )
    adjust = hooks.created(be(), container(be()))
    assert (adjust or nri.ContainerAdjustment()).linux.resources.rdt_class.value == names
