"""People can read the kept copies, and a damaged copy says that there was a policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from qosd.policy import kept
from tests.qosd.policy.clusterpolicy.machine import AWAY, BEGIN_S, BROKEN, FILE_SAYS, Machine


def test_the_copies_are_documents_that_people_can_read(machine: Machine) -> None:
    machine.take()
    for name, source in (("nodeslo.yaml", "NodeSLO generation 12"), ("node.yaml", "Node worker-1")):
        document = kept.read(machine.state / name)
        assert document is not None
        assert (document.source, document.taken_unix_s) == (f"{source} of the API server", BEGIN_S)
    assert '"spec":{"cpuBurstStrategy":' in (machine.state / "nodeslo.yaml").read_text()


def rewrite(copy: Path, text: str) -> None:
    document = kept.read(copy)
    assert document is not None
    copy.write_bytes(kept.encode(kept.PolicyDocument(text, document.source, document.taken_unix_s)))


def replace_by_directory(copy: Path) -> None:
    copy.unlink()
    copy.mkdir()


SPOILERS: dict[str, Callable[[Path], object]] = {
    "cut": lambda copy: copy.write_bytes(copy.read_bytes()[:-3]),
    "changed": lambda copy: copy.write_bytes(copy.read_bytes().replace(b"auto", b"none")),
    "another's": lambda copy: copy.write_text("spec: {}\n"),
    "no NodeSLO": lambda copy: rewrite(copy, json.dumps({"generation": 1, "spec": BROKEN})),
    "a directory": replace_by_directory,
}


@pytest.mark.parametrize("spoil", ["cut", "changed", "another's", "no NodeSLO", "a directory"])
@pytest.mark.parametrize("has_file", [True, False])
def test_a_damaged_copy_says_that_there_was_one(machine: Machine, spoil: str, has_file: bool) -> None:
    machine.take()
    if has_file:
        machine.file.write_text(FILE_SAYS)
    copy = machine.state / "nodeslo.yaml"
    SPOILERS[spoil](copy)
    machine.start()
    machine.cluster.lost(AWAY)
    assert machine.policy.policy_unknown.startswith("the cluster's NodeSLO was never known here: ")
    assert any(warning.startswith("the kept NodeSLO counts as none: ") for warning in machine.source.warnings)
    if copy.is_dir():
        copy.rmdir()
    machine.take()
    assert (machine.burst[0], machine.source.warnings) == ("auto", ())
    machine.start()
    assert machine.burst[0] == "auto"


def test_a_damaged_copy_of_the_node_does_so_as_well(machine: Machine) -> None:
    machine.take()
    (machine.state / "node.yaml").write_text("")
    machine.start()
    machine.cluster.lost(AWAY)
    assert machine.policy.policy_unknown.startswith("the cluster's Node was never known here: ")
