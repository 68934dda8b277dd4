"""What ``host-application-config`` holds. The structs of the other keys stand where they are used: ColocationStrategy,
normalization and amplification in ``koord.model.overcommit``, the sections of NodeSLO in ``koord.model.slo``.
"""

from __future__ import annotations

import msgspec

from koord.model.schema import json_name
from koord.model.slo import HostApplication


class HostApplications(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    applications: tuple[HostApplication, ...] = ()
