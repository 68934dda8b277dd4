"""The pages on koord-qosd and koordctl against the code: flags, metrics, hooks, commands, exit codes, files."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import click
import pytest
import yaml

from koord.host.evictions import EVICTION
from koord.host.reconcile import plan
from koord.host.writer import RULES as RULES_OF_ERRNOS
from koord.model import memory_qos_messages, slo
from koord.model.featuregates import GATES
from koord.model.qos_settings import MemoryQOS
from koord.model.schema import json_name
from koord_scheduler.options import PROGRAM as SCHEDULER
from koordctl import exits
from koordctl.__main__ import COMMANDS, cli
from qosd.act import evictor, rehearsals
from qosd.assembly import assemble
from qosd.giveback import BESIDE
from qosd.hooks import memory
from qosd.hooks.table import HOOK_NAMES
from qosd.metrics import PREFIX as QOSD
from qosd.metrics import Metrics
from qosd.model.snapshot import EvictionPhase
from qosd.node import JOURNAL, MODELS, POLICY, UNDO
from qosd.options import PROGRAM, Options
from qosd.policy.sloeffects import without_effect
from qosd.sense.exposition import PREFIX
from qosd.sense.table import METRICS
from qosd.strategies import speakers
from qosd.tuning.advice import RULES as ADVICE
from tests.qosd.contexts import V2, policy
from tests.qosd.machine import Machine
from tests.support import docpages

DAEMON, RULES, README = docpages.page("node-daemon.md"), docpages.page("qosd.md"), docpages.page("README.md")
KOORDCTL, GATE_PAGE = docpages.page("koordctl.md"), docpages.page("feature-gates.md")
MEMORY = docpages.page("memory-qos.md")
OTHERS = ("measuring", "kernel-files", "undo", "systemd", "node-in-a-cluster")
ALL = "".join([DAEMON, RULES, KOORDCTL, GATE_PAGE, *(docpages.page(f"{name}.md") for name in OTHERS)])
FLAGS = PROGRAM.table
FLAG_ROWS = docpages.flags(DAEMON)
OF_KOORDCTL = {
    name: {flag.removeprefix("--") for option in command.params for flag in option.opts}
    for name in COMMANDS
    if (command := cli.get_command(click.Context(cli), name)) is not None
}
OF_OTHERS = {"now", "sort"}
"""Flags of systemctl and ps."""


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_has_a_row_with_its_default(flag: str) -> None:
    assert FLAG_ROWS[flag][0].strip("`") == (FLAGS[flag].default_text or "none")


def test_no_other_flag_has_a_row_or_is_mentioned() -> None:
    assert FLAG_ROWS.keys() == FLAGS.keys()
    mentioned = docpages.mentioned_flags(ALL) - {BESIDE.lstrip("-")}
    known = {*FLAGS, *SCHEDULER.table, *OF_OTHERS, "config"}.union(*OF_KOORDCTL.values())
    assert mentioned <= known


def test_every_command_with_fields_is_named_where_they_are_explained() -> None:
    section = KOORDCTL[KOORDCTL.index("## Columns and order") :]
    for name, flags in OF_KOORDCTL.items():
        assert bool(re.search(rf"`{name}( --section)?`", section.partition("| |")[0])) == ("fields" in flags)
    assert {"fields", "sort-by"} <= docpages.mentioned_flags(section)
    assert {"once", "section", "history", "subject", "since", "limit"} <= docpages.mentioned_flags(KOORDCTL)


async def test_every_metric_of_the_process_has_a_row_and_no_other(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    metrics = Metrics()
    node = assemble(machine.options(), metrics, machine.locator())
    try:
        kinds = {QOSD + declared.name: declared.kind.value for declared, _ in metrics.take()}
    finally:
        await node.close()
    exported = {name + ("_total" if kind == "counter" else "") for name, kind in kinds.items()}
    measured = {PREFIX + metric.name for metric in METRICS}
    assert docpages.rows(docpages.page("metrics.md"), rf"{PREFIX}\w+").keys() == exported | measured
    assert docpages.mentioned_metrics(ALL, PREFIX) <= kinds.keys() | measured


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_shown(name: str) -> None:
    assert re.search(rf"`{name}`", README[: README.index("## Two commands")]), "in the README's table"
    assert f"koordctl {name}" in ALL + docpages.page("operations.md")


def test_the_feature_gates_are_those_of_the_code() -> None:
    behind = {name: {each.name for each in speakers() if each.gate == name} for name in GATES}
    rows = docpages.rows(GATE_PAGE, r"\w+")
    assert rows == {
        name: ("on" if gate.is_on else "off", gate.purpose, ", ".join(f"`{each}`" for each in sorted(behind[name])))
        for name, gate in GATES.items()
    }


def test_every_strategys_gate_is_one() -> None:
    assert {strategy.gate for strategy in speakers()} <= {"", *GATES}


def test_exit_codes() -> None:
    told = dict(re.findall(r"^\| (\d) \| (.*) \|$", KOORDCTL, re.MULTILINE))
    assert set(map(int, told)) == {exits.OK, exits.USAGE, exits.UNREACHABLE, exits.REFUSED, exits.FAILED}
    assert re.findall(r"^  (\d)  ", exits.EPILOG, re.MULTILINE) == sorted(told)


def test_every_result_of_the_journal_is_explained() -> None:
    section = KOORDCTL[KOORDCTL.index("| Result | |") : KOORDCTL.index("## koordctl node")]
    told = {words.split()[0] for words in re.findall(r"`([^`]+)`", section)} - {EVICTION}
    assert told == {
        plan.DONE, plan.VANISHED, plan.UNSUPPORTED, plan.REFUSED, plan.YIELDED, plan.FOREIGN, plan.FAILED,
        plan.UNREADABLE, plan.ADOPTED, plan.LEFTOVER, EvictionPhase.STOPPING, EvictionPhase.RESTARTED, evictor.ENDED,
        rehearsals.DRY_RUN.split()[0],
    }  # fmt: skip


def test_every_topic_of_advice_is_explained() -> None:
    section = KOORDCTL[KOORDCTL.index("| Topic | It is told |") :].partition("\n\n")[0]
    told = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    assert [topic for cell in told for topic in re.findall(r"`([^`]+)`", cell)] == list(ADVICE)


def test_every_file_and_setting_of_memory_qos_is_explained_and_every_sentence_quoted_is_said() -> None:
    section = MEMORY[MEMORY.index("## What is set") : MEMORY.index("## Tiers")]
    for name in memory.ROWS:
        spellings = (f"`{name}`", f"`.{name.partition('.')[2]}`")
        assert any(spelling in section for spelling in spellings) or name.startswith("memory.pagecache_limit.")
    assert "`memory.pagecache_limit.*`" in section
    settings = {json_name(name) for name in MemoryQOS.__struct_fields__} - {"enable"}
    assert settings <= docpages.code(section)
    example = re.search(r"```yaml\n(spec:\n.*?)node:", MEMORY, re.DOTALL)
    assert example is not None
    spec = yaml.safe_load(example[1])["spec"]
    told = list(without_effect(slo.decode_spec(spec), policy(V2, spec)))
    assert len(told) == 2 and all(sentence in MEMORY for sentence in told)
    assert memory_qos_messages.without_protection(memory_qos_messages.SOFT_LIMIT) in MEMORY
    assert memory_qos_messages.without_reclaim(1) in MEMORY
    assert RULES_OF_ERRNOS["oom_score_adj"][errno.EACCES] in MEMORY


def test_every_hook_has_a_row() -> None:
    assert tuple(docpages.rows(RULES, "|".join(HOOK_NAMES))) == HOOK_NAMES


@pytest.mark.parametrize(
    "path",
    [Options().run_dir / UNDO, *(Options().state_dir / name for name in (JOURNAL, MODELS, POLICY))],
)
def test_every_file_is_named(path: Path) -> None:
    assert f"`{path}`" in DAEMON
