"""What nodes say of themselves, in columns: amounts, taints, labels, images. Amounts are those that pods can have.

Nodes of equal taints are one class, whose number is a column: a toleration is judged once a class, not once a node.
Amounts are read when the object changes; one that cannot be read counts as nothing, and is returned as a problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from koord.model.core import Amount, Taint
from koord.model.problem import Problem
from koord.model.quantity import QuantityError
from koord.model.scheduling.pods import ContainerImage, Node
from koord.model.topologyannotations import RESERVATION
from koord.scheduling import amounts
from koord.scheduling.amounts import PODS
from koord.scheduling.labels import Labels
from koord.scheduling.nodereservation import without_reserved
from koord.scheduling.table import Bools, Column, Int32s, Int64s, Table

TaintSet = tuple[Taint, ...]
_SPARE = 1024
"""So many more classes than two a node there may be before those of no node are forgotten."""


class Amounts:
    """An int64 column for each resource, made when its name first comes up. An absent name is 0 everywhere."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._columns: dict[str, Column[np.int64]] = {}

    @property
    def names(self) -> Iterable[str]:
        return self._columns.keys()

    def of(self, resource: str) -> Int64s | None:
        """int64[N]; None for a resource that no node has ever had anything of."""
        column = self._columns.get(resource)
        return None if column is None else column.values[: self._table.length]

    def at(self, row: int, resource: str) -> int:
        column = self._columns.get(resource)
        return 0 if column is None else int(column.values[row])

    def put(self, row: int, found: Mapping[str, int]) -> None:
        """The row holds these, and nothing of any other resource."""
        for name in found.keys() - self._columns.keys():
            self._columns[name] = self._table.column(np.int64)
        for name, column in self._columns.items():
            column.values[row] = found.get(name, 0)

    def add(self, row: int, found: Mapping[str, int], sign: int = 1) -> None:
        for name, amount in found.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = self._table.column(np.int64)
            column.values[row] += sign * amount


class NodeColumns:
    """``labels``, ``allocatable``: as the nodes' objects say. ``nodes``: these objects, by row."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.labels = Labels(table)
        self.allocatable = Amounts(table)
        self.nodes: dict[int, Node] = {}
        self.taint_sets: list[TaintSet] = []
        self._taint_class: dict[TaintSet, int] = {}
        self._taint_classes = table.column(np.int32)
        self._unschedulable = table.column(np.bool_, False)
        self._images: dict[str, dict[int, int]] = {}

    @property
    def unschedulable(self) -> Bools:
        """bool[N]: ``spec.unschedulable``."""
        return self._unschedulable.values[: self._table.length]

    @property
    def taint_classes(self) -> Int32s:
        """int32[N]: the place of each node's taints in ``taint_sets``."""
        return self._taint_classes.values[: self._table.length]

    def total_allocatable(self) -> dict[str, int]:
        """Returns what all nodes offer together, of each resource."""
        found = {name: self.allocatable.of(name) for name in self.allocatable.names}
        return {name: int(column.sum()) for name, column in found.items() if column is not None}

    def image_sizes(self, image: str) -> Mapping[int, int]:
        """Returns the bytes of the image on each node that has it, by row."""
        return self._images.get(image, {})

    def put(self, row: int, node: Node) -> tuple[Problem, ...]:
        """Returns what could not be read."""
        before = self.nodes.get(row)
        problems: list[Problem] = []
        if before is None or before.metadata.labels != node.metadata.labels:
            self.labels.put(row, node.metadata.labels)
        if before is None or before.spec != node.spec:
            self._unschedulable.values[row] = node.spec.unschedulable
            self._taint_classes.values[row] = self._class_of(node.spec.taints)
        if before is None or before.status.images != node.status.images:
            self._put_images(row, before.status.images if before else (), node.status.images)
        if before is None or _offer(before) != _offer(node):
            self.allocatable.put(row, _allocatable(node, problems))
        self.nodes[row] = node
        return tuple(problems)

    def remove(self, row: int) -> None:
        """The row's node is gone; the table has given the row back, or is about to."""
        self._put_images(row, self.nodes.pop(row).status.images, ())
        self.labels.remove(row)

    def _class_of(self, taints: TaintSet) -> int:
        number = self._taint_class.get(taints)
        if number is None:
            if len(self.taint_sets) > 2 * len(self._table) + _SPARE:
                self._renumber_taints()
            number = self._taint_class[taints] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return number

    def _renumber_taints(self) -> None:
        """Forgets the classes that no node is in."""
        self._taint_class.clear()
        self.taint_sets.clear()
        for row, node in self.nodes.items():
            self._taint_classes.values[row] = self._class_of(node.spec.taints)

    def _put_images(self, row: int, before: Iterable[ContainerImage], after: Iterable[ContainerImage]) -> None:
        for name in dict.fromkeys(name for image in before for name in image.names):
            rows = self._images[name]
            del rows[row]
            if not rows:
                del self._images[name]
        for image in after:
            for name in image.names:
                self._images.setdefault(name, {})[row] = image.size_bytes


def is_alike(before: Node, after: Node) -> bool:
    """Returns whether both are the same to all that is decided here: only times and conditions differ."""
    return (
        before.metadata.labels == after.metadata.labels
        and before.metadata.annotations == after.metadata.annotations
        and before.spec == after.spec
        and before.status.allocatable == after.status.allocatable
        and before.status.images == after.status.images
    )


def _offer(node: Node) -> tuple[Mapping[str, Amount], str | None]:
    """What its columns of amounts are made of."""
    return node.status.allocatable, node.metadata.annotations.get(RESERVATION)


def _allocatable(node: Node, problems: list[Problem]) -> dict[str, int]:
    found = {}
    for name, amount in node.status.allocatable.items():
        try:
            found.update(amounts.allocatable({name: amount}))
        except QuantityError as error:
            problems.append(Problem(f"status.allocatable[{name}]", str(error)))
    found.setdefault(PODS, 0)
    return without_reserved(found, node.metadata.annotations, problems.append)
