"""Which pods run in a virtual machine of their own."""

from __future__ import annotations

import pytest
from msgspec import structs

from qosd.model.policy import NodeSettings
from qosd.model.snapshot import PodFacts, is_kata
from tests.qosd.podviews import view


@pytest.mark.parametrize(
    ("handler", "runtime_class", "named", "expected"),
    [
        ("", "", (), False),
        ("runc", "", (), False),
        ("kata", "", (), True),
        ("kata-qemu", "", (), True),
        ("", "kata-clh", (), True),
        ("vm", "", (), False),
        ("vm", "", ("vm",), True),
        ("", "secure", ("secure",), True),
        ("", "secure", ("vm",), False),
        ("", "", ("", "vm"), False),
    ],
)
def test_by_handler_class_and_rules(handler: str, runtime_class: str, named: tuple[str, ...], expected: bool) -> None:
    pod = structs.replace(view("p"), runtime_handler=handler, facts=PodFacts(runtime_class=runtime_class))
    assert is_kata(pod, NodeSettings(sandbox_sizing_handlers=frozenset(named))) is expected
