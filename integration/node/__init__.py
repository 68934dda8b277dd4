"""koord-qosd on a real containerd and the kernel's own cgroup tree: what it promises, seen from outside."""
