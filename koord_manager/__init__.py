"""``koord-manager``: overcommit, policy and admission for the whole cluster, in two replicas of which one leads.

Every replica follows the API server and answers webhooks; the leader's controllers write. Data flows one way:
informers → ``view`` and nodes → ``nodelink`` → ``freshusage``, both of them → controllers (pure formulas of
``koord.model``) → patches. Importing the package loads nothing.
"""
