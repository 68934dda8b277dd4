"""NodeMetrics as the manager keeps them: the same, in less memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from koord.model import core
from koord.model.nodemetric import NodeMetric
from koord_manager.cache import nodemetrics
from tests.model.test_nodemetric import EVERY_FIELD, ONE_NODE


@pytest.mark.parametrize(
    "document", [{}, {"metadata": {"name": "n1"}}, yaml.safe_load(ONE_NODE), EVERY_FIELD],
    ids=["empty", "no status", "seen", "every field"],
)  # fmt: skip
def test_what_is_unpacked_is_what_was_packed(document: dict[str, Any]) -> None:
    metric = core.read(NodeMetric, json.dumps(document).encode())
    packed = nodemetrics.packed(metric)
    assert packed.unpacked() == metric
    assert (packed.metadata, packed.spec, packed.update_time) == (
        metric.metadata,
        metric.spec,
        metric.status.update_time,
    )
