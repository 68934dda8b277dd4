"""Every field of CRI that a hook may edit, at every border: what is read, what is answered, noted and put back.

The borders are the hook protocol, NRI and the specification that a runtime keeps; in each a request of the same value
is made in the border's own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from koord.host.cgroup import Tree
from koord.host.files import ROWS, Target
from koord.host.originals import ContainerKey, Original, Originals, Pending
from koord.host.weights import Weights
from koord.host.writer import Writer
from koord.model.cfs import MAX_SHARES, MIN_SHARES
from koord.model.crifields import CPUSETS, NUMBERS, SCALARS, Field
from koord.model.lattice import Value
from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from koord.pb.nri import api_pb2 as nri
from koordctl import runtimespecs
from qosd.hooks.edits import Edit, Edits
from qosd.hooks.originals import of_creation, of_update
from qosd.hookserver import translate as by_hooks
from qosd.nri import translate as by_nri
from qosd.nri.translate import SpecResources
from qosd.pods.cri import detail_of_container, detail_of_sandbox
from runtimeproxy.cri.rebuild import oci_resources

KEY = ContainerKey("uid", "main", 0)
NUMBER = st.integers(MIN_SHARES, MAX_SHARES)  # what a file of any number can hold
CPUSET = st.sampled_from(["0", "1", "0-3", "2,4-5"])


def values(field: Field) -> st.SearchStrategy[Any]:
    return CPUSET if field.is_cpuset else NUMBER


FIELD_REQUESTED_EDITED = st.sampled_from(SCALARS).flatmap(
    lambda field: st.tuples(st.just(field), values(field), values(field))
)


def spec(field: Field, value: Value) -> dict[str, Any]:
    """The resources of an OCI specification that says only this."""
    cgroup, name = field.path
    return {cgroup: {name: value}}


def nri_resources(field: Field, value: Value) -> nri.LinuxResources:
    return ParseDict(spec(field, value if field.is_cpuset else {"value": value}), nri.LinuxResources())  # type: ignore[arg-type]


def hook_resources(field: Field, value: Value) -> hooks.LinuxContainerResources:
    return ParseDict({field.value: value}, hooks.LinuxContainerResources())


def container(resources: nri.LinuxResources, cgroup: str = "") -> nri.Container:
    return nri.Container(linux={"resources": resources, "cgroups_path": cgroup})


def edits(field: Field, value: Value) -> Edits:
    return Edits((Edit(field, value, "a toy wants it"),))


def unknown(target: Target) -> str:
    return ""


def set_fields(message: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for field, value in message.ListFields():
        if field.message_type is None:
            yield (*path, field.name), value
        else:
            yield from set_fields(value, (*path, field.name))


def restored(
    field: Field, original: Original, of_spec: dict[str, Any] | None, root: Path
) -> cri.LinuxContainerResources:
    listed = runtimespecs.RuntimeContainer("id", "name", "/kubepods/pod/c", of_spec)
    originals = Originals(KEY, {field.value: original})
    return runtimespecs.as_requested(originals, listed, Writer(Tree(2, root, {}))) or cri.LinuxContainerResources()


@given(FIELD_REQUESTED_EDITED)
def test_all_borders_read_the_same(values: tuple[Field, Value, Value]) -> None:
    field, value, _ = values
    said = {each: value if each is field else each.kind() for each in SCALARS}
    through_proxy = hooks.LinuxContainerResources()
    oci_resources({"linux": {"resources": spec(field, value)}}, through_proxy)
    assert by_hooks.requested(hook_resources(field, value)).values == said
    assert by_nri.requested(nri_resources(field, value)).values == said
    assert through_proxy == hook_resources(field, value)


@given(FIELD_REQUESTED_EDITED.filter(lambda values: values[0] in NUMBERS))
def test_all_borders_have_hooks_compute_with_the_same(values: tuple[Field, Value, Value]) -> None:
    field, value, _ = values
    info = {
        "runtimeSpec": {"linux": {"resources": spec(field, value)}},
        "config": {"linux": {"resources": {field.value: value}}},
    }
    of_spec = SpecResources.of(container(nri_resources(field, value)))
    shown = [
        by_hooks.resources_of(hook_resources(field, value)),
        by_nri.create_request(nri.PodSandbox(), nri.Container(), of_spec).requested,
        detail_of_container(info).requested,
        detail_of_sandbox(info).pod_requested,
    ]
    assert shown == [shown[0]] * 4


@given(FIELD_REQUESTED_EDITED)
def test_all_borders_answer_the_same(values: tuple[Field, Value, Value]) -> None:
    field, value, wish = values
    wishes = edits(field, wish)
    message = hook_resources(field, value)
    request = hooks.ContainerResourceHookRequest(container_resources=message)
    assert by_hooks.sparse_container(wishes).container_resources == hook_resources(field, wish)
    assert by_hooks.echo_container(request, wishes).container_resources == hook_resources(field, wish)
    assert by_hooks.requested(message).edited(wishes) == by_hooks.requested(hook_resources(field, wish))

    changed = by_nri.resources(wishes, SpecResources.of(container(nri_resources(field, value))), unknown)
    assert changed == (None if field.same(value, wish) else nri_resources(field, wish))


@given(FIELD_REQUESTED_EDITED, st.sampled_from([1, 2]))
def test_all_borders_have_the_same_noted_and_put_back(values: tuple[Field, Value, Value], version: int) -> None:
    field, value, wish = values
    request, wanted = by_hooks.requested(hook_resources(field, value)), by_nri.requested(nri_resources(field, value))
    through_hooks = of_creation(request, request.edited(edits(field, wish)), version, Weights.LINEAR)
    through_nri = of_creation(
        wanted, wanted.updated(by_nri.requested(nri_resources(field, wish))), version, Weights.LINEAR
    )
    has_file = ROWS[field].file_name(version, for_write=True) is not None
    noted = {field.value: Original(value, wish, Pending.CREATED)} if has_file and value != wish else {}
    assert through_nri == noted
    assert {name: original for name, original in through_hooks.items() if name in SCALARS} == noted
    for original in noted.values():
        put_back = [restored(field, original, of_spec, Path("/nowhere")) for of_spec in (None, spec(field, wish))]
        assert [list(set_fields(message)) for message in put_back] == [[((field.value,), value)]] * 2
        assert not list(set_fields(restored(field, original, spec(field, value), Path("/nowhere"))))


@pytest.mark.parametrize("field", CPUSETS)
def test_a_set_that_is_left_open_is_said_by_name_where_it_must_be(field: Field, tmp_path: Path) -> None:
    """To NRI and CRI "" says nothing; an update empties no set."""
    pods = tmp_path / "kubepods/pod"
    pods.mkdir(parents=True)
    (pods / str(ROWS[field].file_name(2))).write_text("0-7\n")
    of_spec = SpecResources.of(container(nri_resources(field, "1"), "/kubepods/pod/c"))
    asked: list[Target] = []

    def parents(target: Target) -> str:
        asked.append(target)
        return "0-7"

    assert by_nri.resources(edits(field, ""), of_spec, parents) == nri_resources(field, "0-7")
    assert asked == [Target("/kubepods/pod", field.value)]
    known, emptied = {field.value: Original("2-3", "0")}, of_spec.request.edited(edits(field, ""))
    after = of_update(known, of_spec.request, emptied, 2, Weights.LINEAR)
    assert after == {field.value: Original("1", "0", Pending.UPDATED)}
    assert list(set_fields(restored(field, Original("", "1"), spec(field, "1"), tmp_path))) == [((field.value,), "0-7")]
