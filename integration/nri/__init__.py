"""qosd's NRI plugin on a real containerd 2.x."""
