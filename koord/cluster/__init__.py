"""The frame of a cluster component: a process of which several replicas run and one leads.

``options`` are those that every component has, ``program`` is the process (log, limits, exit codes), ``frame`` runs a
``Component`` in it: caches, what every replica serves, what the leader does, and the order in which all of that ends;
``pages`` are its status pages and what is counted in every component. koord-manager is one such component.

A new component has these parts (``integration/cluster/toycomponent.py`` is the shortest that runs):

1. ``__main__.py`` calls ``koord.service.startsignals.hold_back`` first, and imports the rest after it.
2. ``options.py``: a class that extends ``ComponentOptions``, and its ``Program``.
3. ``program.py``: a function from the command line to the work, for ``program.run``. It reads the options, calls
   ``program.set_up_log`` and, if the component serves many connections, ``program.prepare_for_clients``; it imports the
   component after that, so that ``--help`` loads nothing heavy, and returns ``frame.run(...)``.
4. A ``Component`` whose constructor makes its informers with ``frame.client``. Controllers write with
   ``frame.leaders_client`` and record Events with ``frame.recorder``.
5. ``metrics.py``, if it counts anything: a class that extends ``ComponentMetrics``.
"""
