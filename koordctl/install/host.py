"""What a step works on: the disk, the service manager, the clock, and the kernel's values, all given from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from koordctl.install.disk import Disk
from koordctl.install.systemd import Systemd


@dataclass(frozen=True, slots=True)
class Host:
    """``restore_kernel`` puts back all kernel values that Koord holds, with the runtime at the socket that it is given,
    and returns what it could not put back.

    ``now`` is monotonic, in seconds; ``sleep`` takes seconds; ``say`` prints one line; ``wait_s`` is how long kubelet
    may take to be well again after a restart.
    """

    disk: Disk
    systemd: Systemd
    restore_kernel: Callable[[str], tuple[str, ...]]
    say: Callable[[str], None]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    wait_s: float
