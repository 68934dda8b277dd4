"""The pod source on a real containerd and the kernel's own cgroup tree."""
