from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from koord.host.topology import Topology
from koord.model.priority import PriorityClass
from koord.model.reservation import NOTHING_RESERVED, Reserved
from koord.overcommit.amounts import ParsedAmounts
from koord.service import wholefile
from qosd.model.metric import Scope
from qosd.model.policy import EffectivePolicy, HostFacts, NodeSettings
from qosd.model.snapshot import NodeSnapshot, PodFacts, PodView
from qosd.predict import checkpoint
from qosd.predict.bank import MOST_MODELS, NODE, SYSTEM, Bank, class_key, confidence_after, pod_key, workload_key
from qosd.predict.predictor import Predictor, allocatable
from qosd.predict.reclaimable import CPU_QUANTILE, MEMORY_QUANTILE, Amount, PredictionSettings, predict
from qosd.predict.trainer import Trainer
from qosd.predict.workload import workload_name
from qosd.sense.node import NodeRow
from qosd.sense.system import SystemRow
from qosd.sense.usage import USAGE
from tests.qosd.podviews import machine, view
from tests.qosd.podviews import snapshot as picture

GIB = float(2**30)
START_S = 1_790_000_000.0
DAY_S = 24 * 3600.0
SETTINGS = PredictionSettings()
POLICY = EffectivePolicy()
MODELS = "models.json"


def pod(name: str, priority: PriorityClass = PriorityClass.PROD, cpu_milli: int = 4000, gib: int = 8) -> PodView:
    """A Guaranteed one of the namespace ``shop``."""
    made = view(name, "LS", "Guaranteed", containers=(), memory_request_bytes=gib * 2**30)
    return structs.replace(made, namespace="shop", priority_class=priority, cpu_request_milli=cpu_milli)


def snapshot(
    at_s: float,
    pods: Sequence[PodView],
    cpu: Mapping[str, float],
    system: float | None = 0.5,
    pods_age_s: float | None = 0.0,
) -> NodeSnapshot:
    """Every subject of ``cpu`` uses a GiB per core."""
    ages_s = {} if pods_age_s is None else {"pods": pods_age_s}
    node, of_system = {"": cpu[""]} if "" in cpu else {}, {"": system} if system else {}
    values = {
        USAGE[Scope.POD].cpu_usage_cores: cpu,
        USAGE[Scope.POD].memory_usage_bytes: _gib(cpu),
        NodeRow.cpu_usage_cores: node,
        NodeRow.memory_usage_bytes: _gib(node),
        SystemRow.system_cpu_usage_cores: of_system,
        SystemRow.system_memory_usage_bytes: _gib(of_system),
    }
    ns = int(at_s * 1e9)
    return NodeSnapshot(
        tick=0, wall_ns=ns, monotonic_ns=ns, policy=POLICY, topology=Topology(()),
        pods=tuple(pods), values=values, ages_s=ages_s,
    )  # fmt: skip


def _gib(cores: Mapping[str, float]) -> Mapping[str, float]:
    return {subject: each * GIB for subject, each in cores.items()}


def fed(
    bank: Bank, pods: Sequence[PodView], cpu: Mapping[str, float], hours: float, system: float | None = 0.5
) -> float:
    """Observe for ``hours`` at a tick every 6 s; the Unix time at the end."""
    trainer, at_s = Trainer(bank), START_S
    while at_s < START_S + hours * 3600:
        trainer.observe(snapshot(at_s, pods, cpu, system))
        at_s += 6
    return at_s


# training


def test_a_minute_without_measurements_teaches_nothing() -> None:
    bank, web = Bank(), pod("web")
    fed(bank, [web], {}, hours=0.1, system=None)
    assert set(bank) == {class_key(each) for each in PriorityClass} - {class_key(PriorityClass.PROD)}


def test_an_unreadable_pod_keeps_its_class_untrained_and_no_other() -> None:
    bank, web, batch = Bank(), pod("web"), pod("batch", PriorityClass.BATCH)
    fed(bank, [web, batch], {"/kubepods/podbatch": 1.0, "": 3.0}, hours=0.1)
    assert class_key(PriorityClass.PROD) not in bank
    assert pod_key("web") not in bank
    assert {class_key(PriorityClass.BATCH), NODE, SYSTEM} <= set(bank)


def test_a_class_learns_the_sum_of_its_pods() -> None:
    bank, pods = Bank(), [pod("a"), pod("b")]
    fed(bank, pods, {"/kubepods/poda": 1.0, "/kubepods/podb": 3.0}, hours=0.1)
    model = bank.get(class_key(PriorityClass.PROD))
    assert model is not None
    assert model.cpu.percentile(0.95) == pytest.approx(4.217129, rel=1e-5)


def test_too_few_ticks_are_no_minute() -> None:
    bank, trainer = Bank(), Trainer(Bank())
    for at_s in (START_S, START_S + 30, START_S + 61):
        trainer.observe(snapshot(at_s, [pod("web")], {"/kubepods/podweb": 1.0}))
    assert len(bank) == 0


def test_a_model_without_samples_goes_and_its_workload_stays() -> None:
    bank = Bank()
    now_s = fed(bank, [pod("web-5d4f8c7b9-x2x4z")], {"/kubepods/podweb-5d4f8c7b9-x2x4z": 1.0}, hours=0.1)
    bank.expire(now_s - DAY_S)
    assert pod_key("web-5d4f8c7b9-x2x4z") in bank
    bank.expire(now_s + 3600)
    assert set(bank) == {workload_key("shop", "web")}
    bank.expire(now_s + 15 * DAY_S)
    assert len(bank) == 0


# how many


@pytest.mark.parametrize("key", [pod_key, lambda name: workload_key("batch", name)], ids=["pods", "workloads"])
def test_the_longest_unused_go_when_there_are_too_many(key: Callable[[str], str]) -> None:
    bank = Bank()
    bank.add(NODE, 1.0, GIB, START_S)
    for number in range(MOST_MODELS + 10):
        bank.add(key(f"{number}"), 1.0, GIB, START_S + number / 1000)
        bank.add(key("0"), 1.0, GIB, START_S + number / 1000)  # used all the time
    assert len(bank) == MOST_MODELS + 1
    assert {key("0"), key(f"{MOST_MODELS + 9}"), NODE} <= set(bank)
    assert not {key(f"{number}") for number in range(1, 10)} & set(bank)


def test_two_weeks_of_cron_jobs_are_one_model_each() -> None:
    bank, at_s = Bank(), START_S
    for run in range(14 * 288):
        at_s = START_S + 300 * run
        for job in range(10):
            bank.add(workload_key("batch", workload_name(f"job{job}-{int(at_s) // 60}-x2bqz")), 0.5, GIB, at_s)
        bank.expire(at_s)
    assert set(bank) == {workload_key("batch", f"job{job}") for job in range(10)}


@pytest.mark.parametrize("priority", [PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE])
def test_who_is_never_predicted_has_no_model_of_its_own(priority: PriorityClass) -> None:
    bank, job = Bank(), pod("job-x2bqz", priority)
    fed(bank, [job], {job.cgroup: 1.0, "": 2.0}, hours=0.1)
    assert set(bank) == {NODE, SYSTEM, *map(class_key, PriorityClass)}


def test_a_file_with_too_many_models_gives_the_newest(tmp_path: Path) -> None:
    file, bank = tmp_path / MODELS, Bank()
    bank.add(workload_key("shop", "web"), 1.0, GIB, START_S)
    wholefile.write(checkpoint.encode(bank), file)
    document = json.loads(file.read_text())
    one = document["models"].pop(workload_key("shop", "web"))
    names = [f"web{number}" for number in range(MOST_MODELS + 5)]
    document["models"] = {
        workload_key("shop", name): {**one, "updated": START_S + number}
        for number, name in reversed(list(enumerate(names)))
    }
    file.write_text(json.dumps(document))
    again = Bank()
    assert checkpoint.load(again, file) == ()
    assert set(again) == {workload_key("shop", name) for name in names[5:]}


def test_models_are_spelled_while_they_learn() -> None:
    """In another thread; each is whole, and nothing is held meanwhile."""
    bank = Bank()
    for number in range(300):
        bank.add(pod_key(f"{number}"), 1.0, GIB, START_S)
    stop = threading.Event()

    def learn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            bank.add(pod_key(f"{number % 600}"), number % 7, GIB, START_S + number)
            bank.expire(START_S + number)

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        for _ in range(20):
            models = json.loads(checkpoint.encode(bank))["models"]
            assert len(models) >= 300
            assert all(bool(model["cpu"]["weights"]) == bool(model["cpu"]["total"]) for model in models.values())
    finally:
        stop.set()
        thread.join()


# while nobody has told the pods


@pytest.mark.parametrize("pods_age_s", [None, 91.0])
def test_unknown_pods_are_neither_forgotten_nor_learnt_as_none(pods_age_s: float | None) -> None:
    bank = Bank()
    prod = class_key(PriorityClass.PROD)
    for minute in range(200):
        for key in (pod_key("web"), prod):
            bank.add(key, 2.0, GIB, START_S - 3600 - 60 * minute)
    before = checkpoint.encode(bank)
    trainer = Trainer(bank)
    for tick in range(400):
        trainer.observe(snapshot(START_S + 6 * tick, [], {"": 0.5}, pods_age_s=pods_age_s))
    learnt = json.loads(checkpoint.encode(bank))["models"]
    assert {key: learnt[key] for key in (pod_key("web"), prod)} == json.loads(before)["models"]
    assert set(learnt) == {pod_key("web"), prod, NODE, SYSTEM}


def test_a_pod_that_is_not_among_the_known_ones_is_forgotten_in_its_time() -> None:
    bank = Bank()
    bank.add(pod_key("gone"), 2.0, GIB, START_S - 3600)
    trainer = Trainer(bank)
    for tick in range(0, 40 * 60, 6):
        trainer.observe(snapshot(START_S + tick, [pod("web")], {"/kubepods/podweb": 1.0, "": 2.0}))
        if tick == 20 * 60:
            assert pod_key("gone") in bank, "its half hour began when the pods were told"
    assert pod_key("gone") not in bank
    assert pod_key("web") in bank


def test_nothing_is_predicted_of_unknown_pods() -> None:
    predictor = Predictor(lambda bank: None)
    for tick in range(14):
        assert predictor.observe(snapshot(START_S + 6 * tick, [], {"": 1.0}, pods_age_s=None)) is None
    assert predictor.newest is None


# a clock that was ahead


@pytest.mark.parametrize("ahead_s", [DAY_S, 7 * DAY_S, 365 * DAY_S])
def test_models_from_a_date_that_the_clock_was_set_back_from_go_like_any(ahead_s: float) -> None:
    bank, web = Bank(), workload_key("shop", "web")
    for key in (pod_key("web"), web):
        bank.add(key, 1.0, GIB, START_S + ahead_s)
    bank.expire(START_S)
    assert set(bank) == {pod_key("web"), web}, "a clock that was set back expires nothing"
    bank.expire(START_S + 31 * 60)
    assert set(bank) == {web}
    bank.expire(START_S + 15 * DAY_S)
    assert len(bank) == 0


@pytest.mark.parametrize("ahead_s", [7 * DAY_S, 365 * DAY_S])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_five_minutes_ahead_are_forgotten_in_a_day(tmp_path: Path, ahead_s: float, is_restarted: bool) -> None:
    bank, key = Bank(), class_key(PriorityClass.PROD)
    for minute in range(5):
        bank.add(key, 100.0, 100 * GIB, START_S + ahead_s + minute * 60)
    if is_restarted:
        wholefile.write(checkpoint.encode(bank), tmp_path / MODELS)
        bank = Bank()
        assert checkpoint.load(bank, tmp_path / MODELS) == ()
    model = bank.get(key)
    assert model is not None
    assert model.confidence(START_S) < 0.01, "five samples are no evidence of a day"
    for minute in range(1440):
        bank.add(key, 1.0, GIB, START_S + minute * 60)
    now_s = START_S + DAY_S
    assert model.cpu.percentile(CPU_QUANTILE) == pytest.approx(1.035762, rel=1e-5)
    assert model.memory.percentile(MEMORY_QUANTILE) == pytest.approx(1046.740 * 2**20, rel=1e-5)
    assert model.confidence(now_s) == pytest.approx(0.75, abs=0.01)
    assert model.updated_s == now_s - 60


@pytest.mark.parametrize(
    ("pod_name", "workload"),
    [
        ("web", "web"),
        ("web-5d4f8c7b9-x2x4z", "web"),
        ("my-web-6b7d9f8c45-bc2df", "my-web"),
        ("node-exporter-7xk2p", "node-exporter"),
        ("mysql-0", "mysql"),
        ("mysql-12345", "mysql"),
        ("kube-proxy", "kube-proxy"),
        ("report-29384760-x2bqz", "report"),
        ("my-report-1767225600-x2bqz", "my-report"),
        ("report-29384760-3-x2bqz", "report"),  # an indexed Job of a CronJob
        ("report-1234567-x2bqz", "report-1234567"),
        ("report-29384760", "report-29384760"),
        ("-", "-"),
    ],
)
def test_workload_names(pod_name: str, workload: str) -> None:
    assert workload_name(pod_name) == workload


# confidence


@pytest.mark.parametrize(("hours", "confidence"), [(0.0, 0.0), (12, 0.5), (24, 0.75), (36, 0.875)])
def test_confidence_grows_with_what_was_learnt(hours: float, confidence: float) -> None:
    bank = Bank()
    for minute in range(int(hours * 60)):
        bank.add("m", 1.0, GIB, START_S + minute * 60)
    model = bank.get("m")
    assert (model.confidence(START_S + hours * 3600) if model else 0.0) == pytest.approx(confidence, abs=0.001)
    assert confidence_after(hours * 3600) == pytest.approx(confidence)


def test_confidence_fades_when_samples_stay_away() -> None:
    bank = Bank()
    now_s = fed(bank, [], {"": 1.0}, hours=24)
    model = bank.get(NODE)
    assert model is not None
    assert model.confidence(now_s + DAY_S / 2) == pytest.approx(model.confidence(now_s) / 2)


# reclaimable


NODE_SIZE = Amount(32_000, 64 * GIB)
CPU_4 = 4.217129 * 1000 * 1.1  # what a pod that uses 4 cores is predicted to need at most
CPU_HALF = 0.539464 * 1000 * 1.1


def test_nothing_is_reclaimable_before_models_have_learnt() -> None:
    bank, web = Bank(), pod("web")
    now_s = fed(bank, [web], {"/kubepods/podweb": 1.0}, hours=2)
    found = predict(bank, [web], NODE_SIZE, now_s, SETTINGS)
    assert found.reclaimable == Amount()
    assert found.peak == Amount(4000, 8 * GIB)
    assert found.unpredicted == ("shop/web",)
    assert 0 < found.confidence < 0.2


def test_a_pod_offers_what_it_requested_above_its_peak() -> None:
    bank, web = Bank(), pod("web", cpu_milli=8000)
    now_s = fed(bank, [web], {"/kubepods/podweb": 4.0, "": 4.5}, hours=25)
    found = predict(bank, [web], NODE_SIZE, now_s, SETTINGS)
    # by class: 8000 - system 0.5 cores - prod 4 cores
    assert found.reclaimable.cpu_milli == pytest.approx(8000 - CPU_4 - CPU_HALF, rel=1e-4)
    assert found.peak.cpu_milli == pytest.approx(CPU_4 + CPU_HALF, rel=1e-4)
    assert found.unpredicted == ()
    assert found.confidence > 0.75


def test_a_terminating_pod_offers_nothing_and_needs_what_it_uses() -> None:
    bank, web = Bank(), pod("web", cpu_milli=8000)
    now_s = fed(bank, [web], {"/kubepods/podweb": 4.0, "": 4.5}, hours=25)
    found = predict(
        bank, [msgspec.structs.replace(web, facts=PodFacts(deletion_unix_s=now_s + 30))], NODE_SIZE, now_s, SETTINGS
    )
    assert found.reclaimable == Amount()
    assert found.peak.cpu_milli == pytest.approx(CPU_4 + CPU_HALF, rel=1e-4)


def test_never_more_than_the_node_has_left() -> None:
    bank, web = Bank(), pod("web", cpu_milli=8000)
    now_s = fed(bank, [web], {"/kubepods/podweb": 4.0}, hours=25)
    found = predict(bank, [web], Amount(5_500, 64 * GIB), now_s, SETTINGS)
    assert found.reclaimable.cpu_milli == pytest.approx(5500 - CPU_4 - CPU_HALF, rel=1e-4)


def test_a_new_pod_of_a_known_workload_is_predicted_at_once() -> None:
    bank, old = Bank(), pod("web-5d4f8c7b9-x2x4z", cpu_milli=8000)
    now_s = fed(bank, [old], {old.cgroup: 4.0}, hours=25)
    found = predict(bank, [pod("web-6b7d9f8c45-bc2df", cpu_milli=8000)], NODE_SIZE, now_s, SETTINGS)
    assert found.unpredicted == ()
    assert found.reclaimable.cpu_milli > 0


@pytest.mark.parametrize("priority", [PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE])
def test_other_classes_offer_nothing(priority: PriorityClass) -> None:
    bank, job = Bank(), pod("job", priority)
    now_s = fed(bank, [job], {"/kubepods/podjob": 0.1}, hours=25)
    assert predict(bank, [job], NODE_SIZE, now_s, SETTINGS).reclaimable == Amount()


# checkpoints


def test_without_a_file_there_are_no_models(tmp_path: Path) -> None:
    bank = Bank()
    assert checkpoint.load(bank, tmp_path / "models.json") == ()
    assert len(bank) == 0


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "version None"),
        ('{"version": 2, "models": {}}', "version 2, this daemon reads 1"),
    ],
)
def test_an_unusable_file_is_kept_aside(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "models.json"
    file.write_text(content)
    with pytest.raises(checkpoint.CheckpointUnusable, match=why):
        checkpoint.load(Bank(), file)
    assert (tmp_path / "models.json.unreadable").read_text() == content
    assert not file.exists()


def test_one_bad_model_costs_itself_only(tmp_path: Path) -> None:
    file, bank, again = tmp_path / "models.json", Bank(), Bank()
    fed(bank, [], {"": 1.0}, hours=0.2)
    wholefile.write(checkpoint.encode(bank), file)
    document = json.loads(file.read_text())
    undated = {**document["models"][NODE], "updated": float("inf")}
    document["models"] |= {"pod/x": {"cpu": 1}, "pod/y": None, "pod/z": undated}
    document["models"][SYSTEM]["cpu"]["weights"] = {"999": 1}
    file.write_text(json.dumps(document))
    problems = checkpoint.load(again, file)
    assert len(problems) == 4
    assert set(again) == set(bank) - {SYSTEM}


def test_models_come_back(tmp_path: Path) -> None:
    file, bank, again = tmp_path / "state" / "models.json", Bank(), Bank()
    now_s = fed(bank, [pod("web")], {"/kubepods/podweb": 4.0, "": 5.0}, hours=25)
    wholefile.write(checkpoint.encode(bank), file)
    assert checkpoint.load(again, file) == ()
    before, after = (predict(one, [pod("web")], NODE_SIZE, now_s, SETTINGS) for one in (bank, again))
    assert replace(after, confidence=before.confidence) == before
    assert after.confidence == pytest.approx(before.confidence)
    assert os.listdir(file.parent) == ["models.json"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    file, bank = tmp_path / "models.json", Bank()
    wholefile.write(checkpoint.encode(bank), file)
    before = file.read_bytes()
    (tmp_path / "models.json.tmp").mkdir()
    with pytest.raises(OSError):
        wholefile.write(checkpoint.encode(bank), file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("by_rules_milli", "by_kubelet", "cpus_milli", "memory_bytes"),
    [
        (0, NOTHING_RESERVED, 16_000, 1000),
        (500, NOTHING_RESERVED, 15_500, 1000),
        (500, Reserved(2000, 300), 14_000, 700),
        (3000, Reserved(2000, 300), 13_000, 700),
    ],
)
def test_what_rules_and_kubelet_reserve_is_offered_to_nobody(
    by_rules_milli: int, by_kubelet: Reserved, cpus_milli: int, memory_bytes: int
) -> None:
    node = NodeSettings(reserved_cpu_milli=by_rules_milli, kubelet_reserved=by_kubelet)
    policy = EffectivePolicy(node=node, host=HostFacts(memory_total_bytes=1000))
    assert allocatable(picture(policy)) == Amount(float(cpus_milli), float(memory_bytes))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (ParsedAmounts(), Amount(15_500.0, 1000.0)),
        (ParsedAmounts(12_000, 600), Amount(12_000.0, 600.0)),
        (ParsedAmounts(cpu_milli=0), Amount(0.0, 1000.0)),
        (ParsedAmounts(memory_bytes=600), Amount(15_500.0, 600.0)),
    ],
    ids=["nothing", "both", "CPU alone", "memory alone"],
)
def test_what_the_node_states_goes_before_what_the_host_has(stated: ParsedAmounts, expected: Amount) -> None:
    policy = EffectivePolicy(node=NodeSettings(reserved_cpu_milli=500), host=HostFacts(memory_total_bytes=1000))
    assert allocatable(picture(policy), stated) == expected


@pytest.mark.parametrize("stated", [ParsedAmounts(), ParsedAmounts(300, 1 << 30)], ids=["by the host", "by the Node"])
def test_nothing_above_allocatable_is_reclaimable(stated: ParsedAmounts) -> None:
    """A day of 0.1 cores leaves a pod of 4 cores most of them, on a node that has them."""
    predictor, web = Predictor(lambda bank: None, PredictionSettings(cold_start_s=0.0)), pod("web")
    for second in range(0, 3600, 6):
        taken = on_16_cpus(snapshot(START_S + second, [web], {web.cgroup: 0.1, "": 0.3}, system=0.1))
        predictor.observe(taken, stated)
    prediction = predictor.newest
    assert prediction is not None
    room_milli = allocatable(taken, stated).cpu_milli - prediction.peak.cpu_milli
    assert 0 < prediction.reclaimable.cpu_milli <= room_milli
    assert (prediction.reclaimable.cpu_milli == room_milli) is (stated.cpu_milli is not None)


def on_16_cpus(taken: NodeSnapshot) -> NodeSnapshot:
    return msgspec.structs.replace(taken, topology=machine(16))
