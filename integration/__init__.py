"""Tests and tools on real parts: containerd, the kernel's cgroup files, kubelet.

They need root, and no network once their programs are built.
"""
