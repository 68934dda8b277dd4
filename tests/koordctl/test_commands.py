"""Every command as a process against a real NodeInspect socket, and what it says when there is none."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from koord.host.files import Target
from koord.host.placement import Membership
from koord.http2.server import UnaryServer
from koord.model import formulas
from koord.model.formulas import FORMULA
from koord.pb.koord.inspect_pb2 import Policy
from koordctl.__main__ import COMMANDS
from koordctl.views import node as node_view
from koordctl.views.node import SECTIONS
from qosd.clusterstatus import ClusterPart, ClusterStatus, PartState
from qosd.decide.decision import Decision, Opinion, Stage
from qosd.decide.runner import State, StrategyResult
from qosd.inspect.inspector import Inspector
from qosd.inspect.service import SERVICE, methods
from qosd.model.metric import Scope
from qosd.model.pod import Resources
from qosd.policy.provenance import Origin, Provenance
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE
from qosd.strategies import speakers
from tests.fakes.cgroups import Cgroups
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import SECOND, Scene, batch_scene, inspecting, living, v1_files
from tests.qosd.podviews import view

ASKING = [
    ("node",),
    ("pods",),
    ("explain", "pod", "job"),
    ("explain", "node"),
    ("plan",),
    ("journal",),
    ("metrics",),
    ("disable", "all"),
    ("enable", "hooks"),
]
QUOTA = Target("/kubepods/besteffort/podjob/worker", "cpu_quota")


def full_scene(tmp_path: Path) -> Scene:
    """The BE pod with a quota that someone lowered, an LSR pod as desired, and a pod with a bad annotation."""
    node = batch_scene(tmp_path, quota="150000")
    database = view("db", "LSR", "Guaranteed", containers=[("postgres", "CONTAINER_RUNNING")], cpus="0-1")
    v1_files(tmp_path, database.containers[1].cgroup)
    broken = replace(view("web", "LS", containers=[]), problems=("resource-status: '{' is no JSON; treated as absent",))
    assert node.snapshot is not None
    values = {
        NodeRow.cpu_usage_cores: {"": 1.25},
        USAGE[Scope.POD].cpu_usage_cores: {"/kubepods/besteffort/podjob": 0.5},
        USAGE[Scope.POD].memory_usage_bytes: {"/kubepods/besteffort/podjob": 3.0 * (1 << 20)},
    }
    node.snapshot = replace(node.snapshot, pods=(*node.snapshot.pods, database, broken), values=values)
    node.history = {NodeRow.cpu_usage_cores: [(99 * SECOND, 0.5), (100 * SECOND, 1.25)]}
    node.rules = "spec: {typo: 1}\n"
    Cgroups(tmp_path).put("/kubepods/besteffort", {"cpu.idle": "0"})
    return node


# --- failures --------------------------------------------------------------------------------------------------------


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
        (["journal", "--since", "yesterday"], "neither 10m nor an ISO 8601 time"),
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
        (["top", "--once", "--fields", "x"], "'x'; there are pod, cpu_usage_cores, "),
        (["top", "-o", "json"], "-o json is for --once"),
        (["node", "--section", "cpus"], "--section: there is no section 'cpus'; there are usage, pools, "),
        (["node", "--fields", "name"], "--fields and --sort-by need a --section: usage, pools, "),
        (["node", "--section", "loops", "--fields", "name,x"], "there is no field 'x'; there are name, state, age_s, "),
    ],
)
async def test_wrong_usage(arguments: list[str], said: str) -> None:
    code, out, err = await koordctl(*arguments)
    assert (code, said in " ".join((out + err).split())) == (1, True), err
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
async def test_no_daemon(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, out, err = await koordctl(*arguments, "--socket", f"{tmp_path}/none.sock")
    assert (code, out) == (2, "")
    assert err.startswith(f"koordctl: no socket at {tmp_path}/none.sock: is koord-qosd running")


async def test_top_needs_a_daemon_too(tmp_path: Path) -> None:
    pytest.importorskip("textual")
    code, _, err = await koordctl("top", "--socket", f"{tmp_path}/none.sock")
    assert (code, "no socket at" in err) == (2, True)


async def test_a_socket_that_nobody_answers_on(tmp_path: Path) -> None:
    (tmp_path / "i.sock").write_text("")
    code, _, err = await koordctl("pods", "--socket", f"{tmp_path}/i.sock")
    assert (code, "nobody listens" in err) == (2, True)


async def test_a_daemon_that_does_not_answer(tmp_path: Path) -> None:
    server = await asyncio.start_unix_server(lambda reader, writer: None, tmp_path / "i.sock")
    code, _, err = await koordctl("pods", "--socket", f"{tmp_path}/i.sock", "--timeout", "0.3")
    server.close()
    assert (code, "did not answer within 0.3 s" in err) == (2, True)


async def test_an_old_daemon_is_told_from_a_missing_one(tmp_path: Path) -> None:
    path = f"/{SERVICE.full_name}/ListPods"
    async with living(batch_scene(tmp_path)) as node:
        old = UnaryServer({path: methods(Inspector(node))[path]})
        listener = await asyncio.get_running_loop().create_unix_server(old.protocol, f"{tmp_path}/i.sock")
        code, _, err = await koordctl("plan", "--socket", f"{tmp_path}/i.sock")
        listener.close()
    assert (code, "does not know Plan: it is older than this koordctl" in err) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain", "pod", "gone"], "answered NOT_FOUND: no pod gone on this node"),
        (["explain", "file", "/etc/passwd"], "answered NOT_FOUND: /etc/passwd"),
        (["disable", "nothing"], "there is no strategy 'nothing'; there are hooks, "),
    ],
)
async def test_what_the_daemon_does_not_know(tmp_path: Path, arguments: list[str], said: str) -> None:
    async with inspecting(tmp_path / "i.sock", batch_scene(tmp_path)) as path:
        code, out, err = await koordctl(*arguments, "--socket", path)
    assert (code, out, said in err) == (3, "", True), err


async def test_a_runtime_that_is_gone_from_the_start_is_the_daemons_answer(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", Scene(tmp_path)) as path:
        code, _, err = await koordctl("pods", "--socket", path)
    assert (code, "answered FAILED_PRECONDITION: there is no snapshot yet" in err, "shows where pods are" in err) == (
        3,
        True,
        True,
    )


# --- answers ---------------------------------------------------------------------------------------------------------


async def lines_of(tmp_path: Path, *arguments: str) -> list[str]:
    """The command's lines, each blank run one space, the tree's directory left out."""
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        code, out, err = await koordctl(*arguments, "--socket", path, TZ="UTC")
    assert code == 0, err
    return [" ".join(line.split()).replace(str(tmp_path), "") for line in out.splitlines()]


async def test_pods(tmp_path: Path) -> None:
    lines = await lines_of(tmp_path, "pods")
    assert lines == [
        "NAMESPACE POD QOS PRIORITY CONTAINER STATE CPUS QUOTA(us) SHARES MEMORY AS DESIRED",
        "default db LSR koord-prod postgres running 0-1 none 1536 4Gi yes",
        "default job BE koord-prod worker running all 150000 1536 4Gi no: cpu_quota",
        "default web LS koord-prod - ready - - - - -",
        "",
        "default/web: resource-status: '{' is no JSON; treated as absent",
    ]


async def test_pods_wide_says_file_and_why(tmp_path: Path) -> None:
    lines = await lines_of(tmp_path, "pods", "-o", "wide", "-n", "default", "job")
    assert (
        "default job BE worker cpu_quota 200000 150000 differs hooks: batchResource: batch-cpu limit 2000m "
        "/cpu/kubepods/besteffort/podjob/worker/cpu.cfs_quota_us"
    ) in lines


async def test_warnings_go_to_standard_error(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        for command in ("pods", "node"):
            _, out, err = await koordctl(command, "--socket", path)
            assert err == f"warning: {tmp_path}/node/rules.yaml: spec.typo: no such key in NodeSLO, ignored\n"
            assert "typo" not in out


async def test_explain(tmp_path: Path) -> None:
    lines = await lines_of(tmp_path, "explain", "pod", "default/job")
    assert lines[:9] == [
        "default/job: BE by label; koord-prod; ready; cgroup /kubepods/besteffort/podjob",
        "",
        "/cpu/kubepods/besteffort/podjob/worker/cpu.cfs_quota_us",
        "cpu_quota of container worker of default/job, decided by hooks",
        "holds 150000; written 12 s ago, before that -1 (none); base -1 (none); DIFFERS from 200000",
        "result 200000 = cpu_quota(limit_milli=2000, period_us=100000)",
        "cpu_quota: floor(limit_milli * period_us / 1000), at least 1000; -1 if there is no limit",
        "because batchResource: batch-cpu limit 2000m",
        "",
    ]
    assert "worker cpu_shares 1536 /cpu/kubepods/besteffort/podjob/worker/cpu.shares" in lines


def throttled_scene(tmp_path: Path) -> Scene:
    """An LS pod whose container runs into its quota all the time."""
    half = Resources(cpu_period_us=100_000, cpu_quota_us=50_000)
    web = view("web", "LS", containers=[("nginx", "CONTAINER_RUNNING")], container_requested=half)
    node, cgroup, usage = batch_scene(tmp_path), web.containers[1].cgroup, USAGE[Scope.CONTAINER]
    v1_files(tmp_path, cgroup, "50000")
    node.steady = {
        (usage.cpu_usage_cores, cgroup): 0.5,
        (usage.cpu_throttled_ratio, cgroup): 0.38,
        (usage.cpu_throttled_us_per_s, cgroup): 300_000.0,
    }
    assert node.snapshot is not None
    node.snapshot = replace(node.snapshot, pods=(*node.snapshot.pods, web))
    return node


ADVICE = (
    "advice for nginx: limit 500m: throttled 38 % of the periods of the last 2 min; 900m would have sufficed. "
    "To do: set limit to 900m: kubelet can do that in place (Kubernetes 1.33)"
)


async def test_explain_advises_whose_own_limit_hurts_it(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", throttled_scene(tmp_path)) as path:
        _, out, _ = await koordctl("explain", "pod", "web", "--socket", path)
        assert out.splitlines()[1:3] == [
            f"  {ADVICE}",
            "  Koord does none of this itself: beyond CPU burst, limits and requests are their owner's.",
        ]
        _, out, _ = await koordctl("explain", "pod", "web", "-o", "json", "--socket", path)
        assert json.loads(out)["pods"][0]["advice"][0]["topic"] == "throttled"
        _, out, _ = await koordctl("explain", "pod", "job", "--socket", path)
        assert "advice" not in out and "Koord does none" not in out


async def test_a_wide_list_of_pods_advises_and_no_other_pays_for_it(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", throttled_scene(tmp_path)) as path:
        _, out, _ = await koordctl("pods", "-o", "wide", "--socket", path)
        assert f"default/web: {ADVICE}" in out.splitlines()
        _, out, _ = await koordctl("pods", "--socket", path)
        assert "advice" not in out
        _, out, _ = await koordctl("pods", "-o", "json", "--socket", path)
        assert [pod["advice"] for pod in json.loads(out)["pods"]] == [[], []]


async def test_explain_says_why_a_file_is_left_alone(tmp_path: Path) -> None:
    node = batch_scene(tmp_path)
    left = Target(QUOTA.cgroup.rpartition("/")[0], "cpu_quota")
    v1_files(tmp_path, left.cgroup, "-1")
    why = "batchResource: left alone: the native amounts of istio-proxy are unknown"
    node.results[0] = replace(node.results[0], decision=Decision("", {left: Opinion.release(why, "default/job")}))
    async with inspecting(tmp_path / "i.sock", node) as path:
        _, out, _ = await koordctl("explain", "pod", "job", "--socket", path)
    lines = [" ".join(line.split()).replace(str(tmp_path), "") for line in out.splitlines()]
    assert f"- cpu_quota none {'/cpu' + left.cgroup}/cpu.cfs_quota_us {why}" in lines


async def test_explain_shows_what_the_only_change_was_made_of(tmp_path: Path) -> None:
    node = batch_scene(tmp_path)
    bound = Opinion.at_most(90_000, "busy", {FORMULA: "cpu_quota", "limit_milli": 900})
    node.results[0] = replace(node.results[0], decision=Decision("", {QUOTA: bound}))
    async with inspecting(tmp_path / "i.sock", node) as path:
        _, out, _ = await koordctl("explain", "file", f"{QUOTA.cgroup}/{QUOTA.name}", "--socket", path)
    lines = [line.strip() for line in out.splitlines()]
    assert "result 90000 = composed(value=-1, minimum=1000, spec_at_most=90000)" in lines
    assert "spec: hooks: at most 90000 = cpu_quota(limit_milli=900) → 90000; busy" in lines


async def test_explain_shows_every_stage_of_a_composition(tmp_path: Path) -> None:
    node = full_scene(tmp_path)
    node.results += [
        StrategyResult(
            "half",
            Stage.NORMALIZATION,
            State.ACTIVE,
            Decision("", {QUOTA: Opinion.scale(Fraction(1, 2), "a faster CPU")}),
        ),
        StrategyResult("other", Stage.SPEC, State.ACTIVE, Decision("", {QUOTA: Opinion.set(1, "mine")})),
        StrategyResult(
            "limit", Stage.SUPPRESSION, State.ACTIVE, Decision("", {QUOTA: Opinion.at_most(90_000, "busy")})
        ),
        StrategyResult(
            "floor", Stage.ENFORCEMENT, State.ACTIVE, Decision("", {QUOTA: Opinion.at_least(95_000, "a promise")})
        ),
    ]
    async with inspecting(tmp_path / "i.sock", node) as path:
        _, out, _ = await koordctl("explain", "file", f"{QUOTA.cgroup}/{QUOTA.name}", "--socket", path)
    lines = [line.strip() for line in out.splitlines()]
    fed = "value=200000, minimum=1000, normalization_factor=1/2, suppression_at_most=90000, enforcement_at_least=95000"
    assert f"result 95000 = composed({fed})" in lines
    assert "normalization: half: scale 0.5 → 100000; a faster CPU" in lines
    assert "suppression: limit: at most 90000 → 90000; busy" in lines
    assert "enforcement: floor: at least 95000 → 95000; a promise" in lines
    assert (
        "spec: other: set 1; mine; NOT FOLLOWED: SPEC of /kubepods/besteffort/podjob/worker/cpu_quota is hooks's"
        in lines
    )


async def test_explain_says_in_which_resctrl_group_tasks_are_kept(tmp_path: Path) -> None:
    node = full_scene(tmp_path)
    membership = (Membership(QUOTA.cgroup, "BE", "BE pods belong to group BE", "default/job"),)
    node.results.append(StrategyResult("resctrl", Stage.SPEC, State.ACTIVE, Decision("", acts=membership)))
    node.placed = {QUOTA.cgroup: "BE"}
    async with inspecting(tmp_path / "i.sock", node) as path:
        _, out, _ = await koordctl("explain", "pod", "job", "--socket", path)
    block = out[out.index("/BE/tasks") :].splitlines()
    assert [line.strip() for line in block[1:5]] == [
        "resctrl.tasks of container worker of default/job, decided by resctrl",
        "holds BE",
        "result BE",
        "because BE pods belong to group BE",
    ]


async def test_the_result_can_be_computed_again_from_what_is_printed(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        _, out, _ = await koordctl("explain", "pod", "job", "-o", "json", "--socket", path)
    decided = [file for file in json.loads(out)["files"] if file["owner"]]
    assert [str(formulas.recompute({FORMULA: f["formula"], **f["inputs"]})) for f in decided] == ["200000"]
    assert [file["result"] for file in decided] == ["200000"]


async def test_node(tmp_path: Path) -> None:
    lines = await lines_of(tmp_path, "node")
    for line in (
        "CPU 16 CPUs, 16 cores, 1 sockets, 0 NUMA nodes; requested 0",
        "memory 16.0 GiB; requested 0.0 GiB",
        "node_cpu_usage_cores 1.25 cores",
        "cpu.idle yes",
        "proxy acts /node/h.sock: 1 connections",
        "burst burst disabled 0 disabled by configuration",
        "node ok 0.9 s 0 850",
    ):
        assert line in lines
    for pattern in (
        r"koord-qosd \S+, pid \d+, up 0\.0 s, \d+ MiB, \d+ of \d+ files",
        r"pods waiting never 0 0",
    ):
        assert [line for line in lines if re.fullmatch(pattern, line)], pattern


async def test_plan_and_journal(tmp_path: Path) -> None:
    path = "/cpu/kubepods/besteffort/podjob/worker/cpu.cfs_quota_us"
    lines = await lines_of(tmp_path / "plan", "plan")
    assert lines[:4] == [
        "POD VALUE BEFORE AFTER BY WHY FILE",
        f"default/job cpu_quota 150000 200000 hooks batchResource: batch-cpu limit 2000m {path}",
        "",
        "STRATEGY STAGE STATE FILES SAYS",
    ]
    assert "cpuNormalization normalization disabled 0 disabled by configuration" in lines[4:], "those that are not on"
    assert await lines_of(tmp_path, "journal") == [
        "TIME POD VALUE BEFORE AFTER RESULT BY FILE",
        f"1970-01-01 00:16:28.000 default/job cpu_quota none 200000 done hooks {path}",
    ]
    assert (await lines_of(tmp_path, "journal", "-o", "wide"))[1].endswith("limit_milli=2000, period_us=100000")
    assert await lines_of(tmp_path, "journal", "--since", "10m") == ["No entries."]


async def test_metrics(tmp_path: Path) -> None:
    assert await lines_of(tmp_path, "metrics", "pod_") == [
        "METRIC OBJECT VALUE UNIT",
        "pod_cpu_usage_cores default/job 0.5 cores",
        "pod_memory_usage_bytes default/job 3.0Mi bytes",
    ]
    assert await lines_of(tmp_path, "metrics", "node_cpu", "--history") == [
        "METRIC OBJECT VALUE UNIT HISTORY",
        "node_cpu_usage_cores node 1.25 cores ▄█",
    ]
    assert await lines_of(tmp_path, "metrics", "nothing") == ["No samples."]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["pods", "--fields", "cpu_quota,name,uid"],
            ["QUOTA(us) POD UID", "none db db", "150000 job job", "- web web"],
        ),
        (
            ["pods", "--fields", "name,as_desired", "--sort-by", "as_desired"],
            ["POD AS DESIRED", "job no: cpu_quota", "db yes", "web -"],
        ),
        (["pods", "--fields", "name", "--sort-by=-cpu_quota"], ["POD", "job", "db", "web"]),
        (
            ["pods", "-n", "default", "job", "-o", "wide", "--fields", "field,actual", "--sort-by", "-field"],
            [
                "VALUE ACTUAL",
                "memory_limit_in_bytes 4Gi",
                "cpuset_cpus all",
                "cpu_shares 1536",
                "cpu_quota 150000",
            ],
        ),
        (
            ["metrics", "--sort-by", "-value", "--fields", "name,value", "pod_"],
            ["METRIC VALUE", "pod_memory_usage_bytes 3.0Mi", "pod_cpu_usage_cores 0.5"],
        ),
        (["journal", "--fields", "tick,result"], ["TICK RESULT", "1 done"]),
        (
            ["plan", "--fields", "pod,after,inputs"],
            ["POD AFTER INPUTS", "default/job 200000 limit_milli=2000, period_us=100000"],
        ),
        (
            ["node", "--section", "loops", "--fields", "name,age_s", "--sort-by", "-age_s"],
            ["LOOP AGE", "node 0.9 s", "pods never"],
        ),
        (["node", "--section", "contested"], ["contested: none"]),
        (
            ["disable", "all", "--fields", "state,name", "--sort-by", "name"],
            ["STATE STRATEGY", *(f"disabled {name}" for name in sorted(each.name for each in speakers()))],
        ),
    ],
    ids=" ".join,
)
async def test_fields_and_order(tmp_path: Path, arguments: list[str], lines: list[str]) -> None:
    assert (await lines_of(tmp_path, *arguments))[: len(lines)] == lines


@pytest.mark.parametrize(
    ("arguments", "key", "objects"),
    [
        (["pods", "--fields", "name,cpu_quota"], "pods", [
            {"name": "db", "cpu_quota": "-1"}, {"name": "job", "cpu_quota": "150000"}, {"name": "web"},
        ]),
        (["metrics", "pod_", "--fields", "object,value", "--sort-by", "value"], "metrics", [
            {"object": "default/job", "value": 0.5}, {"object": "default/job", "value": 3.0 * (1 << 20)},
        ]),
        (["journal", "--fields", "name,after"], "entries", [{"name": "cpu_quota", "after": "200000"}]),
        (["plan", "--fields", "inputs"], "writes", [
            {"inputs": {"limit_milli": 2000, "period_us": 100_000}},
        ]),
        (["node", "--section", "loops", "--fields", "name"], "loops", [{"name": "node"}, {"name": "pods"}]),
        (["enable", "all", "--fields", "name", "--sort-by", "-stage"], "strategies", [
            {"name": each.name} for each in sorted(speakers(), key=lambda each: each.stage.name.lower(), reverse=True)
        ]),
        (["top", "--once", "--fields", "pod,memory_usage_bytes"], "pods", [
            {"pod": "default/job", "memory_usage_bytes": 3.0 * (1 << 20)},
        ]),
    ],
)  # fmt: skip
async def test_fields_and_order_for_programs(
    tmp_path: Path, arguments: list[str], key: str, objects: list[dict[str, object]]
) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        code, out, err = await koordctl(*arguments, "-o", "json", "--socket", path)
        whole = await koordctl(*arguments[: arguments.index("--fields")], "-o", "json", "--socket", path)
    assert (code, json.loads(out)[key]) == (0, objects), err
    assert json.loads(out).keys() == json.loads(whole[1]).keys()


async def test_top_once_needs_neither_terminal_nor_textual(tmp_path: Path) -> None:
    assert await lines_of(tmp_path, "top", "--once") == [
        "cpu_usage_cores 1.25 ▄█",
        "",
        "POD CPU THROTTLED MEMORY CPU WAIT MEM WAIT CPU HISTORY",
        "default/job 0.5 - 3.0Mi - -",
    ]


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


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
async def test_for_programs(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        _, as_json, _ = await koordctl(*arguments, "--socket", f"unix://{path}", "-o", "json")
        _, as_yaml, _ = await koordctl(*arguments, "-o", "yaml", KOORD_INSPECT_SOCKET=path)
    answers = json.loads(as_json), yaml.safe_load(as_yaml)
    for answer in answers:
        answer.pop("daemon", None)  # its memory and files are of the moment
    assert answers[0] == answers[1] != {}


async def test_no_pods(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        assert (await koordctl("pods", "nobody", "--socket", path))[:2] == (0, "No pods.\n")


# --- the command line itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
async def test_help_documents_the_exit_codes(command: str) -> None:
    code, out, _ = await koordctl(command, "--help")
    assert code == 0
    assert "2  the daemon cannot be reached" in out


async def test_help_names_every_section_of_the_node() -> None:
    _, out, _ = await koordctl("node", "--help")
    assert set(SECTIONS) <= set(re.findall(r"\w+", out))


async def test_what_an_answer_imports(tmp_path: Path) -> None:
    """Neither an event loop nor a gRPC library nor another output's library: 200 ms is all there is."""
    heavy = ("grpc", "asyncio", "yaml", "json", "textual", "msgspec", "qosd")
    probe = (
        "import sys, koordctl.__main__ as m\n"
        "try: m.main()\n"
        f"finally: print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", probe, "explain", "pod", "job", "--socket", path, stdout=-1, stderr=-1
        )
        out, err = await process.communicate()
    assert (b"decided by hooks" in out, err.splitlines()[-1]) == (True, b"[]")


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


POLICIES = [
    (Provenance(Origin.SOURCE, "/r.yaml", 880.0), "policy /r.yaml, 2 min old", False),
    (Provenance(Origin.DEFAULTS, "/r.yaml"), "policy built-in defaults: there never was a /r.yaml", False),
    (
        Provenance(Origin.LAST_GOOD, "/r.yaml", 880.0, "/r.yaml: is not there"),
        "policy last good of /r.yaml, 2 min old; now: /r.yaml: is not there",
        True,
    ),
    (
        Provenance(Origin.UNKNOWN, "/r.yaml", problem="/r.yaml: is not YAML"),
        "policy UNKNOWN, every strategy is frozen: /r.yaml: is not YAML",
        True,
    ),
]


CLUSTER = ClusterStatus(
    "https://10.0.0.1:6443",
    "worker-1",
    is_reachable=False,
    silent_s=180.0,
    parts=(
        ClusterPart("NodeSLO", PartState.FAILING, 180.0, 4, "Connection refused"),
        ClusterPart("NodeMetric", PartState.WAITING),
    ),
)


async def test_the_connection_to_a_cluster(tmp_path: Path) -> None:
    node = full_scene(tmp_path)
    async with inspecting(tmp_path / "alone.sock", node) as path:
        _, out, _ = await koordctl("node", "--socket", path)
        assert "CLUSTER" not in out
        _, out, _ = await koordctl("node", "--section", "cluster", "--socket", path)
        assert out == "cluster: none\n"
    node.cluster = CLUSTER
    async with inspecting(tmp_path / "i.sock", node) as path:
        _, out, _ = await koordctl("node", "--socket", path)
        assert "cluster     https://10.0.0.1:6443 as node worker-1: silent for 180 s\n" in out
        _, out, _ = await koordctl("node", "--section", "cluster", "--socket", path)
        assert [line.split() for line in out.splitlines()] == [
            ["PART", "STATE", "AGE", "FAILURES", "SAYS"],
            ["NodeSLO", "failing", "3", "min", "4", "Connection", "refused"],
            ["NodeMetric", "waiting", "never", "0"],
        ]


def _policy(origin: str, source: str = "", age_s: float | None = None, problem: str = "", layer: str = "") -> Policy:
    return Policy(origin=origin, source=source, age_s=age_s, problem=problem, layer=layer)


NO_FILE = _policy("built-in defaults", "/r.yaml", layer="rules file")
A_FILE = _policy("source", "/r.yaml", 7200, layer="rules file")
SLO, NODE = "NodeSLO generation 12 of the API server", "Node worker-1 of the API server"
ANSWERING = [_policy("source", SLO, 20, layer="NodeSLO"), _policy("source", NODE, 20, layer="Node")]
AWAY = "https://10.0.0.1:6443: Connection refused"
SILENT = [_policy("last good", each.source, 180, AWAY, each.layer) for each in ANSWERING]
NEVER = [_policy("unknown", each.layer, None, AWAY, each.layer) for each in ANSWERING]
NONE_THERE = [_policy("none", "", 20, layer="NodeSLO"), ANSWERING[1]]
SILENT_SLO = f"last good of {SLO}, 3 min old; now: {AWAY}"
BY_DEFAULT = "built-in defaults: there never was a /r.yaml"
LAYERED: list[tuple[str, list[Policy], list[str], int]] = [
    ("source", [A_FILE, *ANSWERING], [f"{NODE}, 20 s old", f"{SLO}, 20 s old", "/r.yaml, 2.0 h old"], 0),
    (
        "last good",
        [NO_FILE, *SILENT],
        [
            f"last good of {NODE}, 3 min old; now: {AWAY}",
            SILENT_SLO,
            BY_DEFAULT,
        ],
        2,
    ),
    (
        "source",
        [A_FILE, *NONE_THERE],
        [f"{NODE}, 20 s old", "no NodeSLO: the API server has none, 20 s old", "/r.yaml, 2.0 h old"],
        0,
    ),
    (
        "source",
        [A_FILE, *NEVER],
        [f"Node never known: {AWAY}", f"NodeSLO never known: {AWAY}", "/r.yaml, 2.0 h old"],
        2,
    ),
    (
        "unknown",
        [NO_FILE, *NEVER],
        [
            "UNKNOWN, every strategy is frozen: why",
            BY_DEFAULT,
        ],
        1,
    ),
    ("unknown", [NO_FILE, SILENT[0], NEVER[1]], ["UNKNOWN, every strategy is frozen: why", SILENT_SLO, BY_DEFAULT], 2),
]


@pytest.mark.parametrize(("origin", "layers", "lines", "doubtful"), LAYERED)
def test_the_layers_of_a_clusters_policy(origin: str, layers: list[Policy], lines: list[str], doubtful: int) -> None:
    """The highest first; ``doubtful``: the first so many are what plan and explain repeat."""
    policy = Policy(origin=origin, problem="why" if origin == "unknown" else "", layers=layers)
    assert node_view.policy_lines(policy) == lines
    assert node_view.doubtful_policy(policy).splitlines() == [f"policy: {line}" for line in lines[:doubtful]]


@pytest.mark.parametrize(("policy", "says", "is_doubtful"), POLICIES)
async def test_where_the_policy_comes_from(tmp_path: Path, policy: Provenance, says: str, is_doubtful: bool) -> None:
    node = full_scene(tmp_path)
    node.rules, node.policy = "", policy
    async with inspecting(tmp_path / "i.sock", node) as path:
        for arguments in (("node",), ("plan",), ("explain", "node"), ("explain", "pod", "job")):
            code, out, _ = await koordctl(*arguments, "--socket", path)
            lines = [" ".join(line.split()).replace("policy: ", "policy ") for line in out.splitlines()]
            assert code == 0
            assert (says in lines) is (is_doubtful or arguments == ("node",))
