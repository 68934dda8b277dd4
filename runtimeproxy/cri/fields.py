"""Says which fields of CRI requests hooks may change, and where each is. v1 and v1alpha2 have the same numbers.

This is the only place that knows; ``runtimeproxy.hooks.fields`` says how they are changed on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtimeproxy.cri import methods
from runtimeproxy.hooks.edits import ANNOTATIONS, CGROUP_PARENT, ENVS, LABELS
from runtimeproxy.hooks.fields import How, Owned, Table, resources

TABLES: Mapping[str, Table] = {
    methods.RUN_POD: {
        LABELS: Owned((1, 6), How.MAP),
        ANNOTATIONS: Owned((1, 7), How.MAP),
        CGROUP_PARENT: Owned((1, 8, 1), How.STRING),
        **resources(1, 8, 5),
    },
    methods.CREATE: {
        ANNOTATIONS: Owned((2, 10), How.MAP),
        ENVS: Owned((2, 6), How.BYTES_LIST),
        CGROUP_PARENT: Owned((3, 8, 1), How.STRING),
        **resources(2, 15, 1),
    },
    methods.UPDATE: {
        ANNOTATIONS: Owned((4,), How.MAP),
        **resources(2),
    },
    methods.UPDATE_POD: resources(3),
    methods.RESTORE_POD: {
        LABELS: Owned((2, 6), How.MAP),
        ANNOTATIONS: Owned((2, 7), How.MAP),
        CGROUP_PARENT: Owned((2, 8, 1), How.STRING),
        **resources(2, 8, 5),
    },
}

OWNED: Mapping[str, frozenset[str]] = {method: frozenset(table) for method, table in TABLES.items()}
"""The fields alone, by method."""

SANDBOX_OF_CREATE: Table = {
    ANNOTATIONS: Owned((3, 7), How.MAP),
    CGROUP_PARENT: Owned((3, 8, 1), How.STRING),
}
"""What was done to a sandbox and is repeated in the ``sandbox_config`` of each CreateContainer."""

RESTORED_CONTAINER: Table = {
    ANNOTATIONS: Owned((10,), How.MAP),
    **resources(15, 1),
}
"""Of each of the ``container_configs`` of a RestorePod. Its environment is the checkpoint's: a runtime has to fail the
restore if the configuration says otherwise."""
