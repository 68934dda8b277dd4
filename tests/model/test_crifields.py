"""What the kernel's files hold by a request, and which spellings mean the same."""

from __future__ import annotations

import pytest

from koord.model.cpuset import CPUSetError
from koord.model.crifields import CPUSETS, SCALARS, Field
from koord.model.lattice import Value
from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks


@pytest.mark.parametrize(
    ("field", "requested", "held"),
    [
        (Field.CPU_SHARES, 0, None),
        (Field.CPU_SHARES, -5, None),
        (Field.CPU_SHARES, 1, 2),
        (Field.CPU_SHARES, 512, 512),
        (Field.CPU_SHARES, 300_000, 262_144),
        (Field.CPU_QUOTA, 0, -1),
        (Field.CPU_QUOTA, -7, -1),
        (Field.CPU_QUOTA, 50_000, 50_000),
        (Field.CPU_PERIOD, 0, 100_000),
        (Field.CPU_PERIOD, 50_000, 50_000),
        (Field.MEMORY_LIMIT, 0, -1),
        (Field.MEMORY_LIMIT, 1 << 40, 1 << 40),
        (Field.CPUSET_CPUS, "", ""),
        (Field.CPUSET_CPUS, "3,2,0", "0,2-3"),
        (Field.CPUSET_MEMS, "0,1", "0-1"),
    ],
)
def test_what_a_file_holds_by_a_request(field: Field, requested: Value, held: Value | None) -> None:
    assert field.kernel_value(requested) == held


@pytest.mark.parametrize("field", SCALARS)
def test_what_is_not_said_is_as_the_message_reads_it(field: Field) -> None:
    said = getattr(hooks.LinuxContainerResources(), field.value)
    assert field.kernel_value(None) == field.kernel_value(said) == field.nothing


@pytest.mark.parametrize("field", CPUSETS)
def test_what_is_no_set_is_in_no_file(field: Field) -> None:
    with pytest.raises(CPUSetError):
        field.kernel_value("rubbish")


@pytest.mark.parametrize(
    ("field", "value", "other", "same"),
    [
        (Field.CPU_QUOTA, 5, 5, True),
        (Field.CPU_QUOTA, 5, None, False),
        (Field.CPUSET_CPUS, "0-3", "3,2,1,0", True),
        (Field.CPUSET_CPUS, "0-3", "", False),
        (Field.CPUSET_CPUS, "rubbish", "rubbish", True),
        (Field.CPUSET_MEMS, "rubbish", "0", False),
        (Field.UNIFIED, "0-1", "0,1", False),
    ],
)
def test_which_values_mean_the_same(field: Field, value: Value | None, other: Value | None, same: bool) -> None:
    assert field.same(value, other) is same


def test_the_table_has_what_cri_has_of_a_cgroups_files() -> None:
    """Swap follows memory; the score is a process's; the others are lists and maps."""
    others = {"memory_swap_limit_in_bytes", "oom_score_adj", "hugepage_limits", "unified"}
    for message in (cri.LinuxContainerResources, hooks.LinuxContainerResources):
        assert set(SCALARS) == {field.name for field in message.DESCRIPTOR.fields} - others
