"""The list of a sandbox's edited annotations: what is written is what is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimeproxy.cri.record import RECORD, take_record, with_record
from runtimeproxy.hooks.edits import ANNOTATIONS, CGROUP_PARENT, LABELS, Edits, Slot

KEYS = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=8).map("k/".__add__)
OTHERS = [Slot(CGROUP_PARENT), Slot(LABELS, "k/a"), Slot("cpu_shares")]


@given(
    st.dictionaries(KEYS, st.text(max_size=3)),
    st.dictionaries(KEYS, st.none() | st.text(max_size=3)),
    st.sets(st.sampled_from(OTHERS)),
)
def test_what_was_edited_is_found_again(
    before: dict[str, str], changed: dict[str, str | None], others: set[Slot]
) -> None:
    edits: Edits = {Slot(ANNOTATIONS, key): value for key, value in changed.items()}
    written = with_record({**edits, **dict.fromkeys(others, "x")})
    after = before | {
        slot.key: str(value) for slot, value in written.items() if slot.field == ANNOTATIONS and value is not None
    }
    for key in [key for key, value in changed.items() if value is None]:
        after.pop(key, None)
    assert take_record(after) == edits
    assert RECORD not in after


def test_without_edited_annotations_there_is_no_record() -> None:
    edits: Edits = dict.fromkeys(OTHERS, "x")
    assert with_record(edits) is edits
    assert with_record({}) == {}


@pytest.mark.parametrize(
    ("record", "keys"),
    [
        ("", []),
        ("not JSON", []),
        ("[" * 10_000, []),
        ("7", []),
        ('{"a": 1}', []),
        ('["a", 7, null, ["b"], "c"]', ["a", "c"]),
        (json.dumps(["io.kubernetes.container.hash", "a\n", "\ud800", "b"]), ["b"]),
    ],
)
def test_a_record_that_somebody_else_wrote_harms_nothing(record: str, keys: list[str]) -> None:
    annotations = {RECORD: record, "a": "1"}
    assert take_record(annotations) == {Slot(ANNOTATIONS, key): {"a": "1"}.get(key) for key in keys}
    assert annotations == {"a": "1"}
