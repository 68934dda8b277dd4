"""What ``host-application-config`` holds, and what NodeSLO has of a strategy that is no section as it is.

The structs of the other keys stand where they are used: ColocationStrategy, normalization and amplification in
``koord.overcommit``, the sections of NodeSLO in ``koord.model.slo``, its extensions in ``slo_extensions``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from koord.model.schema import json_name
from koord.model.slo import HostApplication
from koord.model.slo_extensions import KOORD, KoordExtension


class HostApplicationConfig(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    applications: tuple[HostApplication, ...] = ()


def node_slo_section(strategy: Any) -> Any:
    """The section of NodeSLO that a strategy becomes; None: none."""
    if isinstance(strategy, HostApplicationConfig):
        return strategy.applications or None
    if isinstance(strategy, KoordExtension):
        return {KOORD: strategy} if strategy != KoordExtension() else {}
    return strategy
