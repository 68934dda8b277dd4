"""What a strategy becomes in a NodeSLO, what the node itself has a say in, and when a stored one says the same.

Invariant: a NodeSLO that was written and read back is equal in its normal form, whatever an API server filled in, so no
update is sent again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord.model import quantity, slo_extensions
from koord.model.percent import PercentOrQuantity
from koord.model.problem import Problem
from koord.model.quantity import QuantityError
from koord.model.schema import json_name, wrong
from koord.model.slo import HostApplication, NodeSLOSpec, ResourceQOS, ResourceQOSStrategy, SystemStrategy
from koord.model.slo_extensions import KOORD, KoordExtension

_EXTENSIONS = "extensions"
ANNOTATION_BANDWIDTH = "node.koordinator.sh/network-bandwidth"

NETWORK_DEFAULTS = {
    "ingress_request": PercentOrQuantity(percent=0),
    "ingress_limit": PercentOrQuantity(percent=100),
    "egress_request": PercentOrQuantity(percent=0),
    "egress_limit": PercentOrQuantity(percent=100),
}
"""What the CRD's schema has as defaults of ``networkQOS``."""


class HostApplicationConfig(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """The key ``host-application-config``."""

    applications: tuple[HostApplication, ...] = ()


def section_of(strategy: Any) -> Any:
    """Returns the section of NodeSLO that a strategy becomes; None: none."""
    if isinstance(strategy, HostApplicationConfig):
        return strategy.applications or None
    if isinstance(strategy, KoordExtension):
        return {KOORD: strategy} if strategy != KoordExtension() else {}
    return strategy


def system_of_node(base: SystemStrategy, annotations: Mapping[str, str]) -> tuple[SystemStrategy, tuple[Problem, ...]]:
    """Returns ``base`` with the bandwidth that the node's annotation names; a bad one counts as absent.

    Upstream drops the whole section then, so a typing error in a number would end every setting of the system.
    """
    text = annotations.get(ANNOTATION_BANDWIDTH)
    if text is None:
        return base, ()
    try:
        total = quantity.parse(text)
    except QuantityError as error:
        return base, (wrong(ANNOTATION_BANDWIDTH, text, error.why),)
    if total.nano < 0:
        return base, (wrong(ANNOTATION_BANDWIDTH, text, "is negative"),)
    return msgspec.structs.replace(base, total_network_bandwidth=total), ()


def owned(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of an object's ``spec`` that this configuration says: all but the extensions of others."""
    extensions = spec.get(_EXTENSIONS)
    if not isinstance(extensions, Mapping):
        return dict(spec)
    return {**spec, _EXTENSIONS: slo_extensions.only(slo_extensions.EXTENSIONS, extensions)}


def normal(spec: NodeSLOSpec) -> NodeSLOSpec:
    """Returns ``spec`` with what an API server fills in, and without lists and maps that are empty."""
    return msgspec.structs.replace(
        spec,
        resource_qos=None if spec.resource_qos is None else _filled_in(spec.resource_qos),
        host_applications=spec.host_applications or None,
        extensions=spec.extensions or None,
    )


def _filled_in(strategy: ResourceQOSStrategy) -> ResourceQOSStrategy:
    classes = {name: getattr(strategy, name) for name in strategy.__struct_fields__}
    return msgspec.structs.replace(
        strategy, **{name: _with_limits(each) for name, each in classes.items() if isinstance(each, ResourceQOS)}
    )


def _with_limits(settings: ResourceQOS) -> ResourceQOS:
    network = settings.network_qos
    if network is None:
        return settings
    missing = {name: value for name, value in NETWORK_DEFAULTS.items() if getattr(network, name) is None}
    return msgspec.structs.replace(settings, network_qos=msgspec.structs.replace(network, **missing))
