"""koordctl says where the node's policy comes from, layer by layer, and repeats what is doubtful of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from koord.pb.koord.inspect_pb2 import Policy
from koordctl.views import node as node_view
from qosd.policy.provenance import Origin, Provenance
from tests.koordctl.commands.fullnode import full_scene
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import inspecting

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
    node.rules_file, node.policy = "", policy
    async with inspecting(tmp_path / "i.sock", node) as path:
        for arguments in (("node",), ("plan",), ("explain", "node"), ("explain", "pod", "job")):
            code, out, _ = await koordctl(*arguments, "--socket", path)
            lines = [" ".join(line.split()).replace("policy: ", "policy ") for line in out.splitlines()]
            assert code == 0
            assert (says in lines) is (is_doubtful or arguments == ("node",))
