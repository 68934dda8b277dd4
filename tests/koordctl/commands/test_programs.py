"""Programs read the same from JSON as from YAML, and no warning on standard output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.koordctl.commands.fullnode import ASKING, full_scene
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import inspecting


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
async def test_for_programs(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        _, as_json, _ = await koordctl(*arguments, "--socket", f"unix://{path}", "-o", "json")
        _, as_yaml, _ = await koordctl(*arguments, "-o", "yaml", KOORD_INSPECT_SOCKET=path)
    answers = json.loads(as_json), yaml.safe_load(as_yaml)
    for answer in answers:
        answer.pop("daemon", None)  # its memory and files are of the moment
    assert answers[0] == answers[1] != {}


async def test_warnings_go_to_standard_error(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        for command in ("pods", "node"):
            _, out, err = await koordctl(command, "--socket", path)
            assert err == f"warning: {tmp_path}/node/rules.yaml: spec.typo: no such key in NodeSLO, ignored\n"
            assert "typo" not in out
