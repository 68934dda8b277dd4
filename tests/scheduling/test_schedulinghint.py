"""SchedulingHint: which nodes an annotation leaves, which is taken first, and what is said of one that is no hint."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.plugins.schedulinghint import ANNOTATION, OLD_ANNOTATION, SchedulingHint
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import node, pod

NODES = ("a", "b", "c", "small")


def hinted(hint: Any = None, old: Any = None, cpu: str = "2", **members: Any) -> PodInfo:
    """A pod with these annotations; text is written as it is."""
    said = {ANNOTATION: hint, OLD_ANNOTATION: old}
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in said.items() if value is not None
    }
    return pod("p", {"cpu": cpu}, metadata={"annotations": texts}, **members)


def framework(most_preferred: int = 100) -> Framework:
    """``c`` is the emptiest; ``small`` has no room for the pods here."""
    state = ClusterState()
    for name in NODES:
        state.put_node(node(name, "1" if name == "small" else "8"))
    for index, name in enumerate(("a", "b")):
        state.put_pod(pod(f"x{index}", {"cpu": "4", "memory": "2Gi"}, nodeName=name))
    return Framework(state, [WeightedPlugin(SchedulingHint(most_preferred)), *default_plugins()])


@pytest.mark.parametrize(
    ("waiting", "place"),
    [
        pytest.param(hinted(), "c", id="no hint"),
        pytest.param(hinted({}), "c", id="an empty one"),
        pytest.param(hinted("null"), "c", id="none"),
        pytest.param(hinted(""), "c", id="no text"),
        pytest.param(hinted({"nodeNames": ["a"]}), "a", id="one node"),
        pytest.param(hinted({"nodeNames": ["small", "gone", "b"]}), "b", id="several, of which one will do"),
        pytest.param(hinted({"nodeNames": []}), "c", id="no names are no restriction"),
        pytest.param(hinted({"preferredNodeNames": ["b"]}), "b", id="preferred before better"),
        pytest.param(hinted({"preferredNodeNames": ["gone", "small", "b", "a"]}), "b", id="the first that will do"),
        pytest.param(hinted({"preferredNodeNames": ["gone", "small"]}), "c", id="none of them will do"),
        pytest.param(hinted({"nodeNames": ["a"], "preferredNodeNames": ["b"]}), "a", id="preferred, not allowed"),
        pytest.param(hinted({"nodeNames": ["a", "b"], "preferredNodeNames": ["b", "a"]}), "b", id="both"),
        pytest.param(hinted({"nodeNames": ["a"], "extensions": {"X": {"y": 1}}, "other": 3}), "a", id="extensions"),
        pytest.param(hinted(None, {"preferredNodeNames": ["a"]}), "a", id="the old annotation"),
        pytest.param(hinted({"preferredNodeNames": ["b"]}, {"nodeNames": ["a"]}), "b", id="the new one counts"),
        pytest.param(hinted("", {"nodeNames": ["a"]}), "a", id="an empty new one does not"),
    ],
)
def test_where_a_pod_goes(waiting: PodInfo, place: str) -> None:
    placement = framework().place(waiting)
    assert placement is not None
    assert placement.node == place


def test_only_so_many_preferred_nodes_are_tried() -> None:
    waiting = hinted({"preferredNodeNames": ["gone", "b"]})
    for most, place in ((1, "c"), (2, "b")):
        placement = framework(most).place(waiting)
        assert placement is not None
        assert placement.node == place


@pytest.mark.parametrize(
    ("waiting", "message"),
    [
        (hinted({"nodeNames": ["gone"]}),
         "0/4 nodes are available: 4 node(s) didn't satisfy plugin(s) [SchedulingHint]."),
        (hinted({"nodeNames": ["small"]}),
         "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't satisfy plugin(s) [SchedulingHint]."),
        (hinted("{"), f"0/4 nodes are available: annotation {ANNOTATION} cannot be read: '{{' is not JSON: Input data "
         "was truncated."),
        (hinted(None, {"nodeNames": "a"}),
         f"0/4 nodes are available: annotation {OLD_ANNOTATION} cannot be read: nodeNames: 'a' is not a list."),
        (hinted({"preferredNodeNames": [1]}),
         f"0/4 nodes are available: annotation {ANNOTATION} cannot be read: preferredNodeNames[0]: 1 is not a string."),
        (hinted([]), f"0/4 nodes are available: annotation {ANNOTATION} cannot be read: a list is not an object."),
    ],
)  # fmt: skip
def test_why_there_is_no_node(waiting: PodInfo, message: str) -> None:
    decided = framework()
    assert decided.place(waiting) is None
    assert decided.diagnose(waiting).message == message


def test_pods_of_other_hints_are_not_alike() -> None:
    """They share no evaluation, and no place in the queue."""
    decided = framework()
    for name in ("a", "b", "a"):
        placement = decided.place(hinted({"nodeNames": [name]}))
        assert placement is not None
        assert placement.node == name
    assert hinted({"nodeNames": ["a"]}).signature != hinted({"nodeNames": ["b"]}).signature


names = st.lists(st.sampled_from((*NODES, "gone")), max_size=5)
hints = st.fixed_dictionaries({}, optional={"nodeNames": names, "preferredNodeNames": names}) | st.sampled_from(
    ("", "null", "{", "[]", '{"nodeNames": {}}', '{"preferredNodeNames": [null]}')
)


@settings(max_examples=200, deadline=None)
@given(hints, hints, st.integers(1, 4))
def test_filter_and_explanation_agree_with_the_place(hint: Any, old: Any, most: int) -> None:
    decided, waiting = framework(most), hinted(hint, old)
    state, plugin = decided.state, SchedulingHint(most)
    passed = plugin.filter(state, waiting)
    for row in np.flatnonzero(state.table.exists):
        said = plugin.explain(state, waiting, int(row), state.table.exists)
        assert bool(said.reasons) == (passed is not None and not passed[row])
        assert (decided.explain(waiting, state.table.name(int(row))).total is None) == (
            not decided.feasible(waiting)[row]
        )
    feasible = [state.table.name(int(row)) for row in np.flatnonzero(decided.feasible(waiting))]
    placement = decided.place(waiting)
    assert (placement is not None) == bool(feasible)
    tried = [name for name in plugin.preferred_nodes(state, waiting) if name in feasible]
    if placement is not None:
        assert placement.node == tried[0] if tried else placement.node in feasible
