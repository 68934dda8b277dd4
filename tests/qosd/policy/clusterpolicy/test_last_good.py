"""What the cluster said last stays through outages, restarts and objects that cannot be used."""

from __future__ import annotations

from qosd.policy.clusterpolicy import NODE, NODE_SLO
from qosd.policy.provenance import Origin
from tests.qosd.policy.clusterpolicy.machine import AWAY, BROKEN, BY_DEFAULT, HOUR_S, MINUTE_S, QUOTA, Machine


class TestTheLastGood:
    def test_two_hours_without_the_api_server_with_two_restarts(self, machine: Machine) -> None:
        machine.take()
        policy = (machine.burst, machine.policy.node)
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
            assert (machine.burst, machine.policy.node, machine.policy.policy_unknown) == (*policy, "")
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
        before = machine.policy
        machine.start()
        assert machine.policy == before

    def test_that_there_is_no_nodeslo_is_remembered_too(self, machine: Machine) -> None:
        machine.take()
        machine.cluster.take_slo(None, 0)
        machine.start()
        machine.cluster.lost(AWAY)
        assert (machine.burst, machine.policy.policy_unknown) == (BY_DEFAULT, "")
        assert machine.source.layers[NODE_SLO].source == "the word that there is no NodeSLO of the API server"

    def test_a_nodeslo_that_turns_bad_leaves_the_last_good_one(self, machine: Machine) -> None:
        machine.take()
        before = machine.policy
        machine.now_s += HOUR_S
        machine.cluster.take_slo(BROKEN, 13)
        machine.cluster.reached()
        assert machine.policy is before
        assert (machine.origins()[NODE_SLO], machine.age_s()) == (Origin.LAST_GOOD, HOUR_S)
        assert machine.policy.slo_generation == 12
        complaint = "NodeSLO generation 13: spec.resourceQOSStrategy.beClass.memoryQOS: 5 is not an object"
        assert machine.source.warnings == (f"{complaint}; what it said last stays",)
        machine.start()
        assert machine.policy == before
        machine.take(QUOTA, 14)
        assert (machine.burst[0], machine.source.warnings) == ("cfsQuotaBurstOnly", ())

    def test_a_wrong_kernel_setting_is_told_from_one_that_is_not_set(self, machine: Machine) -> None:
        wrong = {"watermarkScaleFactor": 5, "minFreeKbytesFactor": 100, "schedFeatures": {"X": "on"}}
        told = {"watermarkScaleFactor", "schedFeatures.X"}
        for generation, (stated, bad) in enumerate((({}, set()), (wrong, told), ({}, set()), (wrong, told)), 12):
            machine.take({"systemStrategy": stated}, generation)
            assert machine.policy.bad_settings == bad
            machine.start()
            assert machine.policy.bad_settings == bad
        refused = "NodeSLO generation 15: spec.systemStrategy.watermarkScaleFactor: 5 is not in 10..400"
        assert f"{refused}; it counts as not set" in machine.source.warnings
        machine.file.write_text("spec: {systemStrategy: {pageCacheLimitEnabled: 2}}")
        machine.start()
        assert machine.policy.bad_settings == told | {"pageCacheLimitEnabled"}

    def test_what_cannot_be_read_at_all_is_said_and_leaves_the_last_good_ones(self, machine: Machine) -> None:
        machine.take()
        before = machine.policy
        machine.cluster.refuse_node("Node worker-1: cannot be read")
        machine.cluster.refuse_slo("NodeSLO worker-1: cannot be read")
        assert machine.policy is before
        assert machine.source.warnings == (
            "NodeSLO worker-1: cannot be read; what it said last stays",
            "Node worker-1: cannot be read; what it said last stays",
        )
