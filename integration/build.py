"""Builds the Go programs that the tests need, once, into a cache outside of the repository.

``python -m integration.build kubelet containerd2 cri cri-gogo h2spec`` prints the directory of each target's programs;
``control-plane`` stands for several targets. The cache is ``$KOORD_CACHE``, by default ``$XDG_CACHE_HOME/koord`` or
``~/.cache/koord``; a build is found again by the hash of everything that made it. ``$KUBEBUILDER_ASSETS`` comes first
where a target allows it, as with envtest, unless a program there is of another minor release. ``$KUBERNETES`` is the
minor release of Kubernetes' programs, one of ``RELEASES`` or ``oldest``.

Invariant: a directory in the cache is complete (it appears by one rename), and parallel runs build a target once (a
lock file). A failing compiler raises BuildError with its last lines and leaves nothing in the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from integration import toolchain

MODULES = Path(__file__).parent / "kubernetes"
RELEASES: Mapping[str, str] = {"1.32": "1.32.9", "1.34": "1.34.4", "1.36": "1.36.3"}
"""Of Kubernetes: by minor release the version that is built, from the module of the same name; the oldest first."""
DEFAULT_RELEASE = "1.34"
_BY_NAME = {"": DEFAULT_RELEASE, "oldest": next(iter(RELEASES))}
ETCD = "3.6"
VERSION_PACKAGE = "k8s.io/component-base/version"
KUBERNETES_CMD = "k8s.io/kubernetes/cmd"
CONTAINERD = "github.com/containerd/containerd/v2/cmd"


class BuildError(Exception):
    """A target could not be built."""


@dataclass(frozen=True, slots=True)
class Target:
    """What one ``go build`` makes: ``module`` is a folder below integration/kubernetes, ``programs`` the file names."""

    module: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: {"CGO_ENABLED": "0"})
    from_assets: bool = False
    assets_say: str = ""  # what ``--version`` of the first program must print for assets to be taken


def kubernetes_flags(version: str) -> tuple[str, ...]:
    """Linker flags without which a kubelet calls itself v0.0.0."""
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return ("-ldflags", " ".join(["-s -w", *(f"-X {VERSION_PACKAGE}.{key}={value}" for key, value in values.items())]))


def release(environment: Mapping[str, str] = os.environ) -> str:
    """The minor release of Kubernetes whose programs are meant. Raises BuildError for one that is not built here."""
    said = environment.get("KUBERNETES", "")
    chosen = _BY_NAME.get(said, said)
    if chosen not in RELEASES:
        raise BuildError(f"KUBERNETES={said}: not one of {', '.join(RELEASES)}, oldest")
    return chosen


def kubernetes_version(environment: Mapping[str, str] = os.environ) -> str:
    """Such as 1.34.4."""
    return RELEASES[release(environment)]


def _of_kubernetes(minor: str) -> Mapping[str, Target]:
    module, flags = f"kubernetes-{minor}", kubernetes_flags(RELEASES[minor])
    return {
        "kubelet": Target(module, (f"{KUBERNETES_CMD}/kubelet",), ("kubelet",), flags, from_assets=True),
        "apiserver": Target(
            module,
            (f"{KUBERNETES_CMD}/kube-apiserver", f"{KUBERNETES_CMD}/kubectl"),
            ("kube-apiserver", "kubectl"),
            flags,
            from_assets=True,
            assets_say=f"Kubernetes v{minor}.",
        ),
        "controllers": Target(
            module,
            (f"{KUBERNETES_CMD}/kube-controller-manager", f"{KUBERNETES_CMD}/kube-scheduler"),
            ("kube-controller-manager", "kube-scheduler"),
            flags,
        ),
    }


OTHERS: Mapping[str, Target] = {
    "etcd": Target(
        "etcd",
        ("./cmd/etcd",),
        ("etcd",),
        ("-ldflags", "-s -w"),
        from_assets=True,
        assets_say=f"etcd Version: {ETCD}.",
    ),
    "helm": Target("helm", ("helm.sh/helm/v3/cmd/helm",), ("helm",), ("-ldflags", "-s -w")),
    "containerd2": Target(
        "containerd2",
        (f"{CONTAINERD}/containerd", f"{CONTAINERD}/containerd-shim-runc-v2", f"{CONTAINERD}/ctr"),
        ("containerd", "containerd-shim-runc-v2", "ctr"),
        ("-tags", "no_btrfs", "-ldflags", "-s -w"),
    ),
    "cri": Target("cri", ("./cmd/...",), ("cri-bench", "cri-decode", "cri-descriptors", "raw-bench")),
    "cri-gogo": Target("cri-gogo", ("./cmd/...",), ("cri-decode-gogo",)),
    "h2spec": Target("h2spec", ("./cmd/...", "github.com/summerwind/h2spec/cmd/h2spec"), ("h2spec", "http2-backend")),
}


GROUPS: Mapping[str, tuple[str, ...]] = {"control-plane": ("etcd", "apiserver", "controllers")}


def targets(environment: Mapping[str, str] = os.environ) -> Mapping[str, Target]:
    """All targets by name."""
    return {**_of_kubernetes(release(environment)), **OTHERS}


def cache_directory(environment: Mapping[str, str]) -> Path:
    if chosen := environment.get("KOORD_CACHE"):
        return Path(chosen)
    if base := environment.get("XDG_CACHE_HOME"):
        return Path(base) / "koord"
    return Path.home() / ".cache" / "koord"


def build(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The directory that holds the programs of target ``name``; builds them if no directory does yet."""
    target = targets(environment)[name]
    if (assets := _assets(target, environment)) is not None:
        return assets
    cache = cache_directory(environment)
    cache.mkdir(parents=True, exist_ok=True)
    go = toolchain.find(cache, environment, toolchain.wanted(MODULES / target.module / "go.mod"))
    directory = cache / "bin" / f"{name}-{_key(target, go)}"
    if not directory.is_dir():
        directory.parent.mkdir(exist_ok=True)
        with _lock(cache / f"{name}.lock"):
            if not directory.is_dir():
                _build(target, go, directory, environment)
    return directory


def program(name: str) -> Path:
    """The path of one program, such as kube-apiserver; builds its target if need be."""
    (target,) = (target for target, made in targets().items() if name in made.programs)
    return build(target) / name


def _assets(target: Target, environment: Mapping[str, str]) -> Path | None:
    assets = environment.get("KUBEBUILDER_ASSETS")
    if not (assets and target.from_assets):
        return None
    found = all(os.access(Path(assets, program), os.X_OK) for program in target.programs)
    return Path(assets) if found and _says(Path(assets, target.programs[0]), target.assets_say) else None


def _says(program: Path, release: str) -> bool:
    """Whether ``program`` is of ``release``; the control plane's parts and our flags for them go by minor release."""
    if not release:
        return True
    done = subprocess.run([program, "--version"], check=False, capture_output=True, text=True)
    if release not in done.stdout:
        print(f"{program} is not {release!r} but {done.stdout[:80]!r}: building our own", file=sys.stderr)
    return release in done.stdout


def _key(target: Target, go: toolchain.Go) -> str:
    """Hash of module files, our sources, flags, environment and the compiler's version."""
    digest = hashlib.sha256()
    root = MODULES / target.module
    for path in sorted([root / "go.mod", root / "go.sum", *root.rglob("*.go")]):
        digest.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    digest.update(repr((target.packages, target.flags, sorted(target.environment.items()), go.version)).encode())
    return digest.hexdigest()[:16]


def _build(target: Target, go: toolchain.Go, directory: Path, environment: Mapping[str, str]) -> None:
    partial = Path(tempfile.mkdtemp(prefix=".building-", dir=directory.parent))
    try:
        argv = [str(go.program), "build", "-trimpath", *target.flags, "-o", f"{partial}/", *target.packages]
        settings = {**environment, **go.environment, **target.environment}
        _run(argv, MODULES / target.module, settings, ", ".join(target.programs))
        missing = [program for program in target.programs if not (partial / program).exists()]
        if missing:
            raise BuildError(f"{target.module}: go build made no {', '.join(missing)}")
        partial.chmod(0o755)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run(argv: Sequence[str], directory: Path, environment: Mapping[str, str], programs: str) -> None:
    print(f"building {programs} (minutes, the first time)", file=sys.stderr)
    started = time.monotonic()
    done = subprocess.run(argv, cwd=directory, env=dict(environment), check=False, capture_output=True, text=True)
    if done.returncode != 0:
        output = "\n".join(done.stderr.splitlines()[-30:])
        raise BuildError(f"{directory}: {' '.join(argv)} ended with {done.returncode}\n{output}")
    print(f"built {programs} in {time.monotonic() - started:.0f} s", file=sys.stderr)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.build", description="Build the tests' Go programs.")
    names = (*_of_kubernetes(DEFAULT_RELEASE), *OTHERS, *GROUPS)
    parser.add_argument("targets", nargs="+", choices=sorted(names), metavar="target", help=", ".join(names))
    for name in chain.from_iterable(GROUPS.get(name, (name,)) for name in parser.parse_args().targets):
        try:
            print(build(name))
        except (BuildError, toolchain.ToolchainError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
