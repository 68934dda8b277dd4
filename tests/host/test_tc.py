"""Traffic control, told by kernel configurations and module lists."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from koord.host import tc
from koord.host.tc import Availability, Witnesses

CONFIG = "# CONFIG_NET_SCH_FQ is not set\nCONFIG_NET_SCH_HTB=y\nCONFIG_IFB=m\nCONFIG_NET_SCH_TBF_EXTRA=y\n"
MODULES = "ifb 16384 0 - Live 0x0000000000000000\nsch_tbf 20480 1 - Live 0x0\n"


@pytest.mark.parametrize(
    ("told", "name", "is_"),
    [
        (Witnesses(), "htb", Availability.UNKNOWN),
        (Witnesses(modules=""), "htb", Availability.UNKNOWN),
        (Witnesses(config=CONFIG), "htb", Availability.BUILT_IN),
        (Witnesses(config=CONFIG), "ifb", Availability.LOADABLE),
        (Witnesses(config=CONFIG, modules=MODULES), "ifb", Availability.LOADED),
        (Witnesses(config=CONFIG), "fq", Availability.ABSENT),
        (Witnesses(config=CONFIG), "tbf", Availability.ABSENT),
        (Witnesses(modules=MODULES), "tbf", Availability.LOADED),
        (Witnesses(builtin="kernel/net/sched/sch_ingress.ko\n"), "clsact", Availability.BUILT_IN),
        (Witnesses(dependencies="kernel/net/sched/sch_htb.ko.xz: kernel/x.ko\n"), "htb", Availability.LOADABLE),
        (Witnesses(dependencies="kernel/net/sched/sch_htb.ko:\n"), "tbf", Availability.ABSENT),
    ],
)
def test_availability(told: Witnesses, name: str, is_: Availability) -> None:
    assert tc.availability(told)[name] is is_


@pytest.mark.parametrize(
    ("packed", "boot", "config"),
    [(None, None, None), (None, "BOOT", "BOOT"), (gzip.compress(b"RUNNING", mtime=0), "BOOT", "RUNNING"),
     (b"not gzip", "BOOT", "BOOT"), (gzip.compress(b"cut", mtime=0)[:-5], None, None)],
)  # fmt: skip
def test_the_running_kernels_own_configuration_comes_first(
    tmp_path: Path, packed: bytes | None, boot: str | None, config: str | None
) -> None:
    if packed is not None:
        (tmp_path / "config.gz").write_bytes(packed)
    if boot is not None:
        (tmp_path / "config-6.1").write_text(boot)
    assert tc.witnesses(tmp_path, tmp_path, tmp_path, "6.1").config == config
