"""A record beside a tree of cgroup v1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.undo.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
