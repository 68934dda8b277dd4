"""CPU lists: the kernel's syntax, bounded, and set algebra that agrees with Python's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import cpuset
from koord.model.cpuset import EMPTY, CPUSet, CPUSetError

members = st.frozensets(st.integers(0, 300) | st.integers(0, cpuset.MAX_CPU), max_size=60)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "neither"), ("1-", "neither"), ("-1", "neither"), ("1--2", "neither"), ("1,,2", "neither"),
        (",1", "neither"), ("1 2", "neither"), ("0x1", "neither"), ("٣", "neither"), ("1.5", "neither"),
        ("3-1", "backwards"), ("65536", "beyond"), ("0-65536", "beyond"), ("0-99999999", "beyond"),
        ("9999999999", "neither"), ("all", "neither"), ("0-N", "neither"), ("0-7:0/2", "must use"),
        ("0-7:3/2", "must use"), ("0-7:1/0", "must use"), ("0-7:1", "neither"), ("5:1/2", "neither"),
        ("0," * 200000, "longer"),
    ],
)  # fmt: skip
def test_refuses(text: str, why: str) -> None:
    with pytest.raises(CPUSetError, match=why) as caught:
        cpuset.parse(text)
    assert repr(text)[:30] in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("cpu", [-1, 65536])
def test_refuses_members_out_of_range(cpu: int) -> None:
    with pytest.raises(CPUSetError):
        CPUSet.of([cpu])
    assert cpu not in CPUSet.of([0])


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""), ("\n", ""), ("0", "0"), ("0-3,8", "0-3,8"), ("8,3,2,1,0", "0-3,8"), ("1,2", "1-2"), ("0-0", "0"),
        ("0-3,2-5", "0-5"), (" 0 , 2 \n", "0,2"), ("007", "7"), ("65535", "65535"), ("0-31:2/4", _s := "0-1,4-5,8-9,"
        "12-13,16-17,20-21,24-25,28-29"), ("0-6:2/4", "0-1,4-5"), ("1-4:5/8", "1-4"), ("0-9:1/3", "0,3,6,9"),
        ("2-11:4/4", "2-11"), ("4-7,32-35,8-13", "4-13,32-35"), (_s, _s),
    ],
)  # fmt: skip
def test_canonical_text(text: str, canonical: str) -> None:
    assert cpuset.render(cpuset.parse(text)) == canonical


def test_hostile_text_is_cheap() -> None:
    assert len(cpuset.parse(",".join(["0-65535:1/2"] * 20000))) == 32768


@given(members)
def test_text_round_trip(cpus: frozenset[int]) -> None:
    made = CPUSet.of(cpus)
    assert cpuset.parse(str(made)) == made
    assert list(made) == sorted(cpus)
    assert len(made) == len(cpus)
    assert bool(made) is bool(cpus)


@given(members, members)
def test_algebra_is_that_of_sets(left: frozenset[int], right: frozenset[int]) -> None:
    ours, theirs = CPUSet.of(left), CPUSet.of(right)
    assert set(ours | theirs) == left | right
    assert set(ours & theirs) == left & right
    assert set(ours - theirs) == left - right
    assert (ours <= theirs) is (left <= right)
    assert (ours == theirs) is (left == right)
    assert (ours - theirs) & theirs == EMPTY
    assert all(cpu in ours for cpu in left)


@given(st.integers(0, 200), st.integers(0, 300), st.integers(1, 40), st.integers(1, 40))
def test_strides_are_the_kernels(first: int, length: int, used: int, extra: int) -> None:
    cgroup, last = used + extra - 1, first + length
    expected = {cpu for cpu in range(first, last + 1) if (cpu - first) % cgroup < used}
    assert set(cpuset.parse(f"{first}-{last}:{used}/{cgroup}")) == expected


@given(st.text("0123456789-,:/ N\n", max_size=30) | st.text(max_size=30))
def test_never_fails_otherwise(text: str) -> None:
    try:
        cpuset.parse(text)
    except CPUSetError as error:
        assert error.text == text
