"""What kubelet requested comes back to it: records of creations and updates, and statuses with kubelet's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.pb.cri import api_pb2 as cri
from runtimeproxy.cri.requested import (
    RECORD,
    REPORTED,
    STATUSES,
    NoRoom,
    Pairs,
    Record,
    after_update,
    format_record,
    parse_record,
    restored,
    with_record,
)
from runtimeproxy.cri.updaterecords import UpdateRecords
from runtimeproxy.hooks.edits import ANNOTATIONS, Edits, Slot
from runtimeproxy.wire.protowire import MalformedMessage

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
PAIRS = st.lists(st.tuples(INT64, INT64), max_size=2).map(tuple)
RECORDS = st.dictionaries(st.sampled_from(sorted(REPORTED)), PAIRS, max_size=4)
NO_UPDATES = UpdateRecords("").read


def edits(**values: int) -> Edits:
    return {Slot(field): value for field, value in values.items()}


def status(record: str | None = None, id_: str = "c1", **resources: Any) -> cri.ContainerStatus:
    """As the runtime states a container; ``record``: what its annotation says."""
    found = cri.ContainerStatus(id=id_, log_path="/var/log/x", image_ref="sha256:1")
    found.annotations["io.kubernetes.container.hash"] = "f00"
    found.labels["app"] = "x"
    if record is not None:
        found.annotations[RECORD] = record
    found.resources.linux.MergeFrom(cri.LinuxContainerResources(oom_score_adj=1000, cpuset_cpus="0-3", **resources))
    return found


def told(message: bytes) -> cri.ContainerStatus:
    """What kubelet makes of the answer."""
    return cri.ContainerStatusResponse.FromString(message).status


def answer(found: cri.ContainerStatus) -> bytes:
    return cri.ContainerStatusResponse(status=found, info={"info": "{}"}).SerializeToString()


def without_unknown(found: cri.ContainerStatus) -> cri.ContainerStatus:
    found.DiscardUnknownFields()
    return found


@pytest.mark.parametrize(
    ("edited", "before", "record"),
    [
        ({}, {}, None),
        ({"oom_score_adj": 5}, {}, None),
        ({"cpu_shares": 512}, {"cpu_shares": 2}, "cpu_shares:512=2"),
        ({"cpu_quota": 50_000}, {}, "cpu_quota:50000=0"),
        ({"cpu_quota": -1}, {"cpu_quota": 200_000}, "cpu_quota:-1=200000"),
        ({"memory_limit_in_bytes": 1 << 27}, {}, "memory_limit_in_bytes:134217728=0"),
        ({"cpu_shares": 2}, {"cpu_shares": 2}, None),
    ],
)
def test_what_is_recorded_of_a_creation(edited: dict[str, int], before: dict[str, int], record: str | None) -> None:
    made = with_record(edits(**edited), edits(**before))
    assert made.get(Slot(ANNOTATIONS, RECORD)) == record


@given(RECORDS)
def test_a_record_reads_as_it_was_written(record: dict[str, Pairs]) -> None:
    assert parse_record(format_record(record)) == record


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("", {}),
        ("nonsense", {}),
        ("cpu_quota", {}),
        ("cpu_quota:", {"cpu_quota": ()}),
        ("cpu_quota:1", {"cpu_quota": ()}),
        ("cpu_quota:x=1,2=3", {"cpu_quota": ((2, 3),)}),
        ("cpu_quota:1=2;pids:3=4;cpu_shares:5=6", {"cpu_quota": ((1, 2),), "cpu_shares": ((5, 6),)}),
        (f"cpu_quota:{1 << 63}=1", {"cpu_quota": ()}),
        ("cpu_quota:1=2,3=4,5=6", {"cpu_quota": ((1, 2), (3, 4))}),
    ],
)
def test_what_is_no_record_is_left_out(text: str, record: Record) -> None:
    assert parse_record(text) == record


@given(st.text())
def test_any_annotation_is_read(text: str) -> None:
    assert parse_record(text).keys() <= REPORTED.keys()


BATCH = "cpu_quota:50000=0;cpu_shares:512=2;memory_limit_in_bytes:67108864=0"


@pytest.mark.parametrize(
    ("record", "stated", "kubelet"),
    [
        pytest.param(
            BATCH,
            {"cpu_period": 100_000, "cpu_quota": 50_000, "cpu_shares": 512, "memory_limit_in_bytes": 1 << 26},
            {"cpu_period": 100_000, "cpu_quota": 0, "cpu_shares": 2, "memory_limit_in_bytes": 0},
            id="batch",
        ),
        pytest.param("cpu_quota:-1=200000", {"cpu_quota": -1}, {"cpu_quota": 200_000}, id="LSR"),
        pytest.param("cpu_quota:7=-1", {"cpu_quota": 7}, {"cpu_quota": -1}, id="longer than what is stated"),
        pytest.param("cpu_quota:0=1", {"cpu_quota": 0}, {"cpu_quota": 1}, id="a stated zero"),
        pytest.param("cpu_shares:0=1", {}, {"cpu_shares": 1}, id="nothing stated"),
        pytest.param(BATCH, {"cpu_quota": 49_999, "cpu_shares": 512}, {"cpu_quota": 49_999, "cpu_shares": 2},
                     id="somebody else's quota"),
        pytest.param("", {"cpu_quota": 5}, {"cpu_quota": 5}, id="an empty record"),
        pytest.param("?" * 500, {"cpu_quota": 5}, {"cpu_quota": 5}, id="a long one"),
    ],
)  # fmt: skip
def test_kubelet_is_told_what_it_requested(record: str, stated: dict[str, Any], kubelet: dict[str, Any]) -> None:
    before = answer(status(record, **stated))
    after = restored(before, STATUSES["ContainerStatus"], NO_UPDATES)
    wanted = status(**kubelet)
    assert len(after) == len(before)
    assert without_unknown(told(after)) == wanted


def test_a_container_that_was_not_edited_passes_as_the_very_object() -> None:
    message = answer(status(cpu_quota=50_000))
    assert restored(message, STATUSES["ContainerStatus"], NO_UPDATES) is message


@given(RECORDS, st.dictionaries(st.sampled_from(sorted(REPORTED)), INT64), st.integers(0, 5))
def test_nothing_but_the_reported_values_and_the_record_changes(
    record: dict[str, Pairs], stated: dict[str, Any], picked: int
) -> None:
    for field, pairs in record.items():
        if pairs and picked:
            stated[field] = pairs[min(picked, len(pairs)) - 1][0]
    original = status(format_record(record), **stated)
    before = answer(original)
    after = restored(before, STATUSES["ContainerStatus"], NO_UPDATES)
    assert len(after) == len(before)
    found = without_unknown(told(after))
    for field in REPORTED:
        replaced = dict(reversed(record.get(field, ())))
        value = getattr(original.resources.linux, field)
        assert getattr(found.resources.linux, field) == replaced.get(value, value)
        found.resources.linux.ClearField(field)
        original.resources.linux.ClearField(field)
    del original.annotations[RECORD]
    assert found == original


@pytest.mark.parametrize(
    ("method", "response"),
    [
        ("ContainerStatus", cri.ContainerStatusResponse(status=status(BATCH, cpu_quota=50_000))),
        (
            "PodSandboxStatus",
            cri.PodSandboxStatusResponse(
                containers_statuses=[status(id_="a"), status(BATCH, id_="b", cpu_quota=50_000)], timestamp=7
            ),
        ),
        (
            "GetContainerEvents",
            cri.ContainerEventResponse(
                container_id="b", containers_statuses=[status(BATCH, id_="b", cpu_quota=50_000), status(id_="a")]
            ),
        ),
    ],
)
def test_every_answer_that_tells_of_containers_is_restored(method: str, response: object) -> None:
    assert isinstance(response, cri.ContainerStatusResponse | cri.PodSandboxStatusResponse | cri.ContainerEventResponse)
    message = response.SerializeToString()
    found = type(response).FromString(restored(message, STATUSES[method], NO_UPDATES))
    statuses = [found.status] if isinstance(found, cri.ContainerStatusResponse) else list(found.containers_statuses)
    assert [one.resources.linux.cpu_quota for one in statuses] == [0] * len(statuses)
    assert not any(RECORD in one.annotations for one in statuses)


def test_an_update_of_a_container_without_a_record_leaves_no_room() -> None:
    updates = UpdateRecords("")
    updates.add("c1", {"cpu_quota": ((50_000, 1),)})
    with pytest.raises(NoRoom):
        restored(answer(status(cpu_quota=50_000)), STATUSES["ContainerStatus"], updates.read)
    message = answer(status(cpu_quota=60_000))
    assert restored(message, STATUSES["ContainerStatus"], updates.read) is message


@pytest.mark.parametrize("message", [b"\x0a\xff", b"\x0a\x05\x6a\xff\xff\xff\x0f", b"\x07"])
def test_what_is_no_message_is_said(message: bytes) -> None:
    with pytest.raises(MalformedMessage):
        restored(message, (1,), NO_UPDATES)


KNOWN: Mapping[str, Pairs] = {"cpu_quota": ((-1, 200_000),), "cpu_shares": ((512, 2),)}


@pytest.mark.parametrize(
    ("held", "asked", "edited", "changed"),
    [
        pytest.param({}, {}, {}, {}, id="nothing of these: a CPU set"),
        pytest.param(
            {"cpu_quota": -1}, {"cpu_quota": 300_000}, {"cpu_quota": -1}, {"cpu_quota": ((-1, 300_000),)},
            id="a resize that is edited as the creation was",
        ),
        pytest.param(
            {"cpu_quota": -1}, {"cpu_quota": 300_000}, {}, {"cpu_quota": ((-1, 200_000),)},
            id="one that is not edited any more: only a failure brings back the old value",
        ),
        pytest.param(
            {"cpu_shares": 512}, {}, {"cpu_shares": 1024}, {"cpu_shares": ((1024, 2), (512, 2))},
            id="hooks alone change a value",
        ),
        pytest.param(
            {"memory_limit_in_bytes": 5}, {}, {"memory_limit_in_bytes": 9}, {"memory_limit_in_bytes": ((9, 5),)},
            id="and one that was kubelet's until then",
        ),
        pytest.param(
            {"memory_limit_in_bytes": 5}, {"memory_limit_in_bytes": 7}, {}, {"memory_limit_in_bytes": ()},
            id="a plain resize",
        ),
        pytest.param(
            {"cpu_quota": -1}, {"cpu_quota": -1}, {"cpu_quota": 4000}, {"cpu_quota": ((4000, -1), (-1, 200_000))},
            id="a quota that kubelet lifts",
        ),
    ],
)  # fmt: skip
def test_what_an_update_changes_of_the_record(
    held: dict[str, int], asked: dict[str, int], edited: dict[str, int], changed: dict[str, Pairs]
) -> None:
    assert after_update(KNOWN, edits(**held), edits(**asked), edits(**edited)) == changed


def test_what_an_update_says_of_a_field_precedes_the_annotation(tmp_path: object) -> None:
    updates = UpdateRecords(str(tmp_path))
    updates.add("c1", {"cpu_quota": ((-1, 300_000),)})
    message = answer(status("cpu_quota:-1=200000;cpu_shares:512=2", cpu_quota=-1, cpu_shares=512))
    for reader in (updates, UpdateRecords(str(tmp_path))):  # as a proxy that was started anew
        found = told(restored(message, STATUSES["ContainerStatus"], reader.read)).resources.linux
        assert (found.cpu_quota, found.cpu_shares) == (300_000, 2)
