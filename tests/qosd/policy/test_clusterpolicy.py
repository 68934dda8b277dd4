"""The cluster's word on a node: each state of it, what stays through outages and restarts, and what is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from koord.model import schema, slo, slo_defaults
from koord.model.core import Node, NodeStatus, ObjectMeta
from qosd.metrics import Metrics
from qosd.model.rules import HostFacts, NodeRules, Rules
from qosd.policy import kept
from qosd.policy.clusterpolicy import NEW_S, NODE, NODE_SLO, ClusterPolicy
from qosd.policy.provenance import Origin
from qosd.policy.rulesfile import FILE, RulesSource
from tests.qosd.policy.test_kept_policy import Disk

BEGIN_S = 1_700_000_000.0
MINUTE_S, HOUR_S = 60.0, 3600.0
AWAY = "https://10.0.0.1:6443: Connection refused"
RESERVATION = "node.koordinator.sh/reservation"
BURST = {"cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 500}}
QUOTA = {"cpuBurstStrategy": {"policy": "cfsQuotaBurstOnly"}}
BROKEN = {"resourceQOSStrategy": {"beClass": {"memoryQOS": 5}}}
FILE_SAYS = (
    "spec: {cpuBurstStrategy: {policy: cpuBurstOnly, sharePoolThresholdPercent: 40}}\nnode: {guaranteedAs: LSR}\n"
)


def node(annotations: Mapping[str, str] | None = None, uid: str = "u", **allocatable: str) -> Node:
    return Node(ObjectMeta("worker-1", uid=uid, annotations=annotations or {}), status=NodeStatus({}, allocatable))


HAS = {"cpu": "4", "memory": "6Gi"}
RESERVES = {RESERVATION: '{"reservedCPUs":"0"}'}
RESERVED = node(RESERVES, **HAS)


class Machine:
    """A node's rules file and state directory, and a clock; each ``start`` is a qosd that has just been started."""

    cluster: ClusterPolicy
    source: RulesSource

    def __init__(self, root: Path) -> None:
        self.file, self.state = root / "rules.yaml", root / "state"
        self.now_s = BEGIN_S
        self.changes = 0

    def start(self, is_expected: bool = True) -> None:
        def changed() -> None:
            self.changes += 1
            self.source.recompose()

        def now_s() -> float:
            return self.now_s

        self.cluster = ClusterPolicy(
            changed,
            is_expected=is_expected,
            kept_slo=Disk(self.state / "nodeslo.yaml"),
            kept_node=Disk(self.state / "node.yaml"),
            now_unix_s=now_s,
            clock=now_s,
        )
        self.source = RulesSource(
            self.file, HostFacts, Metrics(), Disk(self.state / "policy.yaml"), now_s, cluster=self.cluster
        )
        self.source.load()

    def take(self, spec: Mapping[str, Any] | None = BURST, generation: int = 12, taken: Node | None = RESERVED) -> None:
        """The session's first words after a start: the API server answers."""
        self.cluster.reached()
        self.cluster.take_slo(spec, generation)
        self.cluster.take_node(taken)

    @property
    def rules(self) -> Rules:
        return self.source.current

    def origins(self) -> dict[str, Origin]:
        return {kind: each.origin for kind, each in self.source.layers.items()}

    def age_s(self, kind: str = NODE_SLO) -> float | None:
        return self.source.layers[kind].age_s(self.now_s)

    @property
    def burst(self) -> tuple[str | None, int | None, int | None]:
        strategy = self.rules.slo.cpu_burst
        if strategy is None:
            return None, None, None
        return strategy.policy, strategy.cpu_burst_percent, strategy.share_pool_threshold_percent


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.start()
    return made


ALL_CLUSTER, ALL_FILE, BY_DEFAULT = ("auto", 500, 40), ("cpuBurstOnly", 1000, 40), ("none", 1000, 50)


class TestPrecedence:
    def test_the_cluster_is_over_the_file_and_that_over_the_defaults(self, machine: Machine) -> None:
        machine.file.write_text(FILE_SAYS)
        machine.source.load()
        machine.take()
        assert machine.burst == ALL_CLUSTER
        assert (machine.rules.node.guaranteed_is_lsr, machine.rules.node.reserved_cpus) == (True, "0")
        assert machine.rules.allocatable_memory_bytes == 6 << 30
        assert machine.origins() == {FILE: Origin.SOURCE, NODE_SLO: Origin.SOURCE, NODE: Origin.SOURCE}
        assert machine.source.warnings == ()
        assert machine.rules.slo_generation == 12

    def test_without_a_file(self, machine: Machine) -> None:
        machine.take()
        assert machine.burst == ("auto", 500, 50)
        assert machine.origins()[FILE] is Origin.DEFAULTS
        assert machine.source.overall.source == "Node worker-1 of the API server"

    def test_without_a_nodeslo_the_file_and_the_defaults_are_the_policy(self, machine: Machine) -> None:
        machine.take(None, 0)
        assert (machine.burst, machine.rules.policy_unknown) == (BY_DEFAULT, "")
        assert machine.origins()[NODE_SLO] is Origin.NONE
        machine.file.write_text(FILE_SAYS)
        machine.source.load()
        assert machine.burst == ALL_FILE
        assert machine.rules.slo_generation == 0

    def test_without_a_cluster_there_are_no_layers(self, machine: Machine) -> None:
        machine.start(is_expected=False)
        assert (machine.source.layers, machine.rules, machine.source.warnings) == ({}, Rules(), ())
        assert machine.source.overall == machine.source.provenance

    def test_a_node_that_left_the_cluster_does_not_go_by_its_copies(self, machine: Machine) -> None:
        machine.take()
        machine.start(is_expected=False)
        assert machine.rules == Rules()

    def test_a_bad_file_is_unknown_whatever_the_cluster_says(self, machine: Machine) -> None:
        machine.take()
        machine.file.write_text("node: {")
        machine.source.load()
        assert machine.rules.policy_unknown.startswith(f"{machine.file}: is not YAML")
        assert (machine.rules.slo, machine.rules.node) == (slo.NodeSLOSpec(), NodeRules())


class TestBeforeTheFirstWord:
    def test_nothing_is_known_and_nothing_decided(self, machine: Machine) -> None:
        assert machine.rules.policy_unknown == (
            "the cluster's NodeSLO and Node were never known here: the API server has not answered yet"
        )
        assert machine.rules.slo == slo.NodeSLOSpec(), "nothing of it may be written"
        assert machine.source.overall.origin is Origin.UNKNOWN
        assert machine.source.warnings[-1].endswith(
            "no policy is known: every strategy is frozen, and what is set stays"
        )

    @pytest.mark.parametrize("has_file", [True, False])
    def test_a_file_stands_in_once_the_cluster_was_asked_in_vain(self, machine: Machine, has_file: bool) -> None:
        if has_file:
            machine.file.write_text(FILE_SAYS)
            machine.source.load()
        assert machine.rules.policy_unknown, "not yet asked in vain"
        machine.cluster.lost(AWAY)
        assert bool(machine.rules.policy_unknown) is not has_file
        assert machine.origins()[NODE_SLO] is Origin.UNKNOWN
        assert any(AWAY in warning and "were never known here" in warning for warning in machine.source.warnings)
        machine.cluster.reached()
        assert bool(machine.rules.policy_unknown) is not has_file, "it stands in until the word is there"
        machine.take()
        assert machine.burst == (ALL_CLUSTER if has_file else ("auto", 500, 50))

    def test_a_file_that_appears_later_stands_in_too(self, machine: Machine) -> None:
        machine.cluster.lost(AWAY)
        machine.file.write_text(FILE_SAYS)
        machine.source.load()
        assert machine.burst == ALL_FILE

    def test_both_objects_are_waited_for(self, machine: Machine) -> None:
        machine.file.write_text(FILE_SAYS)
        machine.source.load()
        machine.cluster.take_slo(BURST, 12)
        assert machine.rules.policy_unknown.startswith("the cluster's Node was never known here")
        machine.cluster.take_node(RESERVED)
        assert machine.burst == ALL_CLUSTER

    def test_a_nodeslo_that_is_known_stands_in_for_the_node(self, machine: Machine) -> None:
        machine.cluster.take_slo(BURST, 12)
        machine.cluster.lost(AWAY)
        assert machine.burst == ("auto", 500, 50)

    def test_but_no_node_for_its_nodeslo(self, machine: Machine) -> None:
        machine.cluster.take_node(RESERVED)
        machine.cluster.lost(AWAY)
        assert machine.rules.policy_unknown == f"the cluster's NodeSLO was never known here: {AWAY}"

    def test_a_nodeslo_that_was_never_good_is_unknown(self, machine: Machine) -> None:
        machine.take(BROKEN)
        assert "spec.resourceQOSStrategy.beClass.memoryQOS: 5 is not an object" in machine.rules.policy_unknown

    def test_a_node_that_has_not_joined_yet_waits(self, machine: Machine) -> None:
        machine.take(None, 0, taken=None)
        assert "there is no Node of this name" in machine.rules.policy_unknown
        machine.cluster.take_node(RESERVED)
        assert (machine.rules.policy_unknown, machine.burst) == ("", BY_DEFAULT)


class TestTheLastGood:
    def test_two_hours_without_the_api_server_with_two_restarts(self, machine: Machine) -> None:
        machine.take()
        policy = (machine.burst, machine.rules.node)
        machine.now_s += 30 * HOUR_S
        machine.cluster.reached()
        machine.now_s += MINUTE_S
        machine.cluster.lost(AWAY)
        for minute in range(120):
            machine.now_s += MINUTE_S
            if minute in (40, 80):
                machine.start()
                assert machine.source.layers[NODE_SLO].problem == "the API server has not said it again yet"
                machine.cluster.lost(AWAY)
            assert (machine.burst, machine.rules.node, machine.rules.policy_unknown) == (*policy, "")
            assert machine.origins()[NODE_SLO] is machine.origins()[NODE] is Origin.LAST_GOOD
            assert machine.age_s() == machine.age_s(NODE) == (minute + 2) * MINUTE_S
            assert machine.source.layers[NODE_SLO].problem == AWAY
            assert machine.source.overall.origin is Origin.LAST_GOOD
        assert machine.source.layers[NODE_SLO].source == "NodeSLO generation 12 of the API server"
        assert f"the cluster is away: {AWAY}; what it said last stays" in machine.source.warnings
        machine.take(QUOTA, 13)
        assert machine.burst == ("cfsQuotaBurstOnly", 1000, 50)
        assert machine.origins()[NODE_SLO] is Origin.SOURCE
        assert (machine.source.warnings, machine.age_s()) == ((), 0)

    def test_a_restart_goes_by_it_at_once(self, machine: Machine) -> None:
        machine.take()
        before = machine.rules
        machine.start()
        assert machine.rules == before

    def test_that_there_is_no_nodeslo_is_remembered_too(self, machine: Machine) -> None:
        machine.take()
        machine.cluster.take_slo(None, 0)
        machine.start()
        machine.cluster.lost(AWAY)
        assert (machine.burst, machine.rules.policy_unknown) == (BY_DEFAULT, "")
        assert machine.source.layers[NODE_SLO].source == "the word that there is no NodeSLO of the API server"

    def test_a_nodeslo_that_turns_bad_leaves_the_last_good_one(self, machine: Machine) -> None:
        machine.take()
        before = machine.rules
        machine.now_s += HOUR_S
        machine.cluster.take_slo(BROKEN, 13)
        machine.cluster.reached()
        assert machine.rules is before
        assert (machine.origins()[NODE_SLO], machine.age_s()) == (Origin.LAST_GOOD, HOUR_S)
        assert machine.rules.slo_generation == 12
        complaint = "NodeSLO generation 13: spec.resourceQOSStrategy.beClass.memoryQOS: 5 is not an object"
        assert machine.source.warnings == (f"{complaint}; what it said last stays",)
        machine.start()
        assert machine.rules == before
        machine.take(QUOTA, 14)
        assert (machine.burst[0], machine.source.warnings) == ("cfsQuotaBurstOnly", ())

    def test_a_deleted_node_stays_as_it_was_and_its_nodeslo_with_it(self, machine: Machine) -> None:
        machine.take()
        before = machine.rules
        machine.cluster.take_node(None)
        machine.cluster.take_slo(None, 0)
        assert machine.rules is before
        assert machine.origins()[NODE] is machine.origins()[NODE_SLO] is Origin.LAST_GOOD
        assert machine.source.layers[NODE].problem == "there is no Node of this name"
        assert machine.source.layers[NODE_SLO].problem == "there is no NodeSLO, and there is no Node of this name"
        machine.start()
        machine.take(None, 0, taken=None)
        assert machine.rules == before
        machine.cluster.take_node(RESERVED)
        assert machine.burst == ("auto", 500, 50), "there is a Node again, and its NodeSLO is made after it"

    @pytest.mark.parametrize("is_seen_to_go", [True, False])
    def test_a_node_that_registers_again_keeps_its_policy_till_its_nodeslo_is_made(
        self, machine: Machine, is_seen_to_go: bool
    ) -> None:
        machine.take()
        before = machine.rules
        if is_seen_to_go:
            machine.cluster.take_node(None)
            machine.cluster.take_slo(None, 0)
        machine.cluster.take_node(node(RESERVES, uid="another", **HAS))
        machine.cluster.take_slo(None, 0)
        for _ in range(2):
            machine.now_s += NEW_S / 2 - 1
            machine.cluster.reached()
            assert machine.rules is before
            assert machine.origins()[NODE_SLO] is Origin.LAST_GOOD
            assert machine.source.layers[NODE_SLO].problem == (
                "there is no NodeSLO, and Node worker-1 is new: it may still be made"
            )
        machine.cluster.take_slo(QUOTA, 1)
        assert (machine.burst[0], machine.origins()[NODE_SLO]) == ("cfsQuotaBurstOnly", Origin.SOURCE)
        machine.cluster.take_slo(None, 0)
        assert machine.burst == ("cfsQuotaBurstOnly", 1000, 50), "it is still new"

    def test_a_nodeslo_that_is_not_made_for_a_new_node_in_time_counts_as_none(self, machine: Machine) -> None:
        machine.take()
        machine.cluster.take_node(None)
        machine.cluster.take_slo(None, 0)
        machine.cluster.take_node(RESERVED)
        machine.now_s += NEW_S
        machine.cluster.lost(AWAY)
        assert machine.burst == ("auto", 500, 50), "nobody is there who says so"
        machine.cluster.reached()
        assert (machine.burst, machine.origins()[NODE_SLO]) == (BY_DEFAULT, Origin.NONE)
        assert machine.source.warnings == ()

    def test_a_nodeslo_that_goes_while_nobody_tells_of_the_node_stays(self, machine: Machine) -> None:
        machine.take()
        machine.cluster.lost(AWAY)
        machine.cluster.take_slo(None, 0)
        assert machine.burst == ("auto", 500, 50)
        machine.cluster.reached()
        assert machine.burst == BY_DEFAULT

    def test_what_cannot_be_read_at_all_is_said_and_leaves_the_last_good_ones(self, machine: Machine) -> None:
        machine.take()
        before = machine.rules
        machine.cluster.refuse_node("Node worker-1: cannot be read")
        machine.cluster.refuse_slo("NodeSLO worker-1: cannot be read")
        assert machine.rules is before
        assert machine.source.warnings == (
            "NodeSLO worker-1: cannot be read; what it said last stays",
            "Node worker-1: cannot be read; what it said last stays",
        )

    @pytest.mark.parametrize("spoil", ["cut", "changed", "another's", "no NodeSLO", "a directory"])
    @pytest.mark.parametrize("has_file", [True, False])
    def test_a_damaged_copy_says_that_there_was_one(self, machine: Machine, spoil: str, has_file: bool) -> None:
        machine.take()
        if has_file:
            machine.file.write_text(FILE_SAYS)
        copy = machine.state / "nodeslo.yaml"
        SPOILERS[spoil](copy)
        machine.start()
        machine.cluster.lost(AWAY)
        assert machine.rules.policy_unknown.startswith("the cluster's NodeSLO was never known here: ")
        assert any(warning.startswith("the kept NodeSLO counts as none: ") for warning in machine.source.warnings)
        if copy.is_dir():
            copy.rmdir()
        machine.take()
        assert (machine.burst[0], machine.source.warnings) == ("auto", ())
        machine.start()
        assert machine.burst[0] == "auto"

    def test_a_damaged_copy_of_the_node_does_so_as_well(self, machine: Machine) -> None:
        machine.take()
        (machine.state / "node.yaml").write_text("")
        machine.start()
        machine.cluster.lost(AWAY)
        assert machine.rules.policy_unknown.startswith("the cluster's Node was never known here: ")


def rewrite(copy: Path, text: str) -> None:
    document = kept.read(copy)
    assert document is not None
    copy.write_bytes(kept.encode(kept.PolicyDocument(text, document.source, document.taken_unix_s)))


SPOILERS: dict[str, Callable[[Path], object]] = {
    "cut": lambda copy: copy.write_bytes(copy.read_bytes()[:-3]),
    "changed": lambda copy: copy.write_bytes(copy.read_bytes().replace(b"auto", b"none")),
    "another's": lambda copy: copy.write_text("spec: {}\n"),
    "no NodeSLO": lambda copy: rewrite(copy, json.dumps({"generation": 1, "spec": BROKEN})),
    "a directory": lambda copy: (copy.unlink(), copy.mkdir()),
}


class TestTheAge:
    def test_is_the_time_since_the_last_word(self, machine: Machine) -> None:
        machine.take()
        machine.now_s += 10 * MINUTE_S
        assert machine.age_s() == 10 * MINUTE_S
        machine.cluster.reached()
        assert machine.age_s() == 0

    def test_goes_on_through_a_clean_restart(self, machine: Machine) -> None:
        machine.take()
        machine.now_s += 30 * MINUTE_S
        machine.cluster.reached()
        machine.cluster.close()
        machine.now_s += 5 * MINUTE_S
        machine.start()
        assert machine.age_s() == 5 * MINUTE_S

    def test_is_at_most_an_hour_too_high_after_a_crash(self, machine: Machine) -> None:
        machine.take()
        for _ in range(200):
            machine.now_s += MINUTE_S
            machine.cluster.reached()
        machine.start()
        age_s = machine.age_s()
        assert age_s is not None
        assert age_s < HOUR_S

    def test_writes_of_a_connection_that_comes_and_goes_are_few(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writes: list[str] = []
        monkeypatch.setattr(Disk, "keep", lambda _, document: writes.append(document.source))
        machine.take()
        assert len(writes) == 2, "one of each"
        for _ in range(100):
            machine.now_s += 6
            machine.cluster.lost(AWAY)
            machine.cluster.reached()
        assert len(writes) <= 2 * (1 + 10), "one a minute"


COMPLETE = schema.parse_json(schema.encode(slo_defaults.defaults()))
assert isinstance(COMPLETE, dict)
LEAVES = [
    each.path for each in slo.every_leaf() if "[]" not in each.path and not each.path.endswith((".enable", ".strategy"))
]


def with_leaf(path: str, value: object) -> dict[str, Any]:
    """``COMPLETE`` with this value there; None: without it."""
    document: dict[str, Any] = json.loads(json.dumps(COMPLETE))
    *parents, name = path.split(".")
    place = document
    for parent in parents:
        place = place.setdefault(parent, {})
    place.pop(name, None)
    if value is not None:
        place[name] = value
    return document


class TestABadLeaf:
    @pytest.mark.parametrize("path", LEAVES)
    def test_counts_as_not_set_and_changes_nothing_else(self, machine: Machine, path: str) -> None:
        machine.take(with_leaf(path, None), 1)
        without = machine.rules.slo
        bad: object = [3] if path.endswith(("schedFeatures", "extensions")) else {"no": "value"}
        machine.cluster.take_slo(with_leaf(path, bad), 1)
        told = [warning for warning in machine.source.warnings if "it counts as not set" in warning]
        if machine.source.layers[NODE_SLO].problem:
            assert path.endswith("schedFeatures"), "of a map nothing can be left out"
        else:
            assert len(told) == 1
            assert told[0].startswith(f"NodeSLO generation 1: spec.{path}: ")
        assert machine.rules.slo == without
        assert machine.rules.node.reserved_cpus == "0"

    def test_shows_what_the_file_says_there(self, machine: Machine) -> None:
        machine.file.write_text(FILE_SAYS)
        machine.source.load()
        machine.take({"cpuBurstStrategy": {"policy": "auto", "sharePoolThresholdPercent": 400}})
        assert machine.burst == ("auto", 1000, 40)
        assert machine.source.warnings == (
            "NodeSLO generation 12: spec.cpuBurstStrategy.sharePoolThresholdPercent: 400 is not in 0..100; "
            "it counts as not set",
        )

    @pytest.mark.parametrize("switch", ["resourceUsedThresholdWithBE", "resourceQOSStrategy.beClass.cpuQOS"])
    def test_but_a_bad_switch_refuses_the_object_and_switches_nothing_off(self, machine: Machine, switch: str) -> None:
        machine.take(with_leaf(f"{switch}.enable", True), 1)
        before = machine.rules
        machine.cluster.take_slo(with_leaf(f"{switch}.enable", "yes"), 2)
        assert machine.rules is before
        assert machine.origins()[NODE_SLO] is Origin.LAST_GOOD

    def test_of_the_node_leaves_the_nodeslo_and_the_other_annotations(self, machine: Machine) -> None:
        machine.take(taken=node({RESERVATION: "{", "node.koordinator.sh/cpu-normalization-ratio": "1.20"}))
        assert machine.burst[0] == "auto"
        assert float(machine.rules.node.cpu_normalization_ratio or 0) == 1.2
        assert [warning.split(": ")[:2] for warning in machine.source.warnings] == [
            ["Node worker-1", f"annotation {RESERVATION}"]
        ]

    def test_keys_that_nodeslo_lacks_are_told(self, machine: Machine) -> None:
        machine.take({"cpuBurstStrategy": {"newer": 1}})
        assert machine.source.warnings == (
            "NodeSLO generation 12: spec.cpuBurstStrategy.newer: no such key in NodeSLO, ignored",
        )

    def test_what_has_no_effect_is_told_of_all_layers_together(self, machine: Machine) -> None:
        machine.take({"resourceQOSStrategy": {"policies": {"netQOSPolicy": "terway-qos"}}})
        assert len(machine.source.warnings) == 1
        assert machine.source.warnings[0].startswith(
            f"NodeSLO generation 12 over {machine.file}: spec.resourceQOSStrategy.policies.netQOSPolicy: 'terway-qos' "
        )


class TestIdentity:
    def test_the_same_word_again_changes_nothing_and_calls_nobody(self, machine: Machine) -> None:
        machine.take()
        before, changes = machine.rules, machine.changes
        for _ in range(3):
            machine.now_s += MINUTE_S
            machine.take(json.loads(json.dumps(BURST)), 12, node(dict(RESERVES), **HAS))
            machine.source.load()
        assert machine.rules is before
        assert machine.changes == changes

    def test_an_outage_is_a_change_of_what_is_told_alone(self, machine: Machine) -> None:
        machine.take()
        before, changes = machine.rules, machine.changes
        machine.cluster.lost(AWAY)
        machine.cluster.lost(AWAY)
        assert (machine.rules is before, machine.changes) == (True, changes + 1)
        machine.cluster.reached()
        machine.take()
        assert (machine.rules is before, machine.changes) == (True, changes + 2)

    def test_what_a_node_says_of_other_things_is_no_change(self, machine: Machine) -> None:
        machine.take()
        before = machine.rules
        machine.cluster.take_node(node({**RESERVES, "example.com/x": "y"}, **HAS))
        assert machine.rules is before
        assert machine.cluster.node is not None
        assert machine.cluster.node.annotations["example.com/x"] == "y"

    def test_a_change_of_the_node_keeps_the_object_of_the_slo(self, machine: Machine) -> None:
        machine.take()
        before = machine.rules
        machine.cluster.take_node(node(cpu="4", memory="5Gi"))
        assert machine.rules is not before
        assert machine.rules.slo is before.slo
        assert machine.rules.host is before.host

    def test_a_warning_is_logged_once(self, machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
        for _ in range(3):
            machine.take({"cpuBurstStrategy": {"newer": 1}})
        assert sum("newer: no such key" in record.message for record in caplog.records) == 1


def test_the_copies_are_documents_that_people_can_read(machine: Machine) -> None:
    machine.take()
    for name, source in (("nodeslo.yaml", "NodeSLO generation 12"), ("node.yaml", "Node worker-1")):
        document = kept.read(machine.state / name)
        assert document is not None
        assert (document.source, document.taken_unix_s) == (f"{source} of the API server", BEGIN_S)
    assert '"spec":{"cpuBurstStrategy":' in (machine.state / "nodeslo.yaml").read_text()
