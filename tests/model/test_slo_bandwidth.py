"""Bandwidth that classes request against their limits and against what the node has."""

from __future__ import annotations

from typing import Any

import pytest

from koord.model import leaves, slo, slo_rules
from koord.model.problem import Problem
from koord.model.schema import SchemaError

TOTAL = {"totalNetworkBandwidth": "1G"}
LS_60, BE_50 = {"lsClass": {"egressRequest": 60}}, {"beClass": {"egressRequest": 50}}
BE, BE_INGRESS = ["beClass.egressRequest"], ["beClass.ingressRequest"]
BOTH = ["lsClass.egressRequest", *BE]
LS_600M, BE_500M = {"lsClass": {"egressRequest": "600M"}}, {"beClass": {"egressRequest": "500M"}}


def spec_of(classes: dict[str, Any], system: dict[str, Any]) -> Any:
    strategy = {name: {"networkQOS": network} for name, network in classes.items()}
    return {"resourceQOSStrategy": strategy, "systemStrategy": system}


@pytest.mark.parametrize(
    ("classes", "system", "dropped", "why"),
    [
        ({"lsClass": {"egressRequest": 60}, "beClass": {"egressRequest": 40}}, {}, [], ""),
        (LS_60 | BE_50, {}, BOTH, "60% + 50%, which are more than 100 %"),
        (LS_60 | BE_50, TOTAL, BOTH, "60% + 50%, which are more than"),
        ({"lsClass": {"egressRequest": 60}, "beClass": {"ingressRequest": 50}}, {}, [], ""),
        (
            {"lsrClass": {"ingressRequest": 1}, "lsClass": {"ingressRequest": 60}, "beClass": {"ingressRequest": 40}},
            {},
            ["lsrClass.ingressRequest", "lsClass.ingressRequest", "beClass.ingressRequest"],
            "1% + 60% + 40%, which are more than 100 %",
        ),
        (LS_600M | BE_500M, {}, [], ""),  # nobody tells the total
        (LS_600M | BE_500M, TOTAL, BOTH, "totalNetworkBandwidth, 1000000"),
        (LS_600M | {"beClass": {"egressRequest": "400M"}}, TOTAL, [], ""),
        (LS_60 | BE_500M, {}, [], ""),
        (LS_60 | BE_500M, TOTAL, BOTH, "60% + 500M, which are more than"),
        (LS_600M | {"beClass": {"egressRequest": 40}}, TOTAL, [], ""),
        ({"systemClass": {"egressRequest": 60}} | BE_50, {}, [], ""),  # the system has what is left
        ({"beClass": {"egressRequest": 50, "egressLimit": 40}}, {}, BE, "more than egressLimit, 40%"),
        ({"beClass": {"ingressRequest": "5M", "ingressLimit": "4M"}}, {}, BE_INGRESS, "ingressLimit, 4M"),
        ({"beClass": {"egressRequest": 50, "egressLimit": 50}}, {}, [], ""),
        ({"beClass": {"egressRequest": 50, "egressLimit": 0}}, {}, [], ""),  # 0 is no limit
        ({"beClass": {"egressRequest": 50, "egressLimit": "400M"}}, {}, [], ""),
        ({"beClass": {"egressRequest": 50, "egressLimit": "400M"}}, TOTAL, BE, "egressLimit, 400M"),
        (
            {"beClass": {"egressRequest": 50, "egressLimit": 40}} | LS_60,
            {},
            BE,  # and then 60 % fit
            "more than egressLimit, 40%",
        ),
    ],
)  # fmt: skip
def test_requests_that_cannot_be_met_count_as_not_set(
    classes: dict[str, Any], system: dict[str, Any], dropped: list[str], why: str
) -> None:
    told: list[Problem] = []
    spec = slo.decode_spec(spec_of(classes, system))
    kept = slo_rules.checked(spec, bad=told.append)
    lost = {each.path for each in leaves.of_value(spec)} - {each.path for each in leaves.of_value(kept)}
    wanted = ["resourceQOSStrategy." + name.replace(".", ".networkQOS.") for name in dropped]
    assert lost == set(wanted)
    assert [each.path for each in told] == [f"spec.{path}" for path in wanted]
    assert all(why in str(each) for each in told)
    if dropped:
        with pytest.raises(SchemaError):
            slo_rules.checked(spec)


def test_the_figure_in_the_message_is_the_one_in_the_document() -> None:
    told: list[Problem] = []
    slo_rules.checked(slo.decode_spec(spec_of(LS_60 | BE_500M, TOTAL)), bad=told.append)
    assert [each.message.split()[0] for each in told] == ["60", "'500M'"]
