"""What a scheduler reads of the cluster's objects, beyond what every component has a use for (``koord.model.core``).

Fields have the API's names in Python's spelling and its meaning: what is absent has the default that the API documents,
or None where absence says something of its own. What is not listed is skipped unread. No process of a node imports
this: what a pod's affinity costs to read, its agent does not pay.

pods         Pod, and the Node that it is placed on
storage      PersistentVolumeClaim, PersistentVolume, StorageClass, CSINode, CSIDriver, CSIStorageCapacity
owners       Service, ReplicationController, ReplicaSet, StatefulSet
policies     PodDisruptionBudget, PriorityClass
koordinator  PodGroup, Reservation, Device
"""
