"""Which rules are in force: the rules file, what kubelet says of itself, facts of the host, and the CPU pools."""
