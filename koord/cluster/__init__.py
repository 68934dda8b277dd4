"""The frame of a cluster component: a process of which several replicas run and one leads.

``options`` are those that every component has, ``program`` is the process (log, limits, exit codes), ``frame`` runs a
``Component`` in it: caches, what every replica serves, what the leader does, and the order in which all of that ends;
``pages`` are its status pages and what is counted in every component. koord-manager is one such component.
"""
