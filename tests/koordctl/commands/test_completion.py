"""The shell completes commands, pods, options and fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.koordctl.commands.fullnode import full_scene
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import inspecting


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_completion_scripts(shell: str) -> None:
    code, out, _ = await koordctl("completion", shell)
    assert (code, "_KOORDCTL_COMPLETE" in out) == (0, True)


async def test_the_shell_completes_commands_and_pods(tmp_path: Path) -> None:
    asking = {"_KOORDCTL_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    _, out, _ = await koordctl(COMP_WORDS="koordctl jo", **asking)
    assert out.split() == ["plain,journal"]
    asking["COMP_CWORD"] = "3"
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        _, out, _ = await koordctl(COMP_WORDS="koordctl explain pod j", KOORD_INSPECT_SOCKET=path, **asking)
        assert out.split() == ["plain,job"]
    _, out, err = await koordctl(COMP_WORDS="koordctl explain pod j", KOORD_INSPECT_SOCKET="/none", **asking)
    assert (out.strip(), err) == ("", "")


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("koordctl pods -n d", ["default"]),
        ("koordctl pods j", ["job"]),
        ("koordctl explain pod default/j", ["default/job"]),
        ("koordctl explain pod -n ", ["default"]),
        ("koordctl disable ho", ["hooks"]),
        ("koordctl enable a", ["all"]),
        ("koordctl metrics node_cpu_us", ["node_cpu_usage_cores"]),
        ("koordctl journal --pod default/d", ["default/db"]),
        ("koordctl journal --strategy hoo", ["hooks"]),
    ],
)
async def test_the_shell_completes_what_the_node_has(tmp_path: Path, words: str, completions: list[str]) -> None:
    asking = {"_KOORDCTL_COMPLETE": "bash_complete", "COMP_CWORD": f"{words.count(' ')}"}
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        _, out, err = await koordctl(COMP_WORDS=words, KOORD_INSPECT_SOCKET=path, **asking)
    assert (sorted({line.partition(",")[2] for line in out.split()}), err) == (completions, "")
    _, out, err = await koordctl(COMP_WORDS=words, KOORD_INSPECT_SOCKET="/none", **asking)
    assert (out.strip(), err) == ("", "")


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("koordctl journal --so", ["--sort-by", "--socket"]),
        ("koordctl journal --sort-by re", ["result"]),
        ("koordctl journal --fields pod,ti", ["pod,tick"]),
        ("koordctl pods --fields cpu_q", ["cpu_quota"]),
        ("koordctl pods -o wide --fields d", ["desired", "differs"]),
        ("koordctl node --section fr", ["front_ends"]),
        ("koordctl node --section front_ends --sort-by a", ["attached", "acting"]),
        ("koordctl node --fields n", []),
        ("koordctl node --section nothing --fields n", []),
    ],
)
async def test_the_shell_completes_fields(words: str, completions: list[str]) -> None:
    asking = {"_KOORDCTL_COMPLETE": "bash_complete", "COMP_CWORD": f"{words.count(' ')}"}
    _, out, err = await koordctl(COMP_WORDS=words, **asking)
    assert (sorted(line.partition(",")[2] for line in out.split()), err) == (sorted(completions), "")
