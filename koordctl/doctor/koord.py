"""Checks of Koord's own installation, and of the running daemon."""

from __future__ import annotations

from koord.model.locations import STATE_DIRECTORY
from koord.model.readable import shorten_list
from koordctl.doctor import Judgement, fail, info, ok, warn
from koordctl.node.facts import Facts
from koordctl.node.units import QOSD, SLICE

_OPEN_FILES = 65_536  # a collector keeps some 14 files per container open
_MIN_OPEN_FILES = 4_096
_MIN_FREE_BYTES = 64 << 20
_FREE_BYTES = 256 << 20
_SHOWN = 3
_RECONCILER = "reconciler"  # always there, beside the front end that acts


def daemon(facts: Facts) -> Judgement:
    if facts.daemon is None:
        remedy = "see what the agent's pod says: kubectl logs" if facts.in_pod else "systemctl start koord-qosd"
        return warn(facts.daemon_says or "not asked", remedy)
    return ok(f"koord-qosd {facts.daemon.version} answers")


def unit(facts: Facts) -> Judgement:
    if facts.in_pod:
        return info("this is a pod: kubelet starts koord-qosd again, and needs no unit")
    if not facts.systemd:
        return info("systemd is not process 1 here: something else must restart koord-qosd")
    if not facts.koord.unit_file:
        return warn(f"{QOSD} is not installed", "koordctl install, or run the DaemonSet")
    return ok(facts.koord.unit_file)


def slice_memory(facts: Facts) -> Judgement:
    """koord.slice protects the daemons' memory; else the kernel reclaims it before that of protected pods."""
    if facts.in_pod:
        return info("this is a pod: its memory request is what protects koord-qosd (koordlet.resources in the chart)")
    protected = facts.koord.slice_memory_min
    if protected is None:
        return info(f"no {SLICE}: koord-qosd's memory is protected only if what starts it does so")
    if protected in ("", "0"):
        remedy = f"MemoryMin=256M in {SLICE}, as it is shipped"
        return warn(f"{SLICE} has no MemoryMin=: protected pods come before koord-qosd and koord-runtime-proxy", remedy)
    text = f"{SLICE}: MemoryMin={protected}"
    if facts.cgroup.version == 1:
        return info(f"{text}, which cgroup v1 cannot keep")
    return ok(text)


def kubelet_drop_in(facts: Facts) -> Judgement:
    stale = facts.kubelet.drop_in_stale
    if stale is None:
        return info("kubelet's endpoint is not set by a drop-in of koordctl install")
    if stale:
        text = f"{facts.kubelet.unit} has changed its command since Koord's drop-in repeated it"
        return warn(text, "koordctl install brings it up to date")
    return ok(f"{facts.kubelet.unit} starts kubelet on the proxy's socket")


def open_files(facts: Facts) -> Judgement:
    limit = facts.daemon.open_files_limit if facts.daemon else facts.koord.unit_open_files
    if limit is None:
        return info("koord-qosd's limit is not known: it does not run, and no unit says it")
    owner = "the container runtime's unit, of which pods have it" if facts.in_pod else QOSD
    remedy = f"LimitNOFILE={_OPEN_FILES} in {owner}"
    if limit < _MIN_OPEN_FILES:
        return fail(f"koord-qosd may open {limit} files: too few from 75 pods on", remedy)
    if limit < _OPEN_FILES:
        return warn(f"koord-qosd may open {limit} files", remedy)
    return ok(f"koord-qosd may open {limit} files")


def grants(facts: Facts) -> Judgement:
    lacking = facts.daemon.lacking if facts.daemon else ()
    if lacking:
        text = f"koord-qosd may not do all that its strategies need: {_some(lacking)}"
        remedy = "run koordctl install: its drop-in allows what is on"
        return warn(text, "koordlet.extraCapabilities in the chart" if facts.in_pod else remedy)
    if facts.in_pod:
        return ok("koord-qosd's pod may do what its strategies need")
    if facts.koord.grants_stale:
        text = "koord-qosd's unit allows something else than the features that are on need"
        return warn(text, "run koordctl install: it brings the drop-in up to date")
    return ok("koord-qosd's unit allows what the features that are on need")


def rules(facts: Facts) -> Judgement:
    if problem := facts.koord.rules_problem:
        return warn(problem, "correct the rules file; it is read again at once")
    where = facts.koord.rules_file
    return ok(where) if where else info("no rules file: built-in defaults")


def policy(facts: Facts) -> Judgement:
    """Checks the policy of the daemon that runs; the rules file as it is on disk is a check of its own."""
    if facts.daemon is None or not facts.daemon.policy:
        return info("koord-qosd does not run, so its policy is not known")
    text = "; ".join(facts.daemon.policy)
    if facts.daemon.is_policy_doubtful:
        return warn(text, "correct what it names, or bring the API server back")
    return ok(text)


def warnings(facts: Facts) -> Judgement:
    if facts.daemon is None:
        return info("koord-qosd does not run, so it has no warnings")
    said = facts.daemon.warnings
    if said:
        return warn(_some(said), "koordctl node lists them; each names what to correct")
    return ok("none")


def hook_file(facts: Facts) -> Judgement:
    koord = facts.koord
    if koord.hook_problem:
        return warn(koord.hook_problem, "restart koord-qosd: it writes the file again")
    if not koord.hook_file:
        return info("no hook-server file: a runtime proxy, if there is one, asks no hooks")
    if not koord.hook_endpoint_exists:
        remedy = "start koord-qosd, or remove the file"
        return warn(f"{koord.hook_file} names {koord.hook_endpoint}: no such socket", remedy)
    return ok(f"{koord.hook_file} names {koord.hook_endpoint}")


def bypass(facts: Facts) -> Judgement:
    file = facts.koord.bypass_file
    if file:
        remedy = f"rm {file}, or systemctl kill -s USR1 --kill-whom=main koord-runtime-proxy"
        return warn(f"{file} exists: the runtime proxy edits nothing", remedy)
    return ok("no file keeps the runtime proxy from editing")


def front_end(facts: Facts) -> Judgement:
    if facts.daemon is None:
        return info("only the running daemon knows which front end acts")
    acting, attached = facts.daemon.acting_front_end, facts.daemon.attached_front_ends
    others = [name for name in attached if name not in (acting, _RECONCILER)]
    if acting == _RECONCILER:
        text = "no proxy and no NRI is attached: containers get their values just after they start"
        return info(text, "point kubelet at koord-runtime-proxy, or enable NRI")
    rest = f"; attached, but idle: {', '.join(others)}" if others else ""
    return ok(f"{acting or 'no front end'} acts{rest}")


def loops(facts: Facts) -> Judgement:
    if facts.daemon is None:
        return info("only the running daemon knows how its collectors fare")
    failing = facts.daemon.failing_loops
    if failing:
        return warn(f"failing: {_some(failing)}", "koordctl node shows errors and ages")
    return ok("every collector and source succeeds")


def contested(facts: Facts) -> Judgement:
    found = facts.daemon.contested if facts.daemon else ()
    if found:
        remedy = "koordctl explain file PATH says who else writes; stop one of the writers"
        return warn(f"another writer insists on {_some(found)}", remedy)
    return ok("no contested file") if facts.daemon else info("not asked")


def journal_space(facts: Facts) -> Judgement:
    free = facts.koord.state_free_bytes
    if free is None:
        return info("how much space is free for the journal is not known")
    text = f"{free / (1 << 20):.0f} MiB free for the journal"
    if free < _FREE_BYTES:
        remedy = f"free space below {STATE_DIRECTORY}, or the journal drops entries"
        return (fail if free < _MIN_FREE_BYTES else warn)(text, remedy)
    return ok(text)


def journal_drops(facts: Facts) -> Judgement:
    dropped = facts.daemon.journal_dropped if facts.daemon else 0
    if dropped:
        return warn(f"{dropped} journal entries were dropped", "see check journal-space")
    return ok("none") if facts.daemon else info("not asked")


def undo_record(facts: Facts) -> Judgement:
    if facts.koord.run_is_tmpfs is False:
        return warn("/run is no tmpfs: the undo record wears a disk", "mount a tmpfs on /run")
    return ok("/run is a tmpfs") if facts.koord.run_is_tmpfs else info("whether /run is a tmpfs is not known")


def _some(sentences: tuple[str, ...]) -> str:
    return "; ".join(shorten_list(sentences, _SHOWN))
