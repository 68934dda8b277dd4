"""Where kubelet keeps its pods in the cgroup tree: driver, kubepods' own path, and the path of each QoS tier.

Nothing is assumed. The claims of kubelet and runtime (``claims``), the paths of running pods, and the directories of
the tree are compared; each fact names its source, and where sources contradict each other the strongest wins and a
problem says so. A running pod is strongest, then the runtime's answer when asked (kubelet takes that over), kubelet's
flags, kubelet's configuration, the runtime's configuration, the tree. Invariant: ``kubepods`` is "" and ``tiers`` is
empty exactly when no source tells. Any cgroup root is understood: ``/nested`` makes ``/nested/kubepods`` with cgroupfs
and ``/nested.slice/nested-kubepods.slice`` with systemd.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from koord.host.cgroup import Tree
from koord.host.claims import CGROUP_ROOT, DRIVER, PER_QOS, Claim, Claims
from koord.model import cgroup_parent
from koord.model.cgroup_parent import CgroupStyle
from koord.model.qos import KubeQoS
from koord.model.slices import SLICE, expand_slice

_KUBEPODS = re.compile(r"kubepods|(?:[^/]*-)?kubepods\.slice")
_ABOVE_POD = re.compile(r"(.*/(?:kubepods|(?:[^/]*-)?kubepods\.slice))(?:/[^/]+)?/[^/]*pod[^/]+")
_TIER_NAMES = {KubeQoS.BURSTABLE: "burstable", KubeQoS.BEST_EFFORT: "besteffort"}
_DEPTH = 5
_MOST_DIRECTORIES = 20_000


@dataclass(frozen=True, slots=True)
class Layout:
    """``tiers``: the cgroup path of each Kubernetes QoS class's pods; Guaranteed pods lie in ``kubepods`` itself.

    ``driver`` is None and ``kubepods`` "" while unknown. ``facts``: (name, value, where it comes from), for people.
    """

    driver: CgroupStyle | None = None
    kubepods: str = ""
    tiers: Mapping[KubeQoS, str] = field(default_factory=dict)
    facts: tuple[Claim, ...] = ()
    problems: tuple[str, ...] = ()


def detect(tree: Tree, claims: Claims, pod_parents: Iterable[str] = ()) -> Layout:
    """The layout of this node. ``pod_parents``: cgroup parents that the runtime names for pods that run."""
    found = _kubepods_in(tree)
    running = sorted({above for parent in pod_parents if (above := kubepods_above(parent))})
    problems = [*claims.problems, *_contradictions(claims)]
    kubepods, source = _chosen(claims, found, running, problems)
    if not kubepods:
        problems.append("neither kubelet, nor the runtime, nor the cgroup tree shows where pods are")
        return Layout(problems=tuple(problems))
    driver = style_of(kubepods)
    if any(claim.value == "false" for claim in claims.of(PER_QOS)):
        problems.append("kubelet runs without cgroups per QoS: pods are below the cgroup root, in no tier")
    facts = (
        Claim(DRIVER, driver.value, _driver_source(claims, driver, source)),
        Claim("kubepods", kubepods, source),
        *claims.of(CGROUP_ROOT),
    )
    return Layout(driver, kubepods, tiers_of(kubepods), facts, tuple(problems))


def kubepods_path(cgroup_root: str, driver: CgroupStyle) -> str:
    """kubepods' path below kubelet's ``cgroupRoot`` ("" or "/" = none)."""
    parts = [part for part in cgroup_root.split("/") if part]
    if driver is CgroupStyle.CGROUPFS:
        return "/" + "/".join((*parts, "kubepods"))
    escaped = [part.removesuffix(SLICE).replace("-", "_") for part in parts]
    return expand_slice("-".join((*escaped, "kubepods")) + SLICE)


def style_of(kubepods: str) -> CgroupStyle:
    return CgroupStyle.SYSTEMD if kubepods.endswith(SLICE) else CgroupStyle.CGROUPFS


def tiers_of(kubepods: str) -> dict[KubeQoS, str]:
    """The tiers' paths below ``kubepods``, in its own style."""
    tiers = {KubeQoS.GUARANTEED: kubepods}
    for qos, name in _TIER_NAMES.items():
        basename = kubepods.rpartition("/")[2].removesuffix(SLICE)
        systemd = style_of(kubepods) is CgroupStyle.SYSTEMD
        tiers[qos] = f"{kubepods}/{basename}-{name}{SLICE}" if systemd else f"{kubepods}/{name}"
    return tiers


def kubepods_above(pod_parent: str) -> str:
    """Returns kubepods' path above the pod's at ``pod_parent`` (absolute, or a slice's bare name); "" if no pod has
    it."""
    path = pod_parent.rstrip("/")
    if "/" not in path and path.endswith(SLICE):
        path = expand_slice(path)
    above = _ABOVE_POD.fullmatch(path) if cgroup_parent.parse(path) else None
    return "" if above is None else above.group(1)


def _chosen(claims: Claims, roots: list[str], running: list[str], problems: list[str]) -> tuple[str, str]:
    """Returns kubepods' path and its source."""
    claimed, source = _claimed(claims, roots)
    if running:
        if len(running) > 1:
            problems.append(f"pods run below several roots: {', '.join(running)}")
        if claimed and claimed not in running:
            problems.append(f"{source} makes it {claimed}, but pods run below {running[0]}")
        return running[0], "the pods that run"
    if claimed and (claimed in roots or not roots):
        return claimed, source
    if claimed:
        problems.append(f"{source} makes it {claimed}, which does not exist; the tree has {', '.join(roots)}")
    if len(roots) > 1:
        problems.append(f"the tree has several candidates: {', '.join(roots)}")
    return (roots[0], "the cgroup tree") if roots else ("", "")


def _claimed(claims: Claims, roots: list[str]) -> tuple[str, str]:
    """Returns the path that the claims give. A claim without a root means no root; a root without a driver takes the
    driver of the tree that fits."""
    drivers, named = claims.of(DRIVER), claims.of(CGROUP_ROOT)
    root = named[0].value if named else ""
    if drivers:
        sources = dict.fromkeys((drivers[0].source, *(claim.source for claim in named[:1])))
        return kubepods_path(root, CgroupStyle(drivers[0].value)), " and ".join(sources)
    candidates = [kubepods_path(root, driver) for driver in CgroupStyle] if named else []
    fitting = [path for path in candidates if path in roots]
    return (fitting[0], f"{named[0].source} and the cgroup tree") if len(fitting) == 1 else ("", "")


def _driver_source(claims: Claims, driver: CgroupStyle, otherwise: str) -> str:
    return next((claim.source for claim in claims.of(DRIVER) if claim.value == driver.value), otherwise)


def _contradictions(claims: Claims) -> Iterator[str]:
    for name in (DRIVER, CGROUP_ROOT):
        said: dict[str, Claim] = {}
        for claim in claims.of(name):
            said.setdefault(claim.value, claim)
        if len(said) > 1:
            yield f"{name}: " + ", but ".join(f"{claim.source} says {claim.value}" for claim in said.values())


def _kubepods_in(tree: Tree) -> list[str]:
    """Every kubepods directory of the tree, those that hold pods first, then by path."""
    top = tree.directory("/")
    paths = list(_search(top))
    return sorted(paths, key=lambda path: (not _holds_pods(top, path), path))


def _search(top: Path) -> Iterator[str]:
    level, seen = [""], 0
    for _ in range(_DEPTH):
        deeper: list[str] = []
        for parent in level:
            for name in _subdirectories(top, parent):
                seen += 1
                path = f"{parent}/{name}"
                if _KUBEPODS.fullmatch(name):
                    yield path
                elif seen < _MOST_DIRECTORIES:
                    deeper.append(path)
        level = deeper


def _holds_pods(top: Path, kubepods: str) -> bool:
    return any("pod" in name for tier in tiers_of(kubepods).values() for name in _pods(top, tier))


def _pods(top: Path, tier: str) -> list[str]:
    names = _subdirectories(top, tier)
    return [name.removeprefix(tier.rpartition("/")[2].removesuffix(SLICE)) for name in names]


def _subdirectories(top: Path, cgroup: str) -> list[str]:
    try:
        with os.scandir(top / cgroup.lstrip("/")) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
