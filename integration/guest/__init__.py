"""A whole node in QEMU: Debian with systemd, cgroup v2, containerd and kubelet, for what this machine cannot be."""
