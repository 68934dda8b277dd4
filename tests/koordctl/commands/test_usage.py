"""koordctl refuses wrong usage and names what there is instead; --help documents the exit codes."""

from __future__ import annotations

import re

import pytest

from koordctl.cluster import kinds
from koordctl.views.node import SECTIONS
from tests.koordctl.runs import koordctl


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pods", "--no-such"], "No such option"),
        (["pods", "-o", "xml"], "xml"),
        (["nodes"], "nodes"),
        (["pods", "--timeout", "0"], "timeout"),
        (["explain"], "Usage"),
        (["explain", "pod"], "NAME"),
        (["disable"], "all|NAME"),
        (["disable", "all", "hooks"], "either all or names"),
        (["journal", "--since", "yesterday"], "neither a time ago (10m, 2h) nor an ISO 8601 time"),
        (["completion", "tcsh"], "tcsh"),
        (["pods", "--fields", "name,QOS"], "--fields: there is no field 'QOS'; there are namespace, name, qos_class, "),
        (["pods", "--fields", ""], "--fields: there is no field ''; there are namespace, "),
        (["pods", "-o", "wide", "--fields", "cpu_quota"], "there is no field 'cpu_quota'; there are namespace, "),
        (["journal", "--sort-by", "-time"], "--sort-by: there is no field 'time'; there are unix_ns, pod, "),
        (["plan", "--sort-by", "--pod"], "--sort-by: there is no field '-pod'; there are pod, "),
        (
            ["metrics", "--fields", "x"],
            "'x'; there are name, object, value, unit, history, scope, help, subject, label.",
        ),
        (["disable", "all", "--fields", "x"], "'x'; there are name, stage, state, opinions, sentence, errors, lacks."),
        (["doctor", "--offline", "--sort-by", "x"], "'x'; there are status, check, sentence, remedy."),
        (["top", "--once", "--fields", "x"], "'x'; there are pod, qos_class, cpu_usage_cores, "),
        (["node", "--section", "cpus"], "--section: there is no section 'cpus'; there are usage, pools, "),
        (["node", "--fields", "name"], "--fields and --sort-by need a --section: usage, pools, "),
        (["node", "--section", "loops", "--fields", "name,x"], "there is no field 'x'; there are name, state, age_s, "),
    ],
)
async def test_wrong_usage(arguments: list[str], said: str) -> None:
    code, out, err = await koordctl(*arguments)
    assert (code, said in " ".join((out + err).split())) == (1, True), err
    assert "Traceback" not in err


async def test_help_names_every_section_of_the_node() -> None:
    _, out, _ = await koordctl("node", "--help")
    assert set(SECTIONS) <= set(re.findall(r"\w+", out))


async def test_help_names_every_kind_of_koords() -> None:
    _, out, _ = await koordctl("get", "--help")
    assert set(kinds.names()) <= set(re.findall(r"\w+", out))
