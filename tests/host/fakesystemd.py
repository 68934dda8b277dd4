"""A systemd that keeps properties and writes the cgroup files of its units: all of a unit's, whenever told anything.

On a v2 tree of plain files. As the real one (252) it keeps quotas in whole percents in its drop-in files, writes a
unit's CPU set only if it was told one, and leaves a file alone that it does not know. The real one: integration/guest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from koord.host.systemd import INFINITY, Setting
from koord.host.systemd_bus import SOCKET, Call, SystemBus
from koord.model.cpuset import CPUSet

_FILES = {
    "MemoryMin": "memory.min",
    "MemoryLow": "memory.low",
    "MemoryHigh": "memory.high",
    "MemoryMax": "memory.max",
    "AllowedCPUs": "cpuset.cpus",
}
_DEFAULTS: dict[str, int | bytes] = {
    "CPUWeight": INFINITY,
    "CPUQuotaPerSecUSec": INFINITY,
    "CPUQuotaPeriodUSec": 100_000,
    "MemoryMin": 0,
    "MemoryLow": 0,
    "MemoryHigh": INFINITY,
    "MemoryMax": INFINITY,
}


class FakeSystemd(SystemBus):
    """``cgroups`` maps units to their directories; ``run`` is /run/systemd. ``refuses``: property → error.

    ``meanwhile`` is called once, between the next telling and its answer. ``is_busy``: it writes no cgroup file yet.
    """

    def __init__(self, cgroups: dict[str, Path], run: Path) -> None:
        super().__init__(run / SOCKET)  # where nothing listens
        self.cgroups, self.run = cgroups, run
        self.known: dict[str, dict[str, int | bytes]] = {unit: dict(_DEFAULTS) for unit in cgroups}
        self.calls: list[Call] = []
        self.refuses: dict[str, str] = {}
        self.is_down = False
        self.is_busy = False
        self.meanwhile: Callable[[], object] | None = None
        for unit in cgroups:
            (run / "transient").mkdir(parents=True, exist_ok=True)
            (run / "transient" / unit).touch()

    def tell(self, units: Sequence[Call]) -> list[str | None]:
        self.trouble = "no bus" if self.is_down else ""
        answers = [None if self.is_down else self._told(unit, settings) for unit, settings in units]
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return answers

    def reload(self) -> None:
        for unit in self.cgroups:
            self._write(unit)

    def drop_ins(self) -> list[str]:
        return sorted(path.name for path in self.run.rglob("*.conf"))

    def _told(self, unit: str, settings: Sequence[Setting]) -> str:
        self.calls.append((unit, settings))
        if unit not in self.known:
            return f"NoSuchUnit: Unit {unit} not loaded."
        if why := next((self.refuses[one.name] for one in settings if one.name in self.refuses), ""):
            return why
        directory = self.run / "transient" / f"{unit}.d"
        directory.mkdir(exist_ok=True)
        for setting in settings:
            self.known[unit][setting.name] = setting.value
            (directory / f"50-{setting.directive}.conf").write_text(f"{setting.directive}={setting.value!r}\n")
        self._write(unit)
        return ""

    def _write(self, unit: str) -> None:
        if self.is_busy:
            return
        known, directory = self.known[unit], self.cgroups[unit]
        weight, per_second, period = (
            int(known[name]) for name in ("CPUWeight", "CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec")
        )
        quota = "max" if per_second == INFINITY else str(per_second // 10_000 * 10_000 * period // 1_000_000)
        texts = {
            "cpu.idle": str(int(weight == 0)),
            "cpu.max": f"{quota} {period}",
            "memory.oom.group": "0",
        }
        if weight:
            texts["cpu.weight"] = "100" if weight == INFINITY else str(weight)
        for name, file in _FILES.items():
            value = known.get(name)
            if isinstance(value, bytes):
                texts[file] = str(CPUSet(int.from_bytes(value, "little")))
            elif value is not None:
                texts[file] = "max" if value == INFINITY else str(value)
        for file, text in texts.items():
            if (directory / file).exists():
                (directory / file).write_text(f"{text}\n")
