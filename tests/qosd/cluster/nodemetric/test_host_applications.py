"""Each host application that runs is reported, with a priority."""

from __future__ import annotations

import pytest

from koord.model.slo import HostApplication
from tests.qosd.cluster.history import History, Use
from tests.qosd.cluster.nodemetric.reports import APP, reported


@pytest.mark.parametrize(
    ("priority", "qos", "reported_priority"),
    [
        ("koord-mid", "LS", "koord-mid"),
        ("koord-batch", "LSR", "koord-batch"),
        ("", "LS", "koord-prod"),
        ("", "", "koord-prod"),
        ("", "BE", "koord-batch"),
        ("highest", "BE", "koord-batch"),
    ],
)
def test_every_host_application_has_a_priority(priority: str, qos: str, reported_priority: str) -> None:
    history = History(apps=[HostApplication(name="nginx", priority=priority, qos=qos)])
    history.tick(apps={"nginx": Use(1, 1)})
    (found,) = reported(history).status.host_application_metric
    assert (found.priority, found.qos) == (reported_priority, qos)


def test_an_application_that_does_not_run_is_left_out() -> None:
    history = History(apps=[APP])
    history.tick(Use(1, 1))
    assert reported(history).status.host_application_metric == ()
