"""``koordctl disable`` and ``koordctl enable`` switch strategies off and on."""

from __future__ import annotations

from pathlib import Path

from tests.koordctl.commands.fullnode import full_scene
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import inspecting


async def test_strategies_off_and_on(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        for arguments, hooks, resctrl in (
            (("disable", "all"), "disabled", "disabled"),
            (("enable", "hooks", "enforcement"), "frozen", "disabled"),
        ):
            code, out, _ = await koordctl(*arguments, "--socket", path)
            lines = [line.split() for line in out.splitlines()]
            assert (code, lines[0]) == (0, ["STRATEGY", "STAGE", "STATE", "FILES", "SAYS"])
            states = {line[0]: line[2] for line in lines[1:]}
            assert (states["hooks"], states["resctrl"]) == (hooks, resctrl)
