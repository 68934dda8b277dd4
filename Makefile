# Every target does its own set-up: a virtual environment in .venv and, as root on Debian, the apt packages it needs.
#
#   make demo            the main job on a real containerd (without root: simulated)
#   make check           what a contributor runs: format, lint, types, contracts and unit tests (format: puts format right)
#   make test-pythons    the unit tests on each Python from 3.11 to 3.14 that is here (PYTHONS='3.12 3.13')
#   make test            that, exhaustive tests, integration tests on the host's containerd
#   make test-exhaustive an exception in the place of each call of the proxy's engine; 10,000s of steps of the relay;
#                        1,000 ticks of toy strategies; a kill at each write of strategies and kernel settings; slices of
#                        the models of eviction, of NodeLink and of koord-scheduler
#   make test-kubelet    a real kubelet, on containerd 1.6 and 2.x
#   make test-node       the node daemon under churn, kills and trouble (soak-node: N=1000 ticks, MINUTES=5)
#   make test-guest      a whole node with systemd, cgroup v2 and kubelet, in QEMU: installation, kernel files,
#                        the limits of pods, the CPU manager (soak-guest: strategies, faults and kills too, at length)
#   make cluster         a whole cluster with one real node behind the proxy, until Ctrl-C; prints KUBECONFIG
#   make test-cluster    the API client and koord-manager on a real control plane
#   make test-oldest-kubernetes   what a tenant may write, each account's rights and koord-manager, on the API server of
#                        the oldest release of Kubernetes that builds here (KUBERNETES=: of another one)
#   make test-kubelet-reads KUBERNETES=1.32 (or 1.34, 1.36): what that kubelet reads of edited containers
#   make soak-overcommit N=100000 generated nodes against an oracle that was written separately
#   make bench-proxy     what the proxy costs, side by side with a direct connection, on an idle and a saturated node
#   make bench-proxy-against   COMMIT=: this version's proxy beside an older one's
#   make bench-agent     what the node daemon costs with 75 pods, idle and busy (soak-agent: and its memory over 16 minutes;
#                        CLUSTER=1: what a cluster adds, with a real API server and koord-manager)
#   make bench-agent-against   COMMIT=: this version's node daemon in turn with an older one's
#   make bench-manager   what koord-manager costs with 2,000 nodes that report each 5 s, and how fresh its figures are
#   make bench-kube      what a cache of 100,000 pods costs: CPU, memory, stalls; and a POST beside bare aiohttp's
#   make bench-scheduler   decisions a second of koord-scheduler's plugins at 5,000 nodes, the memory of its state, and
#                        PODS=1000 pods bound on a real API server beside kube-scheduler, ROUNDS=3 turns of each
#   make soak-legality CLUSTERS=1000 generated clusters on which koord-scheduler and kube-scheduler have to agree
#   make bench-nodelink  what 2,000 mTLS connections cost a server, ours beside grpcio's
#   make bench-webhooks  what a created pod pays for koord-manager's webhooks, on a real API server
#   make bench-protection   what a latency-sensitive service notices of best-effort storms, by policy
#   make bench-idle      what cpu.idle brings latency-sensitive processes, against weights alone
#   make bench-decode    what reading 10,000 pods costs natively, against schema.read
#   make fuzz-proxy      malformed input and sieges of its memory for SECONDS=60 with SEED= (SIEGE=: one siege alone)
#   make fuzz-manager    koord-manager under each attack for SECONDS=60, beside NODES=2000 honest nodes and an API server's
#                        reviews (ATTACK=: those whose name it matches); fails where a bound is passed (STALL_S=0.5: wider on
#                        a busy machine)
#   make simulate-proxy  STEPS=1e6 of the proxy's relay between model ends, from SEED= on; LIFE=n runs one life again
#   make soak-nodelink   NODES=10000 nodes on NodeLink for a day: certificates, renewals, managers that go; which part of
#                        the time their figures are fresh
#   make soak-eviction   STEPS=1e6 of a node whose pods are evicted, from SEED= on, against the rules; LIFE=n runs one again
#   make soak-scheduler  STEPS=1e6 of replicas of koord-scheduler and everything that goes wrong between them and an API
#                        server, from SEED= on, against the rules; LIFE=n runs one life again
#   make soak-exhaustion N=50 times memory is filled for real, under a limit of the pods' own
#   make storm           N=1000 SIGKILLs of the proxy under load, RESTARTS=20 of containerd
#   make handover        N=1000 hand-overs of the proxy to a successor at random moments, with held calls in flight
#   make soak-proxy      the full counts of simulation (1e7), fuzz, storm and hand-overs
#   make crds            manifests/crds, from the structs
#   make screenshot      docs/top.svg: koordctl top on a node with a service and a best-effort hog
#   make docs            the pages of docs/ that are made of the code's tables
#   make size            lines, files and small pieces of each package (TREE=: of another checkout)
#   make chart           the templates of charts/koordinator that manifests/ already says
#   make images          the images that the chart names, as archives for ctr images import, without a container builder
#   make deb             the Debian package, in dist/ (bundle: everything for a node without a network)
#   make release VERSION=0.2.0   names the next release in the change log, the chart and the pages; says how to tag it

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# Where bytecode is not kept, each worker and each process of a test compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
# All bytecode of the tests is there: made once, not by each of the workers.
COLLECTED := $(VENV)/.collected

N ?= 1000
RESTARTS ?= 20
SECONDS ?= 60
SEED ?= 1
STEPS ?= 1e6
COMMIT ?= HEAD~1
# The files that have tests that go through every case: neither root nor network, but minutes.
EXHAUSTIVE = $(shell grep -rl --include='test_*.py' 'mark\.exhaustive' tests)
WORKERS = $$(($$(nproc) + 2))

.PHONY: demo screenshot docs test check lint format test-unit test-exhaustive test-integration test-kubelet test-node test-guest \
	soak-guest wheel deb bundle images lock chart clean bench-proxy bench-proxy-against bench-agent bench-agent-against bench-protection \
	bench-idle bench-decode bench-webhooks bench-manager bench-kube bench-scheduler bench-nodelink fuzz-proxy fuzz-manager simulate-proxy storm \
	handover cluster test-cluster test-oldest-kubernetes test-kubelet-reads soak-overcommit crds soak-proxy soak-agent soak-legality \
	soak-node soak-nodelink soak-eviction soak-scheduler soak-exhaustion release size \
	test-pythons

$(READY): pyproject.toml hatch_build.py $(wildcard protos/*/*.proto systemd/*)
	./integration/setup-python $(VENV)
	$(PYTHON) -m pip install --quiet --editable '.[dev]'
	touch $@

screenshot: $(READY)
	./integration/setup-host --quiet
	$(PYTHON) -m integration.demo.screenshot docs/top.svg

demo: $(READY)
	./integration/setup-host --quiet
	$(PYTHON) -m integration.demo

# UNPRIVILEGED: a command that runs what needs no root as another user.
test:
	$(UNPRIVILEGED) $(MAKE) check test-exhaustive
	$(MAKE) test-integration

check: lint test-unit

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

$(COLLECTED): $(READY)
	$(PYTHON) -m pytest tests --collect-only -q | tail -1
	touch $@

test-unit: $(COLLECTED)
	$(PYTHON) -m pytest tests -n $(WORKERS) --dist loadfile -m 'not exhaustive'

test-pythons: $(READY)
	$(PYTHON) -m pip install --quiet --editable '.[dev,pythons]'
	$(PYTHON) -m nox $(if $(PYTHONS),--python $(PYTHONS))

test-exhaustive: $(COLLECTED)
	$(PYTHON) -m pytest $(EXHAUSTIVE) -n $(WORKERS) --dist worksteal -m exhaustive

test-integration: $(READY)
	./integration/setup-host
	$(PYTHON) -m pytest integration --durations=8 \
		--ignore=integration/kubelet --ignore=integration/node --ignore=integration/guest \
		--ignore=integration/cluster

test-node: $(READY)
	./integration/setup-host
	$(PYTHON) -m integration.build containerd2
	$(PYTHON) -m pytest integration/node -s --durations=8

test-kubelet: $(READY)
	./integration/setup-host
	$(PYTHON) -m integration.build kubelet containerd2
	$(PYTHON) -m pytest integration/kubelet -s

test-guest: $(READY)
	./integration/setup-host --guest
	$(PYTHON) -m integration.guest.image
	$(PYTHON) -m integration.guest integration/guest -s --durations=16

cluster: $(READY)
	./integration/setup-host --cluster
	$(PYTHON) -m integration.cluster

test-cluster: $(READY)
	./integration/setup-host --cluster
	$(PYTHON) -m integration.build control-plane kubelet helm containerd2
	$(PYTHON) -m integration.cluster.quickstart.images
	$(PYTHON) -m pytest integration/cluster -n 2 --dist loadscope --no-loadscope-reorder --durations=8

# Not in .ci/run, since a second API server builds for minutes.
test-oldest-kubernetes: export KUBERNETES ?= oldest
test-oldest-kubernetes: $(READY)
	./integration/setup-host --cluster
	$(PYTHON) -m integration.build etcd apiserver helm
	$(PYTHON) -m pytest integration/cluster/test_manager.py integration/cluster/test_rights.py --durations=8

# What kubelet of release KUBERNETES= (1.32, 1.34, 1.36) makes of edited containers, and what it must not.
test-kubelet-reads: $(READY)
	./integration/setup-host --cluster
	./integration/setup-host --guest
	$(PYTHON) -m integration.build control-plane kubelet containerd2
	$(PYTHON) -m integration.guest.image
	env SOAK=1 $(PYTHON) -m pytest integration/cluster/test_kubelet_reads.py integration/guest/test_kubelet_reads.py -s

soak-overcommit: N = 100000
soak-overcommit: $(READY)
	$(PYTHON) -m tests.oracles.overcommit_run --nodes $(N)

soak-guest: $(READY)
	./integration/setup-host --guest
	$(PYTHON) -m integration.guest.image
	env SOAK=1 $(PYTHON) -m integration.guest integration/guest -s

bench-proxy: $(READY)
	./integration/setup-host
	$(PYTHON) -m bench.proxy

bench-proxy-against: $(READY)
	./integration/setup-host
	$(PYTHON) -m bench.proxy --against $(COMMIT)

bench-webhooks: $(READY)
	./integration/setup-host
	$(PYTHON) -m integration.build control-plane
	$(PYTHON) -m bench.webhooks

bench-manager: $(READY)
	./integration/setup-host
	$(PYTHON) -m integration.build control-plane
	$(PYTHON) -m bench.manager

bench-kube: $(READY)
	$(PYTHON) -m bench.kube

bench-scheduler: $(READY)
	./integration/setup-host
	$(PYTHON) -m integration.build control-plane
	$(PYTHON) -m bench.scheduler
	$(PYTHON) -m bench.schedulercluster $(if $(PODS),--pods $(PODS)) $(if $(ROUNDS),--rounds $(ROUNDS))

# Feasible nodes, scores, the volumes of claims and the victims of preemption, beside the real kube-scheduler's.
soak-legality: export CLUSTERS ?= 1000
soak-legality: $(READY)
	./integration/setup-host --cluster
	$(PYTHON) -m integration.build control-plane
	$(PYTHON) -m pytest integration/cluster/test_scheduler.py -s -k kube_scheduler

bench-nodelink: $(READY)
	$(PYTHON) -m bench.nodelink

bench-agent: $(READY)
	./integration/setup-host
	$(if $(CLUSTER),$(PYTHON) -m integration.build control-plane)
	$(PYTHON) -m bench.agent $(if $(CLUSTER),--cluster)

bench-agent-against: $(READY)
	./integration/setup-host
	$(PYTHON) -m bench.agent --against $(COMMIT)

soak-node: $(READY)
	./integration/setup-host
	$(PYTHON) -m integration.build containerd2
	env N=$(N) MINUTES=5 $(PYTHON) -m pytest integration/node -s

soak-agent: $(READY)
	./integration/setup-host
	$(PYTHON) -m bench.agent --soak

bench-protection: $(READY)
	./integration/setup-host
	$(PYTHON) -m pip install --quiet --editable '.[dev,bench]'
	$(PYTHON) -m bench.protection --plot docs/protection.svg

bench-idle: $(READY)
	$(PYTHON) -m bench.idle

bench-decode: $(READY)
	$(PYTHON) -m bench.decode

fuzz-proxy: $(READY)
	env SECONDS=$(SECONDS) SEED=$(SEED) $(PYTHON) -m integration.fuzz

fuzz-manager: $(READY)
	env SECONDS=$(SECONDS) NODES=$(NODES) ATTACK='$(ATTACK)' STALL_S=$(STALL_S) $(PYTHON) -m integration.managerfuzz

simulate-proxy: $(READY)
	env STEPS=$(STEPS) SEED=$(SEED) $(PYTHON) -m tests.runtimeproxy.simulation

soak-nodelink: NODES = 10000
soak-nodelink: $(READY)
	env NODES=$(NODES) $(PYTHON) -m tests.koord_manager.nodelink.simulation

soak-eviction: $(READY)
	env STEPS=$(STEPS) SEED=$(SEED) $(PYTHON) -m tests.qosd.eviction

soak-scheduler: $(READY)
	env STEPS=$(STEPS) SEED=$(SEED) $(PYTHON) -m tests.koord_scheduler.simulation

soak-exhaustion: N = 50
soak-exhaustion: $(READY)
	./integration/setup-host
	env EXHAUSTIONS=$(N) SEED=$(SEED) $(PYTHON) -m pytest integration/node/test_exhaustion.py -s

storm: $(READY)
	./integration/setup-host
	env N=$(N) RESTARTS=$(RESTARTS) SEED=$(SEED) $(PYTHON) -m integration.storm

handover: $(READY)
	env N=$(N) SEED=$(SEED) $(PYTHON) -m integration.handover

soak-proxy: fuzz-proxy storm handover
	$(MAKE) simulate-proxy STEPS=1e7

docs: $(READY)
	$(PYTHON) -m release.pages

size: $(READY)
	$(PYTHON) -m release.size $(TREE)

crds: $(READY)
	$(PYTHON) -m release.crds

wheel: $(READY)
	rm -f dist/koord-*.whl
	$(PYTHON) -m build --wheel --outdir dist .

# The versions that images, Debian package and bundle hold, and what their files hash to; each extra by itself.
lock: $(READY)
	$(PYTHON) -m pip install --quiet --editable '.[dev,lock]'
	for extra in node cluster scheduler; do \
		$(VENV)/bin/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-header \
			--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-annotate \
			--extra $$extra --output-file release/locks/$$extra.txt pyproject.toml; \
	done

chart: $(READY)
	$(PYTHON) -m release.chart

images: wheel
	$(PYTHON) -m release.images dist/koord-*.whl --output dist/images

release: $(READY)
	$(PYTHON) -m release.stamp '$(VERSION)'

deb: wheel
	$(PYTHON) -m release.deb dist/koord-*.whl --output dist

bundle: wheel
	$(PYTHON) -m release.bundle dist/koord-*.whl --output dist

format: $(READY)
	$(VENV)/bin/ruff check --fix --quiet .
	$(VENV)/bin/ruff format --quiet .

clean:
	rm -rf $(VENV) dist koord/pb koord/_version.py
