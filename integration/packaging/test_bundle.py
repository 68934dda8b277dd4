"""The offline bundle: its archive, what install.sh refuses, and what it leaves when a node does not suit."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.packaging import made
from integration.packaging.machine import INSTALLED, RECORD, Machine
from koordctl.install import record as records
from koordctl.install.disk import Before, NodeDisk, PlacedFile
from koordctl.install.steps import PointKubelet
from release import apt, bundle, deb
from release.run import run

PYTHON_PACKAGES = ("libpython3.11-minimal", "python3.11")
RULES = "etc/koord/qosd-rules.yaml"
DEBIAN, FEDORA = 'ID=debian\nVERSION_ID="12"\n', "ID=fedora\nVERSION_ID=43\n"

PYTHON_3_12 = """\
#!/bin/sh
# A Python that can make an environment whose Python can install wheels and run koordctl.
case "$1 $2" in
    "-I -c") ;;
    "-m venv") mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
    "-I -m") shift 3; exec koordctl "$@" ;;
    */pip-1-py3-none-any.whl/pip*) [ ! -e /state/no-wheels ] ;;
    *) exit 1 ;;
esac
"""

UNAME = """\
#!/bin/sh
echo {machine}
"""

GETCONF = """\
#!/bin/sh
echo glibc {version}
"""


def _debian_package(name: str, version: str, scratch: Path, output: Path) -> None:
    (scratch / "DEBIAN").mkdir()
    (scratch / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: x <x@x.invalid>\nDescription: {name}\n"
    )
    if name == "python3.11":
        (scratch / "usr/bin").mkdir(parents=True)
        (scratch / "usr/bin/python3.11").write_text("#!/bin/sh\n")
        (scratch / "usr/bin/python3.11").chmod(0o755)
    output.mkdir(exist_ok=True)
    run(["dpkg-deb", "--build", scratch, output / f"{name}_{version}_amd64.deb"])


@pytest.fixture(scope="module")
def made_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A bundle of any version whose Koord and Python packages are next to empty."""

    def build(version: str) -> Path:
        ours = made.tiny(version, tmp_path_factory.mktemp("wheel"))
        directory = tmp_path_factory.mktemp("bundle")
        for name in PYTHON_PACKAGES:
            _debian_package(name, "3.11.2-6", tmp_path_factory.mktemp(name), directory / "debian")
        (directory / "wheelhouse").mkdir()
        (directory / "wheelhouse" / ours.path.name).write_bytes(ours.path.read_bytes())
        (directory / "wheelhouse" / "pip-1-py3-none-any.whl").touch()
        deb.build([ours], directory, xz_level=0)
        bundle.finish(ours, directory)
        return directory

    return build


@pytest.fixture(scope="module")
def directory(made_bundle: Callable[[str], Path]) -> Path:
    return made_bundle("1.0")


@pytest.fixture
def bare(directory: Path) -> Iterator[Machine]:
    """A Debian 12 without Python, with the bundle in /bundle."""
    with tempfile.TemporaryDirectory(prefix="koord-machine-", dir="/dev/shm") as memory:
        installed = {name: version for name, version in INSTALLED.items() if name != "python3.11"}
        machine = Machine(Path(memory, "root"), installed)
        machine.give_dpkg()
        machine.command("uname", UNAME.format(machine="x86_64"))
        machine.command("getconf", GETCONF.format(version="2.36"))
        (machine.root / "etc/os-release").write_text(DEBIAN)
        shutil.copytree(directory, machine.root / "bundle")
        yield machine


@pytest.fixture
def elsewhere(bare: Machine) -> Machine:
    """Another distribution, with Python 3.12."""
    (bare.root / "etc/os-release").write_text(FEDORA)
    bare.command("python3.12", PYTHON_3_12)
    return bare


def install(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return machine.run("/bundle/install.sh", *arguments)


def bring(machine: Machine, bundle: Path) -> None:
    shutil.rmtree(machine.root / "bundle")
    shutil.copytree(bundle, machine.root / "bundle")


def versions(machine: Machine) -> list[str]:
    return sorted(path.name for path in (machine.root / "opt/koord").iterdir())


def write_rules(machine: Machine) -> None:
    (machine.root / RULES).parent.mkdir(parents=True)
    (machine.root / RULES).write_text("node: {limitsInCRI: false}\n")


def no_systemd(machine: Machine) -> None:
    (machine.root / "run/systemd/system").rmdir()


def old_systemd(machine: Machine) -> None:
    machine.command("systemctl", "#!/bin/sh\necho 'systemd 249 (249.11-0ubuntu3)'\n")


def no_root(machine: Machine) -> None:
    machine.command("id", "#!/bin/sh\necho 1000\n")


def another_processor(machine: Machine) -> None:
    machine.command("uname", UNAME.format(machine="aarch64"))


def old_glibc(machine: Machine) -> None:
    machine.command("getconf", GETCONF.format(version="2.9"))


def damaged(machine: Machine) -> None:
    (machine.root / "bundle/debian/python3.11_3.11.2-6_amd64.deb").write_bytes(b"")


def incomplete(machine: Machine) -> None:
    (machine.root / "bundle/README").unlink()


def a_virtual_environments_unit(machine: Machine) -> None:
    (machine.root / "etc/systemd/system").mkdir(parents=True)
    (machine.root / "etc/systemd/system/koord-qosd.service").touch()


def no_python(machine: Machine) -> None:
    (machine.root / "etc/os-release").write_text(FEDORA)


def old_python(machine: Machine) -> None:
    (machine.root / "etc/os-release").write_text(FEDORA)
    machine.command("python3", "#!/bin/sh\nexit 1\n")


def parts_of_a_newer_python(machine: Machine) -> None:
    status = machine.root / "var/lib/dpkg/status"
    newer = status.read_text().replace("Package: systemd", "Package: libpython3.11-minimal").replace("252.", "3.99.")
    status.write_text(status.read_text() + newer.split("\n\n")[-2] + "\n\n")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (no_systemd, "not started by systemd"),
        (no_root, "only root"),
        (old_systemd, "systemd 249 is older than 252"),
        (another_processor, "for x86_64, and this machine is aarch64"),
        (old_glibc, "glibc 2.9 is older than 2.28"),
        (damaged, "a file of the bundle is damaged or missing"),
        (incomplete, "a file of the bundle is damaged or missing"),
        (a_virtual_environments_unit, "/etc/systemd/system/koord-qosd.service is there"),
        (no_python, "needs one of Python 3.11 3.12 3.13 3.14 with venv, ssl and sqlite3, and none is here"),
        (old_python, "needs one of Python 3.11 3.12 3.13 3.14"),
        (parts_of_a_newer_python, "parts of a newer Python 3.11 are here"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
@pytest.mark.parametrize("arguments", [(), ("--dry-run",)], ids=["", "dry-run"])
def test_it_refuses_before_it_changes_anything(
    bare: Machine, spoil: Callable[[Machine], None], reason: str, arguments: tuple[str, ...]
) -> None:
    spoil(bare)
    before = bare.files()
    done = install(bare, *arguments)
    assert done.returncode == 3
    assert done.stderr.startswith("install.sh: refused, nothing was changed: ")
    assert reason in done.stderr
    assert (bare.log(), bare.files()) == ([], before)


def test_wrong_usage(bare: Machine) -> None:
    done = install(bare, "--no-such-option")
    assert (done.returncode, done.stderr.split()[0]) == (2, "usage:")


def test_dry_run_on_debian_says_what_it_would_do(bare: Machine) -> None:
    before = bare.files()
    done = install(bare, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert [line.rpartition("/")[2] for line in done.stdout.splitlines()] == [
        "libpython3.11-minimal_3.11.2-6_amd64.deb",
        "python3.11_3.11.2-6_amd64.deb",
        "koord_1.0_amd64.deb",
    ]
    assert (bare.log(), bare.files()) == ([], before)


def test_a_bare_debian_gets_python_and_koord(bare: Machine) -> None:
    done = install(bare)
    assert done.returncode == 0, done.stderr
    assert bare.log() == ["koordctl install --yes --package (with files)"] * 2  # the second asks what came of the first
    assert bare.status() == "installed"
    assert bare.has("usr/bin/python3.11")
    done = install(bare, "--remove")
    assert (done.returncode, bare.status()) == (0, "config-files")
    assert "koordctl uninstall --yes --package (with files)" in bare.log()
    assert bare.has("usr/bin/python3.11")
    assert install(bare, "--remove").returncode == 3


@pytest.mark.parametrize(
    ("options", "kept"),
    [(["--remove"], True), (["--purge"], False), (["--remove", "--purge"], False)],
    ids=["removed", "purged", "both"],
)
def test_only_purge_removes_configuration(bare: Machine, options: list[str], kept: bool) -> None:
    install(bare)
    write_rules(bare)
    for option in options:
        assert install(bare, option).returncode == 0
    assert (bare.has(RULES), bare.has("usr/bin/koordctl"), bare.has(RECORD)) == (kept, False, False)


@pytest.mark.parametrize(
    ("obstacle", "said"), [("refuse", "no kubelet here"), ("not-undone", "kubelet does not start")]
)
def test_a_debian_that_does_not_suit_is_left_as_it_was(bare: Machine, obstacle: str, said: str) -> None:
    before = bare.files()
    bare.on(obstacle)
    done = install(bare)
    assert done.returncode == 1
    assert said in done.stderr
    assert bare.files() == before
    assert bare.status() == ""


def test_a_debian_that_does_not_suit_keeps_what_its_operator_wrote(bare: Machine) -> None:
    """The second time the package's traces of the first are there as well."""
    write_rules(bare)
    before = bare.files()
    bare.on("refuse")
    for _ in range(2):
        assert install(bare).returncode == 1
        assert (bare.files(), bare.status()) == (before, "config-files")
    bare.off("refuse")
    assert install(bare).returncode == 0


def test_a_debian_whose_wiring_was_killed_is_wired_all_the_same(bare: Machine) -> None:
    bare.on("killed")
    done = install(bare)
    assert done.returncode == 0, done.stderr
    assert bare.log() == ["koordctl install --yes --package (with files)"] * 2


def test_a_debian_that_cannot_be_undone_keeps_the_package(bare: Machine) -> None:
    bare.on("not-undone", "stay")
    done = install(bare)
    assert done.returncode == 1
    assert "koord could not be removed" in done.stderr
    assert "is active" not in done.stdout
    assert (bare.status(), bare.has(RECORD), bare.has("usr/bin/python3.11")) == ("installed", True, True)
    bare.off("not-undone", "stay")
    assert install(bare).returncode == 0


def test_a_failed_upgrade_undoes_nothing(bare: Machine, made_bundle: Callable[[str], Path]) -> None:
    install(bare)
    bring(bare, made_bundle("2.0"))
    status = bare.root / "var/lib/dpkg/status"
    status.write_text(status.read_text().replace("Package: systemd", "Package: other"))
    done = install(bare)
    assert done.returncode == 1
    assert "the package could not be installed" in done.stderr
    assert bare.has(RECORD)
    assert bare.has("usr/bin/koordctl")


def test_a_debian_whose_package_was_never_wired_is_wired(bare: Machine) -> None:
    bare.on("refuse")
    bare.dpkg("--install", bare.root / "bundle/debian/python3.11_3.11.2-6_amd64.deb")
    bare.dpkg("--install", bare.root / "bundle/koord_1.0_amd64.deb")
    assert install(bare).returncode == 1
    assert bare.status() == "installed"
    bare.off("refuse")
    assert install(bare).returncode == 0
    assert bare.has(RECORD)


def test_a_newer_bundle_upgrades_a_debian(bare: Machine, made_bundle: Callable[[str], Path]) -> None:
    install(bare)
    bare.log()
    bring(bare, made_bundle("2.0"))
    assert install(bare).returncode == 0
    assert bare.log() == [
        "systemctl daemon-reload",
        "koordctl install --yes --package --only-grants (with files)",
        "systemctl kill --signal=USR2 --kill-whom=main koord-runtime-proxy.service",
        "systemctl try-restart koord-qosd.service",
        "koordctl install --yes --package (with files)",
    ]


@pytest.mark.parametrize("kubelet", [True, False], ids=["wired", "left alone"])
@pytest.mark.parametrize("system", [DEBIAN, FEDORA], ids=["debian", "elsewhere"])
def test_an_upgrade_leaves_kubelet_as_it_was_meant_to_be(
    elsewhere: Machine, made_bundle: Callable[[str], Path], system: str, kubelet: bool
) -> None:
    """By a record of koordctl's own."""
    (elsewhere.root / "etc/os-release").write_text(system)
    install(elsewhere)
    shutil.rmtree((elsewhere.root / RECORD).parent)
    record = records.create(NodeDisk(elsewhere.root), "1.0")
    if kubelet:
        record.begin(PointKubelet("kubelet.service", PlacedFile("/etc/drop-in.conf", ""), ""), Before())
    record.finish()
    bring(elsewhere, made_bundle("2.0"))
    elsewhere.log()
    assert install(elsewhere).returncode == 0
    assert ("--no-kubelet" in elsewhere.log()[-1]) == (not kubelet)


def test_elsewhere_it_makes_an_environment(elsewhere: Machine) -> None:
    before = elsewhere.files()
    done = install(elsewhere)
    assert done.returncode == 0, done.stderr
    assert elsewhere.log() == ["koordctl install --yes (without files)"]
    assert (elsewhere.root / "opt/koord/current").readlink() == Path("1.0")
    assert install(elsewhere, "--remove").returncode == 0
    assert elsewhere.log() == ["koordctl uninstall --yes (without files)"]
    assert elsewhere.files() - before <= {"opt", "var/lib/koord"}


@pytest.mark.parametrize("obstacle", ["refuse", "no-wheels"])
def test_elsewhere_a_failure_leaves_nothing(elsewhere: Machine, obstacle: str) -> None:
    (elsewhere.root / "opt").mkdir()
    before = elsewhere.files()
    elsewhere.on(obstacle)
    done = install(elsewhere)
    assert done.returncode == 1
    assert elsewhere.files() == before


@pytest.mark.parametrize("obstacle", ["not-undone", "killed"])
def test_elsewhere_the_programs_stay_while_there_is_something_to_undo(elsewhere: Machine, obstacle: str) -> None:
    elsewhere.on(obstacle)
    done = install(elsewhere)
    assert done.returncode == 1
    assert "the programs stay: run this again, or with --remove" in done.stderr
    assert (elsewhere.has(RECORD), elsewhere.has("opt/koord/current/bin/python")) == (True, True)
    (elsewhere.root / "state" / obstacle).unlink(missing_ok=True)
    assert install(elsewhere).returncode == 0
    assert install(elsewhere, "--remove").returncode == 0
    assert (elsewhere.has(RECORD), elsewhere.has("opt/koord")) == (False, False)


@pytest.mark.parametrize("gone", ["opt/koord/1.0", "opt/koord"])
def test_elsewhere_a_node_whose_programs_are_gone_is_repaired_and_not_forgotten(elsewhere: Machine, gone: str) -> None:
    install(elsewhere)
    shutil.rmtree(elsewhere.root / gone)
    elsewhere.log()
    done = install(elsewhere, "--remove")
    assert (done.returncode, elsewhere.log(), elsewhere.has(RECORD)) == (1, [], True)
    assert "this node is wired, and no koordctl in /opt/koord works" in done.stderr
    assert install(elsewhere).returncode == 0
    assert install(elsewhere, "--remove").returncode == 0
    assert not elsewhere.has(RECORD)


def test_elsewhere_purge_is_told_koordctl(elsewhere: Machine) -> None:
    install(elsewhere)
    elsewhere.log()
    assert install(elsewhere, "--purge").returncode == 0
    assert elsewhere.log() == ["koordctl uninstall --yes --purge (without files)"]


def test_elsewhere_what_a_killed_run_left_is_made_anew(elsewhere: Machine) -> None:
    (elsewhere.root / "opt/koord/1.0/bin").mkdir(parents=True)
    (elsewhere.root / "opt/koord/1.0/bin/python").write_text("#!/bin/sh\nexit 1\n")
    assert install(elsewhere).returncode == 0
    assert elsewhere.log() == ["koordctl install --yes (without files)"]


def test_elsewhere_what_a_killed_run_left_can_be_removed(elsewhere: Machine) -> None:
    (elsewhere.root / "opt/koord/1.0").mkdir(parents=True)
    assert install(elsewhere, "--remove").returncode == 0
    assert (elsewhere.has("opt/koord"), elsewhere.log()) == (False, [])
    assert install(elsewhere, "--remove").returncode == 3


def test_elsewhere_a_newer_bundle_upgrades(elsewhere: Machine, made_bundle: Callable[[str], Path]) -> None:
    install(elsewhere)
    elsewhere.log()
    bring(elsewhere, made_bundle("2.0"))
    done = install(elsewhere)
    assert done.returncode == 0, done.stderr
    assert elsewhere.log() == [
        "systemctl kill --signal=USR2 --kill-whom=main koord-runtime-proxy.service",
        "systemctl try-restart koord-qosd.service",
        "koordctl install --yes (without files)",
    ]
    assert versions(elsewhere) == ["2.0", "current"]


def test_elsewhere_the_version_that_the_proxy_runs_from_stays(
    elsewhere: Machine, made_bundle: Callable[[str], Path]
) -> None:
    install(elsewhere)
    bring(elsewhere, made_bundle("2.0"))
    elsewhere.on("stuck")
    done = install(elsewhere)
    assert done.returncode == 1
    assert "koord-runtime-proxy.service goes on with the former version, which stays" in done.stderr
    assert "is active" not in done.stdout
    assert versions(elsewhere) == ["1.0", "2.0", "current"]
    elsewhere.off("stuck")
    assert install(elsewhere).returncode == 0
    assert versions(elsewhere) == ["2.0", "current"]


def test_elsewhere_a_proxy_that_is_down_gets_no_signal(elsewhere: Machine, made_bundle: Callable[[str], Path]) -> None:
    install(elsewhere)
    bring(elsewhere, made_bundle("2.0"))
    elsewhere.off("active-koord-runtime-proxy.service")
    elsewhere.log()
    assert install(elsewhere).returncode == 0
    assert elsewhere.log() == [
        "systemctl try-restart koord-qosd.service",
        "koordctl install --yes (without files)",
    ]
    assert versions(elsewhere) == ["2.0", "current"]


def test_the_archive_is_the_same_every_time_and_what_its_sums_say(directory: Path, tmp_path: Path) -> None:
    name = bundle.top_level("1.0")
    archives = [bundle.pack(directory, name, tmp_path / part, 1_600_000_000) for part in ("first", "second")]
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as archive:
        members = archive.getmembers()
    run(["tar", "-xf", archives[0], "-C", tmp_path])
    assert {(member.uid, member.gid, member.mtime) for member in members} == {(0, 0, 1_600_000_000)}
    assert {member.mode for member in members} == {0o644, 0o755}
    lines = (tmp_path / name / bundle.SUMS).read_text().splitlines()
    sums = {path: value for value, path in (line.split() for line in lines)}
    found = {
        str(path.relative_to(tmp_path / name)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (tmp_path / name).rglob("*")
        if path.is_file()
    }
    assert sums == {path: value for path, value in found.items() if path != bundle.SUMS}


def test_what_a_minimal_debian_lacks(tmp_path: Path) -> None:
    """Computed by apt for a system where nothing is installed, whatever is installed here."""
    system = apt.Apt(tmp_path)
    system.update()
    base = system.closure(system.minimal())
    lacking = system.closure(["python3.11"]).keys() - base.keys()
    assert {"dpkg", "libc6", "tar", "coreutils"} <= base.keys()
    assert {"python3.11", "libpython3.11-stdlib", "libsqlite3-0", "libssl3"} <= lacking
    assert len(lacking) < 30
