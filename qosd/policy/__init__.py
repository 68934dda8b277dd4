"""The policy in force: the rules file, the cluster's objects, kubelet's own settings, facts of the host, and the CPU
pools."""
