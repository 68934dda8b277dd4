"""Jobs whose pods belong together, as their operators make them: which pods, when, and when they have done their work.

Each job is asked again and again what to do next, by what has become of its pods, as an operator is. ``gang``: who of
its pods must never hold nodes in a part, and how many that are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from integration.cluster import objects
from integration.cluster.api import Object

POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
GANG = "gang.scheduling.koordinator.sh"
MEMORY = "32Mi"


@dataclass
class Job:
    """``made``: the names of its pods so far; ``ran``: of those that have run."""

    name: str
    scheduler: str
    made: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)

    def pod_group(self) -> Object | None:
        """Its PodGroup, if its operator makes one."""
        return None

    def next_pods(self) -> Iterator[Object]:
        """The pods to be made now."""
        raise NotImplementedError

    def gang(self) -> tuple[str, int]:
        """How the names of the pods begin that start together, and how many must."""
        raise NotImplementedError

    def is_done(self) -> bool:
        """Whether the job has done its work, and all of its pods end."""
        raise NotImplementedError

    def ends_alone(self, pod: str) -> bool:
        """Whether a pod that has run ends before the others."""
        return False

    def _group(self, least: int, cpu: str) -> Object:
        return {"metadata": {"name": self.name}, "spec": {"minMember": least, "minResources": {"cpu": cpu}}}

    def _pod(
        self, name: str, cpu: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
    ) -> Object:
        self.made.add(name)
        requests = {"cpu": cpu, "memory": MEMORY}
        return objects.pod(name, requests, labels=labels, annotations=annotations, schedulerName=self.scheduler)


class PyTorchJob(Job):
    """Kubeflow's training operator: a PodGroup of master and workers, all made at once."""

    def pod_group(self) -> Object:
        return self._group(4, "4")

    def next_pods(self) -> Iterator[Object]:
        for role in ("master-0", "worker-0", "worker-1", "worker-2") if not self.made else ():
            labels = {
                "training.kubeflow.org/job-name": self.name,
                "training.kubeflow.org/replica-type": role.partition("-")[0],
                POD_GROUP: self.name,
            }
            yield self._pod(f"{self.name}-{role}", "1", labels)

    def gang(self) -> tuple[str, int]:
        return f"{self.name}-", 4

    def is_done(self) -> bool:
        return len(self.ran) == 4


class MPIJob(Job):
    """The MPI operator: workers, and a launcher once all of them run."""

    def pod_group(self) -> Object:
        return self._group(3, "4")

    def next_pods(self) -> Iterator[Object]:
        roles = ["worker-0", "worker-1", "worker-2"] if not self.made else []
        if len(self.ran) == 3 and len(self.made) == 3:
            roles = ["launcher"]
        for role in roles:
            labels = {"training.kubeflow.org/job-name": self.name, "training.kubeflow.org/job-role": role[:8]}
            yield self._pod(
                f"{self.name}-{role}", "200m" if role == "launcher" else "1200m", labels | {POD_GROUP: self.name}
            )

    def gang(self) -> tuple[str, int]:
        return f"{self.name}-worker", 3

    def is_done(self) -> bool:
        return len(self.ran) == 4


class FlinkDeployment(Job):
    """Flink's operator: a job manager, which asks for its task managers once it runs. These are a gang."""

    def next_pods(self) -> Iterator[Object]:
        labels = {"app": self.name, "type": "flink-native-kubernetes", "component": "jobmanager"}
        if not self.made:
            yield self._pod(f"{self.name}-jobmanager", "100m", labels)
        elif self.ran and len(self.made) == 1:
            own = {f"{GANG}/name": f"{self.name}-taskmanagers", f"{GANG}/min-available": "3"}
            for index in (1, 2, 3):
                yield self._pod(f"{self.name}-taskmanager-{index}", "1300m", labels | {"component": "taskmanager"}, own)

    def gang(self) -> tuple[str, int]:
        return f"{self.name}-taskmanager", 3

    def is_done(self) -> bool:
        return len(self.ran) == 4


class SparkApplication(Job):
    """Spark's operator: the PodGroup says what driver and executors need in all, and lets the driver start by itself,
    which makes executors once it runs. An executor ends when its tasks are done.
    """

    def pod_group(self) -> Object:
        return self._group(1, "4")

    def next_pods(self) -> Iterator[Object]:
        labels = {"sparkoperator.k8s.io/app-name": self.name, POD_GROUP: self.name}
        if not self.made:
            yield self._pod(f"{self.name}-driver", "400m", labels | {"spark-role": "driver"})
        elif self.ran and len(self.made) == 1:
            for index in (1, 2, 3):
                yield self._pod(f"{self.name}-exec-{index}", "1200m", labels | {"spark-role": "executor"})

    def gang(self) -> tuple[str, int]:
        return f"{self.name}-driver", 1

    def is_done(self) -> bool:
        return len(self.ran) == 4

    def ends_alone(self, pod: str) -> bool:
        return "-exec-" in pod


KINDS: Mapping[str, type[Job]] = {
    "spark": SparkApplication,
    "flink": FlinkDeployment,
    "pytorch": PyTorchJob,
    "mpi": MPIJob,
}
"""Each job asks for about 4 CPUs."""
