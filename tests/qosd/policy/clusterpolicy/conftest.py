"""The node that each test of the cluster's policy begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.qosd.policy.clusterpolicy.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.start()
    return made
