"""What the network bandwidths of NodeSLO's classes must be to each other and to the node's total.

    request <= limit of each class and direction, where a limit is set (0 = none)
    requests of LSR, LS and BE together <= the total, in each direction; the rest is the system's

Percentages and quantities can be compared where the total is known; without it only those that are of one kind.
A request that is more than its limit counts as not set, and so do all requests of a direction that are together more
than there is: which of them is meant otherwise cannot be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from koord.model.percent import PercentOrQuantity
from koord.model.problem import Bad, Problem
from koord.model.qos_settings import NetworkQOS
from koord.model.quantity import Quantity
from koord.model.schema import json_name, wrong
from koord.model.slo import ResourceQOS, ResourceQOSStrategy

_DIRECTIONS = (("ingress_request", "ingress_limit"), ("egress_request", "egress_limit"))
_SHARING = ("lsr_class", "ls_class", "be_class")
_CLASSES = (*_SHARING, "system_class")


def checked(stated: ResourceQOSStrategy, total: Quantity | None, path: str, bad: Bad) -> ResourceQOSStrategy:
    """Returns ``stated`` without requests that cannot be met, and tells ``bad`` of each. ``total``: bits/s, 0 = not
    known.
    """
    total_bits_per_s = 0 if total is None else total.value()
    strategy = stated
    for request, limit in _DIRECTIONS:
        for name in _CLASSES:
            problem = _above_limit(_network(strategy, name), request, limit, total_bits_per_s)
            if problem:
                strategy = _without(strategy, [name], request, problem, path, bad)
        requests = {name: value for name in _SHARING if (value := _amount(_network(strategy, name), request))}
        problem = _above_total(list(requests.values()), total_bits_per_s)
        if problem:
            strategy = _without(strategy, list(requests), request, problem, path, bad)
    return strategy


def unmet(stated: ResourceQOSStrategy, total: Quantity | None) -> list[Problem]:
    """Returns the problems that ``checked`` finds, at paths below the strategy's."""
    problems: list[Problem] = []
    checked(stated, total, "", problems.append)
    return problems


def without_network(stated: ResourceQOSStrategy) -> ResourceQOSStrategy:
    """Returns a strategy that asks for no bandwidth, so that none is too small for it."""
    classes = {name: getattr(stated, name) for name in _CLASSES}
    rest = {name: msgspec.structs.replace(settings, network_qos=None) for name, settings in classes.items() if settings}
    return msgspec.structs.replace(stated, **rest)


def _network(strategy: ResourceQOSStrategy, name: str) -> NetworkQOS:
    settings: ResourceQOS | None = getattr(strategy, name)
    return (settings and settings.network_qos) or NetworkQOS()


def _amount(network: NetworkQOS, field: str) -> PercentOrQuantity | None:
    """Returns the amount; None = nothing is asked for, or not limited."""
    amount: PercentOrQuantity | None = getattr(network, field)
    return amount if amount is not None and amount.of_total(100) else None


def _above_limit(network: NetworkQOS, request: str, limit: str, total_bits_per_s: int) -> str:
    requested, most = _amount(network, request), _amount(network, limit)
    if requested is None or most is None:
        return ""
    amounts = _comparable([requested, most], total_bits_per_s)
    return f"is more than {json_name(limit)}, {most}" if amounts and amounts[0] > amounts[1] else ""


def _above_total(requests: Sequence[PercentOrQuantity], total_bits_per_s: int) -> str:
    together = " + ".join(map(str, requests))
    percents = [request.percent for request in requests if request.percent is not None]
    if sum(percents) > 100:
        return f"is part of requests for {together}, which are more than 100 %"
    amounts = _comparable(requests, total_bits_per_s) if total_bits_per_s else []
    if sum(amounts) > total_bits_per_s:
        return f"is part of requests for {together}, which are more than totalNetworkBandwidth, {total_bits_per_s}"
    return ""


def _comparable(amounts: Sequence[PercentOrQuantity], total_bits_per_s: int) -> list[int]:
    """Returns all in bits/s, or all in percent; [] where it cannot be told which is more."""
    percents = [amount.percent for amount in amounts if amount.percent is not None]
    if total_bits_per_s or not percents:
        return [amount.of_total(total_bits_per_s) for amount in amounts]
    return percents if len(percents) == len(amounts) else []


def _without(
    strategy: ResourceQOSStrategy, names: Sequence[str], request: str, why: str, path: str, bad: Bad
) -> ResourceQOSStrategy:
    """Returns ``strategy`` with ``request`` not stated by the classes ``names``."""
    changed: Mapping[str, ResourceQOS] = {name: getattr(strategy, name) for name in names}
    for name, settings in changed.items():
        amount = getattr(settings.network_qos, request)
        value = amount.percent if amount.percent is not None else str(amount)
        bad(wrong(f"{path}.{json_name(name)}.networkQOS.{json_name(request)}", value, why))
        network = msgspec.structs.replace(settings.network_qos or NetworkQOS(), **{request: None})
        strategy = msgspec.structs.replace(strategy, **{name: msgspec.structs.replace(settings, network_qos=network)})
    return strategy
