"""NodeSLOs as the manager keeps them: the spec, once for all nodes that have the same."""

from __future__ import annotations

import pytest

from koord.kube.kind import Unstructured
from koord.model.core import ObjectMeta
from koord_manager.cache.nodeslos import SpecSharing


def stored(name: str, **content: object) -> Unstructured:
    metadata = {"name": name, "managedFields": [{"manager": "somebody"}]}
    return Unstructured(ObjectMeta(name=name), {"metadata": metadata, **content})


def test_nodes_of_one_policy_share_its_spec() -> None:
    share = SpecSharing()
    one, other = (share(stored(name, spec={"cpuBurstStrategy": {"policy": "auto"}})) for name in ("n1", "n2"))
    assert one.content == {"spec": {"cpuBurstStrategy": {"policy": "auto"}}}
    assert one.content["spec"] is other.content["spec"]
    assert [each.metadata.name for each in (one, other)] == ["n1", "n2"]


@pytest.mark.parametrize("content", [{}, {"spec": None}, {"spec": "text"}], ids=str)
def test_a_spec_that_is_none_stays_what_it_is(content: dict[str, object]) -> None:
    assert SpecSharing()(stored("n1", **content)).content == content
