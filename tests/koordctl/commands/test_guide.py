"""Help: whole on 80 columns, with examples that are true, exit codes once, and the word that was meant."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from koordctl.__main__ import COMMANDS, cli
from koordctl.guide import GUIDES
from tests.koordctl.runs import koordctl


def commands() -> Iterator[str]:
    """Each command, those of groups with the group's name before."""
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        yield name
        if isinstance(command, click.Group):
            yield from (f"{name} {each}" for each in command.list_commands(click.Context(command)))


def test_each_command_has_its_guide() -> None:
    assert sorted(commands()) == sorted(GUIDES)


async def test_no_line_of_the_list_is_cut() -> None:
    code, out, _ = await koordctl("--help", COLUMNS="80")
    assert (code, "..." in out.replace("[ARGS]...", ""), "…" in out) == (0, False, False)
    assert all(len(line) <= 80 for line in out.splitlines())
    assert all(guide.summary in out for name, guide in GUIDES.items() if " " not in name)
    assert "Exit codes:" in out


@pytest.mark.parametrize("command", GUIDES)
async def test_help_has_examples_and_no_exit_codes(command: str) -> None:
    code, out, _ = await koordctl(*command.split(), "--help")
    assert (code, "Exit codes" in out) == (0, False)
    assert "Examples:" in out
    assert all(f"koordctl {example}" in out for example, _ in GUIDES[command].examples)


@pytest.mark.parametrize("example", [example for guide in GUIDES.values() for example, _ in guide.examples])
def test_examples_are_true(example: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As far as the command line goes: the commands are found, and their options and values are taken."""
    words = shlex.split(example.partition(">")[0])
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None
        command = found
    options = [each for each in command.params if isinstance(each, click.Option)]
    known = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    assert {word for word in words if word.startswith("-") and len(word) > 1 and word[1:2] not in "bm"} <= known
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    assert arguments or not [word for word in words if not word.startswith("-")] or len(words) > 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nodes"], "No such command 'nodes' (did you mean node?)."),
        (["explian", "pod", "x"], "(did you mean explain?)"),
        (["wibble"], "No such command 'wibble'."),
        (["pods", "--namespce", "x"], "--namespace"),
    ],
)
async def test_what_was_meant(arguments: list[str], said: str) -> None:
    code, _, err = await koordctl(*arguments)
    assert (code, said in err) == (1, True), err
