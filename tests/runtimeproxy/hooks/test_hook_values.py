"""Values that runtimes and the kernel take, and those that would fail a pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimeproxy.hooks.edits import CPUSETS, ENVS, HUGEPAGE_LIMITS, RESOURCE_INTS, UNIFIED, Slot, Value
from runtimeproxy.hooks.values import acceptable

CPUS = Slot("cpuset_cpus")
MIB = 1 << 20
ARGUMENT_BYTES = 32 * 4096  # MAX_ARG_STRLEN


@pytest.mark.parametrize(
    ("slot", "values"),
    [
        (Slot("cpu_shares"), (-1, 1, 262145, None, "2")),
        (Slot("cpu_period"), (-1, 1, 5, 999, 1_000_001)),
        (Slot("cpu_quota"), (-2, 1, 500, 999, 1 << 44)),
        (Slot("memory_limit_in_bytes"), (-7, 1, 4096, 2 * MIB)),
        (Slot("memory_swap_limit_in_bytes"), (-7, 1, 4096, 2 * MIB)),
        (Slot("oom_score_adj"), (-1001, 1001)),
        (CPUS, ("3-1", "0-", "---", "99999999", "0,", ",", "all", "N", "0-3:1/2", " 0", "0 ", " ", "0\n", 3, None)),
        (Slot("cpuset_mems"), ("0\n1", "0-")),
        (Slot(HUGEPAGE_LIMITS, "2MB"), (-1, None)),
        (Slot(HUGEPAGE_LIMITS, ""), (0,)),
        (Slot(HUGEPAGE_LIMITS, "2Mi"), (0,)),
        (Slot(HUGEPAGE_LIMITS, "../2MB"), (0,)),
        (Slot(UNIFIED, "memory"), ("max",)),
        (Slot(UNIFIED, "../memory.high"), ("max",)),
        (Slot(UNIFIED, "a/memory.high"), ("max",)),
        (Slot(UNIFIED, ""), ("max",)),
        (Slot(UNIFIED, "memory.high"), ("a\0b",)),
        (Slot(ENVS, "A=B"), (b"x",)),
        (Slot(ENVS, ""), (b"x",)),
        (Slot(ENVS, "A\0"), (b"x",)),
        (Slot(ENVS, "A"), (b"x\0y", b"x" * (ARGUMENT_BYTES - len("A=")))),
    ],
)
def test_refused(slot: Slot, values: tuple[Value, ...]) -> None:
    assert [value for value in values if acceptable(slot, value)] == []


@pytest.mark.parametrize(
    ("slot", "values"),
    [
        (Slot("cpu_shares"), (0, 2, 1024, 262144)),
        (Slot("cpu_period"), (0, 1000, 100_000, 1_000_000)),
        (Slot("cpu_quota"), (-1, 0, 1000, (1 << 44) - 1)),
        (Slot("memory_limit_in_bytes"), (-1, 0, 3 * MIB, (1 << 63) - 1)),
        (Slot("memory_swap_limit_in_bytes"), (-1, 0, 64 * MIB)),
        (Slot("oom_score_adj"), (-1000, 0, 1000)),
        (CPUS, ("", "0", "0-3,8", "3,1", "0-0")),
        (Slot("cpuset_mems"), ("", "0-1")),
        (Slot(HUGEPAGE_LIMITS, "2MB"), (0, 1 << 30)),
        (Slot(HUGEPAGE_LIMITS, "64KB"), (0,)),
        (Slot(UNIFIED, "memory.high"), ("max", None)),
        (Slot(UNIFIED, "hugetlb.2MB.max"), ("0",)),
        (Slot(ENVS, "A"), (b"", b"\xc3\xa9", None, b"x" * (ARGUMENT_BYTES - len("A=\0")))),
    ],
)
def test_taken(slot: Slot, values: tuple[Value, ...]) -> None:
    assert [value for value in values if not acceptable(slot, value)] == []


def runtime_takes_integer(field: str, value: int) -> bool:
    """As measured on containerd 1.6 with runc 1.1: what a container is started with."""
    match field:
        case "cpu_shares":
            return value == 0 or 2 <= value <= 262144
        case "cpu_period":
            return value == 0 or 1000 <= value <= 1_000_000
        case "cpu_quota":
            return value <= 0 or 1000 <= value < 1 << 44
        case "oom_score_adj":
            return -1000 <= value <= 1000
        case _:
            return value in (-1, 0) or value >= 3 * MIB


def kernel_takes_list(text: str) -> bool:
    """bitmap_parselist() without strides."""
    for element in text.split(",") if text else ():
        first, dash, last = element.partition("-")
        if not first.isdecimal() or (dash and (not last.isdecimal() or int(first) > int(last))):
            return False
    return True


AROUND_BOUNDS = st.sampled_from([0, 2, 1000, 262144, 1_000_000, 3 * MIB, 1 << 44, (1 << 63) - 1])
INTEGERS = st.builds(lambda bound, off: bound + off, AROUND_BOUNDS, st.integers(-3, 3)) | st.integers()


@given(st.sampled_from(RESOURCE_INTS), INTEGERS)
def test_every_integer_that_passes_is_one_that_the_runtime_takes(field: str, value: int) -> None:
    if acceptable(Slot(field), value):
        assert runtime_takes_integer(field, value)
        assert -(1 << 63) <= value < 1 << 63


@given(st.sampled_from(CPUSETS), st.text("0123-,:/ \nNal", max_size=8))
def test_every_list_that_passes_is_one_that_the_kernel_takes(field: str, text: str) -> None:
    if acceptable(Slot(field), text):
        assert kernel_takes_list(text)
    elif kernel_takes_list(text):
        assert max(map(int, text.replace("-", ",").split(","))) > 65535
