"""The age of a policy is the time since the API server's last word, through restarts too."""

from __future__ import annotations

import pytest

from tests.qosd.policy.clusterpolicy.machine import AWAY, HOUR_S, MINUTE_S, Machine
from tests.qosd.policy.test_kept_policy import Disk


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
