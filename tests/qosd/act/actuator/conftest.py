"""An actuator over a tree of cgroup v1 with the group of one pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.qosd.act.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.make()
    return rig
