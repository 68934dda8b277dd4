"""Says which fields of CRI requests hooks may change, and where each is. v1 and v1alpha2 have the same numbers.

No other module says so; ``runtimeproxy.hooks.fields`` says how they are changed on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtimeproxy.cri import methods
from runtimeproxy.hooks.edits import ANNOTATIONS, CGROUP_PARENT, ENVS, LABELS
from runtimeproxy.hooks.fields import EditableField, FieldForm, FieldTable, resources

TABLES: Mapping[str, FieldTable] = {
    methods.RUN_POD: {
        LABELS: EditableField((1, 6), FieldForm.MAP),
        ANNOTATIONS: EditableField((1, 7), FieldForm.MAP),
        CGROUP_PARENT: EditableField((1, 8, 1), FieldForm.STRING),
        **resources(1, 8, 5),
    },
    methods.CREATE: {
        ANNOTATIONS: EditableField((2, 10), FieldForm.MAP),
        ENVS: EditableField((2, 6), FieldForm.BYTES_LIST),
        CGROUP_PARENT: EditableField((3, 8, 1), FieldForm.STRING),
        **resources(2, 15, 1),
    },
    methods.UPDATE: {
        ANNOTATIONS: EditableField((4,), FieldForm.MAP),
        **resources(2),
    },
    methods.UPDATE_POD: resources(3),
    methods.RESTORE_POD: {
        LABELS: EditableField((2, 6), FieldForm.MAP),
        ANNOTATIONS: EditableField((2, 7), FieldForm.MAP),
        CGROUP_PARENT: EditableField((2, 8, 1), FieldForm.STRING),
        **resources(2, 8, 5),
    },
}

EDITABLE: Mapping[str, frozenset[str]] = {method: frozenset(table) for method, table in TABLES.items()}
"""The fields alone, by method."""

SANDBOX_OF_CREATE: FieldTable = {
    ANNOTATIONS: EditableField((3, 7), FieldForm.MAP),
    CGROUP_PARENT: EditableField((3, 8, 1), FieldForm.STRING),
}
"""The edits of a sandbox that are repeated in the ``sandbox_config`` of each CreateContainer."""

RESTORED_CONTAINER: FieldTable = {
    ANNOTATIONS: EditableField((10,), FieldForm.MAP),
    **resources(15, 1),
}
"""The fields of each of the ``container_configs`` of a RestorePod. The environment is the checkpoint's: a runtime has
to fail the restore if the configuration says otherwise.
"""
