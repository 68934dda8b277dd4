"""What koord-qosd's unit has to allow on a node, from that node's files alone, and the drop-in that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koord.host.notes import Dropped, Entry, kind_of
from koordctl.node import grants
from koordctl.node.files import NodeFiles
from tests.koordctl.doctor.goodnode import record

RULES = "/etc/koord/qosd-rules.yaml"
UNIT = "/etc/systemd/system/koord-qosd.service"
OWN = f"{UNIT}.d/60-own.conf"
MIN_FREE, SCALE = "/proc/sys/vm/min_free_kbytes", "/proc/sys/vm/watermark_scale_factor"
KERNEL = {MIN_FREE: "67584\n", SCALE: "10\n"}
ON = "node: {features: {SystemConfig: true}}\n"
OFF = "node: {features: {SystemConfig: false}}\n"
PRESSURE = "node: {cpuSuppress: {policy: pressure}}\n"
SUPPRESSED = "{resourceUsedThresholdWithBE: {enable: true}}"
BY_PRESSURE = f"{SUPPRESSED[:-1]}, extensions: {{koord: {{cpuSuppress: {{policy: pressure}}}}}}}}"
KEPT_SLO = "/var/lib/koord/nodeslo.yaml"
SUPPRESSING = '# koord policy {"version": 1}\n{"generation":12,"spec":{"resourceUsedThresholdWithBE":{"enable":true}}}'
SYSTEM_CONFIG = {"SystemConfig": (MIN_FREE, SCALE)}


def unit(flags: str) -> str:
    return f"[Service]\nExecStart=/usr/bin/koord-qosd {flags}\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {}),
        ({RULES: ON}, SYSTEM_CONFIG),
        ({RULES: OFF}, {}),
        ({UNIT: unit("--feature-gates=SystemConfig=true")}, SYSTEM_CONFIG),
        ({UNIT: unit("'--feature-gates' 'SystemConfig=true,CPUBurst=false'"), RULES: "spec: {}\n"}, SYSTEM_CONFIG),
        ({UNIT: unit("--feature-gates=SystemConfig=true"), RULES: OFF}, {}),
        ({UNIT: unit("--feature-gates=SystemConfig=true"), OWN: "[Service]\nExecStart=\nExecStart=/x\n"}, {}),
        ({UNIT: unit(""), OWN: unit("--feature-gates SystemConfig=true")}, SYSTEM_CONFIG),
        ({UNIT: unit("--config /etc/q.yaml"), "/etc/q.yaml": "feature-gates: SystemConfig=true\n"}, SYSTEM_CONFIG),
        ({UNIT: unit("--rules-file=/etc/other.yaml"), "/etc/other.yaml": ON, RULES: OFF}, SYSTEM_CONFIG),
        # Where the rules say nothing, the last good policy is in force.
        ({"/var/lib/koord/policy.yaml": f"# koord policy {{}}\n{ON}"}, SYSTEM_CONFIG),
        ({"/var/lib/koord/policy.yaml": ON, RULES: "node: [\n"}, SYSTEM_CONFIG),
        ({"/var/lib/koord/policy.yaml": ON, RULES: "spec: {}\n"}, {}),
        # What koord-qosd refuses, or does not count, is on nowhere.
        ({UNIT: unit("--feature-gates=SystemConfig")}, {}),
        ({RULES: "node: {features: {SystemConfig: maybe, Warp: true}}\n"}, {}),
        ({RULES: "node: {features: on}\nspec: []\n"}, {}),
        ({UNIT: unit("--feature-gates='SystemConfig=true")}, {}),
        (
            {
                RULES: PRESSURE
                + "spec: {resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 900}}\n"
            },
            {"BECPUSuppress": ()},
        ),
        ({RULES: f"spec: {SUPPRESSED}\n"}, {}),
        ({RULES: f"spec: {BY_PRESSURE}\n"}, {"BECPUSuppress": ()}),
        ({RULES: f"node: {{cpuSuppress: {{policy: slo}}}}\nspec: {BY_PRESSURE}\n"}, {}),
        # With a cluster its NodeSLO is over the file.
        ({KEPT_SLO: SUPPRESSING, RULES: PRESSURE}, {}),
        ({KEPT_SLO: SUPPRESSING, RULES: PRESSURE, UNIT: unit("--kubeconfig=/k")}, {"BECPUSuppress": ()}),
        (
            {KEPT_SLO: SUPPRESSING, RULES: PRESSURE, UNIT: unit("--config=/q"), "/q": "kubeconfig: /k\n"},
            {"BECPUSuppress": ()},
        ),
        ({KEPT_SLO: SUPPRESSING, RULES: PRESSURE, UNIT: unit("--kubeconfig=")}, {}),
        (
            {
                KEPT_SLO: SUPPRESSING.replace("true", "false"),
                RULES: f"{PRESSURE}spec: {SUPPRESSED}\n",
                UNIT: unit("--kubeconfig=/k"),
            },
            {},
        ),
        (
            {KEPT_SLO: "[", RULES: f"{PRESSURE}spec: {SUPPRESSED}\n", UNIT: unit("--kubeconfig=/k")},
            {"BECPUSuppress": ()},
        ),
    ],
)
def test_what_is_wanted(tmp_path: Path, files: dict[str, str], expected: dict[str, tuple[str, ...]]) -> None:
    record(tmp_path, {**KERNEL, **files})
    assert grants.wanted(NodeFiles(tmp_path)) == expected


def test_only_files_that_this_kernel_has(tmp_path: Path) -> None:
    record(tmp_path, {RULES: ON, SCALE: "10\n"})
    assert grants.wanted(NodeFiles(tmp_path)) == {"SystemConfig": (SCALE,)}


def noted(*events: Entry | Dropped) -> str:
    lines = [{"format": 2, "boot_id": "x"}]
    lines += [
        {"type": "file", "group": each.cgroup, "name": each.name, "path": each.path, "inode": 0, "base": 1, "ours": [2]}
        if isinstance(each, Entry)
        else {"type": "dropped", "kind": each.kind, "key": each.key}
        for each in events
    ]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), {}),
        ((Entry("", "vm.min_free_kbytes", MIN_FREE, 0, 1, (2,)),), SYSTEM_CONFIG),
        (
            (
                Entry("", "vm.min_free_kbytes", MIN_FREE, 0, 1, (2,)),
                Dropped(kind_of(Entry), ("", "vm.min_free_kbytes")),
            ),
            {},
        ),
        ((Entry("/kubepods", "cpu_quota", "/x", 0, 1, (2,)),), {}),
    ],
)
def test_what_is_still_to_be_put_back_stays_writable(
    tmp_path: Path, events: tuple[Entry | Dropped, ...], expected: dict[str, tuple[str, ...]]
) -> None:
    """The feature is off, and nobody has given the values back yet."""
    record(tmp_path, {**KERNEL, RULES: OFF, "/run/koord/undo.jsonl": noted(*events)})
    assert grants.wanted(NodeFiles(tmp_path)) == expected


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({}, ""),
        ({"GroupIdentity": ()}, ""),
        (
            {"SystemConfig": (MIN_FREE, SCALE), "GroupIdentity": (), "OOMScoreAdj": ()},
            "# Written by koordctl install: what the features that are on need. After a change of the rules, run it"
            " again.\n"
            "[Service]\n"
            "# SystemConfig: write the kernel's own settings\n"
            f"ReadWritePaths=-{MIN_FREE} -{SCALE}\n"
            "# OOMScoreAdj: write oom_score_adj of processes of any user, and lower it\n"
            "CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_SYS_RESOURCE\n",
        ),
    ],
)
def test_the_drop_in(wanted: grants.Paths, text: str) -> None:
    assert grants.drop_in(wanted) == text
