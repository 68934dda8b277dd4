"""A directory that dpkg and scripts take for a machine: a shell, a package database, and commands that only tell.

``systemctl`` and ``koordctl`` write their arguments to a log and obey files in /state: ``refuse`` and ``stay`` make
koordctl's install and uninstall fail, ``not-undone`` leaves a part of an installation, ``killed`` does so once,
``kill-dpkg`` makes koordctl kill dpkg, as an operator in a hurry would, and ``stuck`` a proxy whose successor never
serves.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

APPLETS = (
    "basename",
    "cat",
    "cp",
    "dirname",
    "env",
    "grep",
    "head",
    "id",
    "ls",
    "ln",
    "mkdir",
    "mv",
    "readlink",
    "rm",
    "rmdir",
    "sha256sum",
    "sort",
    "tail",
    "touch",
)
RECORD = "var/lib/koord/install/record.jsonl"

_SYSTEMCTL = """\
#!/bin/sh
case "$1" in
    --version) echo "systemd 252 (252.38-1~deb12u1)"; exit ;;
    show) if [ -e "/state/active-$4" ]; then cat /state/main-pid; else echo 0; fi; exit ;;
    --quiet) [ -e "/state/active-$3" ]; exit ;;
esac
echo "systemctl $*" >>/state/log
case "$1" in
    kill) if [ ! -e /state/stuck ]; then echo 2 >/state/main-pid; fi ;;
esac
"""

_KOORDCTL = """\
#!/bin/sh
if [ "$1" = --version ]; then exit; fi
with=without; for file in /usr/lib/koord/*/bin/koordctl; do if [ -e "$file" ]; then with=with; fi; done
echo "koordctl $* ($with files)" >>/state/log
active=/state/active-koord-runtime-proxy.service
record=/var/lib/koord/install/record.jsonl
if [ -e /state/kill-dpkg ]; then kill -9 "$(cat /state/dpkg-pid)"; exit 1; fi
case "$1" in
    install)
        if [ -e /state/refuse ]; then echo "no kubelet here" >&2; exit 4; fi
        case "$*" in *--only-grants*) exit ;; esac
        mkdir -p /var/lib/koord/install && touch "$active"
        echo '{"type":"begun","step":{"type":"kubelet"}}' >"$record"
        if [ -e /state/not-undone ]; then echo "kubelet does not start" >&2; exit 4; fi
        if [ -e /state/killed ]; then rm /state/killed; kill -9 $$; fi
        echo '{"type":"complete"}' >>"$record" ;;
    uninstall)
        if [ ! -e "$record" ] && ls /state/active-* >/dev/null 2>&1; then
            echo "no record, but units are active" >&2; exit 3
        fi
        if [ -e /state/stay ]; then echo "kubelet does not start" >&2; exit 4; fi
        rm -rf /var/lib/koord/install "$active" ;;
esac
"""

_SLEEP = "#!/bin/sh\n"

_STATUS = """\
Package: {name}
Status: install ok installed
Maintainer: nobody <nobody@machine.invalid>
Architecture: amd64
Version: {version}
Description: pretended

"""


INSTALLED = {"python3.11": "3.11.2-6", "libc6": "2.36-9", "systemd": "252.38-1"}


class Machine:
    """``root`` is its file system, with only what these tests run; dpkg takes ``installed`` for installed."""

    def __init__(self, root: Path, installed: Mapping[str, str] = INSTALLED) -> None:
        self.root = root
        for directory in (
            "bin",
            "fake",
            "state",
            "tmp",
            "run/systemd/system",
            "var/lib/dpkg/updates",
            "etc",
            "dev",
            "var/lib/dpkg/info",
            "usr/bin",
            "usr/lib",
        ):
            (root / directory).mkdir(parents=True)
        (root / "dev/null").touch()
        _copy_program(Path("/bin/dash"), root)
        (root / "bin/sh").symlink_to("dash")
        shutil.copy2(shutil.which("busybox") or "busybox", root / "bin/busybox")
        for applet in APPLETS:
            (root / "bin" / applet).symlink_to("busybox")
        _copy_program(Path(shutil.which("flock") or "flock"), root)
        self.command("systemctl", _SYSTEMCTL)
        self.command("koordctl", _KOORDCTL)
        self.command("sleep", _SLEEP)
        status = "".join(_STATUS.format(name=name, version=version) for name, version in installed.items())
        (root / "var/lib/dpkg/status").write_text(status)
        for name in installed:
            (root / "state" / name).touch()  # dpkg forgets a package of which no file is left
            (root / f"var/lib/dpkg/info/{name}.list").write_text(f"/.\n/state/{name}\n/usr\n/usr/bin\n/usr/lib\n")
        (root / "state/main-pid").write_text("1\n")

    def command(self, name: str, text: str) -> None:
        """A command that is found before all others."""
        path = self.root / "fake" / name
        path.write_text(text)
        path.chmod(0o755)

    def give_dpkg(self) -> None:
        """dpkg itself, for the scripts that run it inside."""
        for program in ("dpkg", "dpkg-deb", "dpkg-query", "dpkg-split", "tar"):
            _copy_program(Path(shutil.which(program) or program), self.root)
        for needed in ("ldconfig", "start-stop-daemon", "diff"):
            self.command(needed, "#!/bin/sh\n")

    def on(self, *names: str) -> None:
        for name in names:
            (self.root / "state" / name).touch()

    def off(self, *names: str) -> None:
        for name in names:
            (self.root / "state" / name).unlink()

    def has(self, path: str) -> bool:
        return os.path.lexists(self.root / path)

    def dpkg(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run the host's dpkg on this machine; its scripts run inside."""
        script = f'echo $$ >"{self.root}/state/dpkg-pid"; exec dpkg "$@"'
        return self._run("sh", "-c", script, "sh", f"--root={self.root}", "--force-unsafe-io", *map(str, arguments))

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a program inside."""
        return self._run("chroot", str(self.root), *argv)

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def status(self) -> str:
        """The package's state as dpkg has it; "" if it knows no such package."""
        query = ["dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "--show", "-f", "${db:Status-Status}", "koord"]
        return subprocess.run(query, capture_output=True, text=True, check=False).stdout

    def log(self) -> list[str]:
        """The commands since the last time."""
        path = self.root / "state/log"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def files(self) -> set[str]:
        """Every path, without the machine's own furniture."""
        own = ("state", "dev", "fake", "bin", "lib", "lib64", "tmp", "var/lib/dpkg", "bundle")
        paths = {str(path.relative_to(self.root)) for path in self.root.rglob("*")}
        return {path for path in paths if not any(path == top or path.startswith(f"{top}/") for top in own)}

    def environ(self) -> dict[str, str]:
        return {"PATH": "/fake:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def _copy_program(program: Path, root: Path) -> None:
    """With the libraries that it is linked to, in their places."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout.split()
    for path in (program, *(Path(word) for word in listed if word.startswith("/"))):
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path.resolve(), target)
