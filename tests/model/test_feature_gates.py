"""Which source decides a gate, and that the names and defaults are koordlet's."""

from __future__ import annotations

import pytest

from koord.model import featuregates
from koord.model.featuregates import GATES, Settings

ON, OFF, FLAG, NODE = True, False, "by --feature-gates", "by node.features"


@pytest.mark.parametrize("name", ["BECPUEvicted", "becpuevict", "", "All", "AllGA"])
def test_a_name_that_is_no_gates_is_refused(name: str) -> None:
    assert not featuregates.is_name(name)
    with pytest.raises(ValueError, match=f"^'{name}' is no feature gate; there are BECPUSuppress, .*, AllBeta$"):
        featuregates.checked({"CPUBurst": ON, name: ON})
    with pytest.raises(KeyError):
        featuregates.state(name)


@pytest.mark.parametrize(
    ("name", "flags", "features", "state"),
    [
        ("BECPUEvict", {}, {}, (OFF, "default")),
        ("CPUBurst", {}, {}, (ON, "default")),
        ("BECPUEvict", {"CPUEvict": ON}, {"CPUBurst": OFF}, (OFF, "default")),
        ("BECPUEvict", {"BECPUEvict": ON}, {}, (ON, FLAG)),
        ("BECPUEvict", {"BECPUEvict": OFF}, {}, (OFF, FLAG)),
        ("BECPUEvict", {}, {"BECPUEvict": ON}, (ON, NODE)),
        ("BECPUEvict", {"BECPUEvict": ON}, {"BECPUEvict": OFF}, (OFF, NODE)),
        ("BECPUEvict", {"BECPUEvict": OFF}, {"BECPUEvict": ON}, (ON, NODE)),
        ("BECPUEvict", {"AllAlpha": ON}, {}, (ON, FLAG)),
        ("BECPUEvict", {"AllBeta": ON}, {}, (OFF, "default")),
        ("CPUBurst", {"AllAlpha": OFF}, {}, (ON, "default")),
        ("CPUBurst", {"AllBeta": OFF}, {}, (OFF, FLAG)),
        ("BECPUEvict", {"BECPUEvict": OFF, "AllAlpha": ON}, {}, (OFF, FLAG)),
        ("BECPUEvict", {"BECPUEvict": ON}, {"AllAlpha": OFF}, (OFF, NODE)),
        ("BECPUEvict", {}, {"BECPUEvict": ON, "AllAlpha": OFF}, (ON, NODE)),
    ],
)
def test_rules_over_flags_over_default(name: str, flags: Settings, features: Settings, state: tuple[bool, str]) -> None:
    assert featuregates.state(name, flags, features) == state


def test_the_defaults_are_koordlets() -> None:
    """Those of Koordinator's koordlet."""
    assert {name for name, gate in GATES.items() if gate.is_on} == {
        "BECPUSuppress", "CPUBurst", "RdtResctrl", "NodeTopologyReport", "GroupIdentity", "CPUSetAllocator",
        "BatchResource",
    }  # fmt: skip
    assert len(GATES) == 39
    sample = {"BECPUEvict": ON, "BEMemoryEvict": ON, "CgroupReconcile": ON, "Accelerators": ON}
    assert featuregates.checked(sample) == sample, "what koordlet's chart says"
