"""resctrl, emulated by a FUSE file system, since no machine at hand has RDT; processes and cgroups are real."""
