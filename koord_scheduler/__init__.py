"""koord-scheduler: places the cluster's pods.

Wiring: informers feed the state of `koord.scheduling`, its decisions go to the API server. Every replica follows the
cluster, so that the one that leads next knows it already; the leader alone decides and writes.
"""
