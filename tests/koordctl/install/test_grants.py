"""The drop-in with what koord-qosd's features need: written, brought up to date, taken back, gone with the rest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from koordctl.install import plan
from koordctl.install import record as records
from koordctl.install.execute import RolledBack
from koordctl.install.plan import Flavour
from koordctl.install.prepare import Prepared, decide_grants
from koordctl.install.steps import StartUnits, Step
from koordctl.node import grants
from koordctl.node.units import UNITS
from koordctl.views import install as view
from tests.koordctl.install.runs import changes, install, uninstall
from tests.koordctl.install.world import Hand, Killed, Runtime, World, facts

QOSD, _, PROXY = UNITS
DROP_IN = grants.DROP_IN.lstrip("/")
RULES = "etc/koord/qosd-rules.yaml"
MIN_FREE = "proc/sys/vm/min_free_kbytes"
ON, OFF = "node: {features: {SystemConfig: true}}\n", "node: {features: {SystemConfig: false}}\n"
WITH_OOM = "node: {features: {SystemConfig: true, OOMScoreAdj: true}}\n"
PLAIN = {"kubelet.service", "containerd.service"}
WIRED = PLAIN | set(UNITS)
EXPECTED = (
    "# Written by koordctl install: what the features that are on need. After a change of the rules, run it again.\n"
    "[Service]\n"
    "# SystemConfig: write the kernel's own settings\n"
    f"ReadWritePaths=-/{MIN_FREE}\n"
)


def put(world: World, path: str, text: str) -> None:
    (world.root / path).parent.mkdir(parents=True, exist_ok=True)
    (world.root / path).write_text(text)


def with_rules(world: World, rules: str) -> World:
    """A kernel with min_free_kbytes, and what its operator says of features."""
    put(world, MIN_FREE, "67584\n")
    put(world, RULES, rules)
    return world


def installed(world: World, flavour: Flavour = Flavour.VENV) -> World:
    if flavour is Flavour.PACKAGE:
        for name, text in facts(world.root).programs.units.items():
            put(world, f"usr/lib/systemd/system/{name}", text)
    install(world.machine(), plan.steps(facts(world.root, flavour), with_kubelet=True))
    world.commands.clear()
    return world


def text(world: World) -> str:
    file = world.root / DROP_IN
    return file.read_text() if file.exists() else ""


def only_grants(world: World) -> Prepared:
    """What ``koordctl install --only-grants`` finds to do."""
    machine = world.machine()
    record = records.load(machine.disk)
    assert record is not None
    return decide_grants(
        machine.disk, facts(world.root, ours=record.own_paths, running=frozenset(UNITS) & world.active)
    )


def restarts(world: World) -> list[str]:
    return [line.removeprefix("restart ") for line in world.commands if line.startswith("restart ")]


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize(("rules", "expected"), [(ON, EXPECTED), (OFF, ""), ("spec: {}\n", "")])
def test_an_installation_grants_what_is_on_and_takes_all_of_it_back(
    world: World, rules: str, expected: str, flavour: Flavour
) -> None:
    before = with_rules(world, rules).snapshot()
    installed(world, flavour)
    assert text(world) == expected
    assert ("ReadWritePaths=-/proc" in "".join(world.runs[QOSD])) == bool(expected), "it runs with them"
    assert changes(world, programs=facts(world.root, flavour).programs).steps == ()
    assert uninstall(world.machine()) == ()
    kept = {path: found for path, found in world.snapshot().items() if not path.startswith("usr/lib/systemd/system/k")}
    assert kept == {path: found for path, found in before.items() if not path.startswith("usr/lib/systemd/system/k")}
    assert world.active == PLAIN


@pytest.mark.parametrize(
    ("former", "now", "expected"), [(OFF, ON, EXPECTED), (ON, OFF, ""), (ON, WITH_OOM, f"{EXPECTED}# OOMScoreAdj: ")]
)
def test_after_a_change_of_the_rules_it_is_brought_up_to_date(
    world: World, former: str, now: str, expected: str
) -> None:
    before = with_rules(world, former).snapshot()
    installed(world)
    put(world, RULES, now)
    steps = changes(world).steps
    install(world.machine(), steps)
    assert text(world).startswith(expected)
    assert bool(text(world)) == bool(expected)
    assert restarts(world) == [QOSD]
    assert changes(world).steps == ()
    put(world, RULES, former)
    assert uninstall(world.machine()) == ()
    assert (world.snapshot(), world.active) == (before, PLAIN)


@pytest.mark.parametrize(
    ("rules", "note"),
    [
        (ON, '{"type":"file","group":"","name":"vm.min_free_kbytes","path":"/x","inode":0,"base":1,"ours":[2]}'),
        (
            "node: {features: {OOMScoreAdj: true}}\n",
            '{"type":"attributes","name":"oom_score_adj","cgroup":"/a","path":"/x","inode":3,"values":[-500],'
            '"original":0,"tasks":[[7,9,0]]}',
        ),
        (
            "spec: {resourceUsedThresholdWithBE: {enable: true}}\nnode: {cpuSuppress: {policy: pressure}}\n",
            '{"type":"attributes","name":"sched_slice_us","cgroup":"/a","path":"/x","inode":3,"values":[100000],'
            '"original":0}',
        ),
    ],
)
def test_values_that_are_still_held_keep_their_grant(world: World, rules: str, note: str) -> None:
    """Else koord-qosd could not put them back."""
    installed(with_rules(world, rules))
    granted = text(world)
    put(world, RULES, OFF)
    (world.root / "run/koord/undo.jsonl").write_text(f"{{}}\n{note}\n")
    assert (bool(granted), changes(world).steps) == (True, ())
    (world.root / "run/koord/undo.jsonl").write_text("{}\n")
    install(world.machine(), changes(world).steps)
    assert text(world) == ""


def test_a_change_that_fails_leaves_the_former_grants(world: World, runtime: Runtime) -> None:
    installed(with_rules(world, ON))
    put(world, RULES, OFF)
    ran = dict(world.runs)
    runtime.refuses["RunPodSandbox"] = "no room"
    with pytest.raises(RolledBack, match="no room"):
        install(world.machine(), changes(world).steps)
    assert (text(world), world.runs, world.active) == (EXPECTED, ran, WIRED)


def test_a_plan_shows_it(world: World) -> None:
    installed(with_rules(world, OFF))
    put(world, RULES, ON)
    shown = view.plan(changes(world).steps, world.machine().disk.look, full=True)
    assert f"   make {grants.DROP_IN}\n" in shown
    assert f"   | +ReadWritePaths=-/{MIN_FREE}\n" in shown


# --- the grants alone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("former", "now", "expected"), [(OFF, ON, EXPECTED), (ON, OFF, "")])
def test_the_grants_alone(world: World, former: str, now: str, expected: str) -> None:
    """As a package's upgrade has it: what an operator has stopped stays so, and no sandbox is made."""
    before = with_rules(world, former).snapshot()
    installed(world)
    world.active.discard(PROXY)
    put(world, RULES, now)
    found = only_grants(world)
    install(world.machine(), found.steps)
    assert text(world) == expected
    assert world.commands == ["daemon-reload", f"restart {QOSD}"]
    assert world.active == WIRED - {PROXY}
    assert only_grants(world).steps == ()
    put(world, RULES, former)
    assert uninstall(world.machine()) == ()
    assert (world.snapshot(), world.active) == (before, PLAIN)


def test_a_daemon_that_does_not_run_is_not_started_for_its_grants(world: World) -> None:
    installed(with_rules(world, OFF))
    world.active.discard(QOSD)
    put(world, RULES, ON)
    steps = only_grants(world).steps
    assert not [step for step in steps if isinstance(step, StartUnits)]
    install(world.machine(), steps)
    assert (text(world), world.commands) == (EXPECTED, ["daemon-reload"])


def test_a_daemon_that_does_not_come_back_has_its_former_grants(world: World) -> None:
    installed(with_rules(world, OFF))
    put(world, RULES, ON)
    ran = dict(world.runs)
    world.fails[f"restart {QOSD}"] = "Job failed."
    with pytest.raises(RolledBack, match="Job failed"):
        install(world.machine(), only_grants(world).steps)
    assert (text(world), world.runs) == ("", ran)


def test_killed_while_the_grants_change(new_world: Callable[[], World]) -> None:
    """What was begun is undone by the next run, and all of it by an uninstallation."""
    moment, hand = 1, Hand()
    while hand.moments >= hand.at:
        world = new_world()
        before = with_rules(world, OFF).snapshot()
        installed(world)
        put(world, RULES, ON)
        steps: tuple[Step, ...] = only_grants(world).steps
        hand = Hand(moment)
        with suppress(Killed):
            install(world.machine(hand), steps)
        install(world.machine(), ())  # which undoes what was begun
        install(world.machine(), only_grants(world).steps)
        assert (moment, text(world)) == (moment, EXPECTED)
        put(world, RULES, OFF)
        assert uninstall(world.machine()) == ()
        assert (moment, world.snapshot(), world.active) == (moment, before, PLAIN)
        moment += 1
    assert moment > 5
