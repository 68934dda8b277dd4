"""The table of keys against the configuration and against NodeSLO."""

from __future__ import annotations

from dataclasses import fields

import pytest

from koord.sloconfig.config import SLOConfig
from koord.sloconfig.rows import ROWS, KeyLayout, Override

TABLE = [
    ("colocation-config", KeyLayout.FLAT, Override.MERGE, ""),
    ("resource-threshold-config", KeyLayout.NESTED, Override.MERGE, "resourceUsedThresholdWithBE"),
    ("resource-qos-config", KeyLayout.NESTED, Override.MERGE, "resourceQOSStrategy"),
    ("cpu-burst-config", KeyLayout.NESTED, Override.MERGE, "cpuBurstStrategy"),
    ("system-config", KeyLayout.NESTED, Override.MERGE, "systemStrategy"),
    ("host-application-config", KeyLayout.FLAT, Override.REPLACE, "hostApplications"),
    ("koord-config", KeyLayout.NESTED, Override.MERGE, "extensions"),
    ("cpu-normalization-config", KeyLayout.FLAT, Override.MERGE, ""),
    ("resource-amplification-config", KeyLayout.FLAT, Override.MERGE, ""),
]


@pytest.mark.parametrize(("key", "layout", "override", "node_slo_field"), TABLE)
def test_a_row(key: str, layout: KeyLayout, override: Override, node_slo_field: str) -> None:
    (row,) = (row for row in ROWS if row.key == key)
    assert (row.layout, row.override, row.node_slo_field) == (layout, override, node_slo_field)
    assert isinstance(row.default, row.struct)


def test_each_key_has_a_section_of_its_own() -> None:
    assert [row.key for row in ROWS] == [key for key, *_ in TABLE]
    assert [row.section for row in ROWS] == [field.name for field in fields(SLOConfig)]
