"""The client of the system bus: its errors are values, and whatever the bus does it takes no longer than it may."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from koord.host.systemd import Setting
from koord.host.systemd_bus import SystemBus
from tests.host.fakebus import serving

WEIGHT = Setting("CPUWeight", "t", 333, "CPUWeight")
CPUS = Setting("AllowedCPUs", "ay", b"\5", "AllowedCPUs")


def test_no_bus(tmp_path: Path) -> None:
    bus = SystemBus(tmp_path / "none")
    assert bus.tell([("a.slice", [WEIGHT]), ("b.slice", [WEIGHT])]) == [None, None]
    assert "No such file" in bus.trouble
    assert bus.tell([]) == []


def test_no_client_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jeepney", None)
    bus = SystemBus(tmp_path / "none")
    assert bus.tell([("a.slice", [WEIGHT])]) == [None]
    assert "jeepney" in bus.trouble


@pytest.mark.parametrize("greeting", [b"", b"REJECTED EXTERNAL\r\n", b"no D-Bus at all\r\n"])
def test_a_bus_that_lets_nobody_in(tmp_path: Path, greeting: bytes) -> None:
    with serving(tmp_path / "bus", greeting=greeting):
        bus = SystemBus(tmp_path / "bus")
        assert bus.tell([("a.slice", [WEIGHT])]) == [None]
        assert bus.trouble


def test_a_systemd_that_does_not_answer_costs_the_time_limit_once(tmp_path: Path) -> None:
    with serving(tmp_path / "bus", lambda unit, _: "" if unit == "a.slice" else None) as served:
        bus = SystemBus(tmp_path / "bus", timeout_s=0.2)
        began = time.monotonic()
        units = [(f"{name}.slice", [WEIGHT]) for name in "abc"]
        assert bus.tell(units) == ["", None, None]
        assert time.monotonic() - began < 1
        assert bus.trouble.endswith("timed out")
        assert len(served.said) == 3, "one that does not answer keeps nobody from being told"


def test_a_refused_unit_costs_itself_only(tmp_path: Path) -> None:
    with serving(tmp_path / "bus", lambda unit, _: "Unit b.scope not loaded." if unit == "b.scope" else "") as served:
        bus = SystemBus(tmp_path / "bus")
        answers = bus.tell([("a.slice", [WEIGHT, CPUS]), ("b.scope", [WEIGHT])])
        assert answers == ["", "NoSuchUnit: Unit b.scope not loaded."]
        assert bus.trouble == ""
        assert served.said[0] == ("a.slice", True, {"CPUWeight": 333, "AllowedCPUs": b"\5"})


def test_a_bus_that_was_restarted_is_found_again(tmp_path: Path) -> None:
    with serving(tmp_path / "bus") as served:
        bus = SystemBus(tmp_path / "bus")
        assert bus.tell([("a.slice", [WEIGHT])]) == [""]
        served.hang_up()
        assert bus.tell([("a.slice", [WEIGHT])]) == [None]
        assert bus.tell([("a.slice", [WEIGHT])]) == [""]
        assert (bus.trouble, served.connections) == ("", 2)


def test_many_units_on_one_connection(tmp_path: Path) -> None:
    with serving(tmp_path / "bus") as served:
        bus = SystemBus(tmp_path / "bus")
        assert bus.tell([(f"{number}.slice", [WEIGHT]) for number in range(200)]) == [""] * 200
        assert [unit for unit, _, _ in served.said] == [f"{number}.slice" for number in range(200)]
        assert served.connections == 1
        bus.close()
