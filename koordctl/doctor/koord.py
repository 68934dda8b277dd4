"""Koord's own installation, and how the running daemon fares."""

from __future__ import annotations

from koord.model.excerpt import few
from koordctl.doctor.facts import Facts
from koordctl.doctor.finding import Finding, Status
from koordctl.doctor.settings import SLICE_UNIT

_OK, _INFO, _WARN, _FAIL = Status.OK, Status.INFO, Status.WARN, Status.FAIL
_OPEN_FILES = 65_536  # a collector keeps some 14 files per container open
_MIN_OPEN_FILES = 4_096
_MIN_FREE_BYTES = 64 << 20
_FREE_BYTES = 256 << 20
_SHOWN = 3
_RECONCILER = "reconciler"  # always there, beside whoever acts


def daemon(facts: Facts) -> Finding:
    if facts.daemon is None:
        remedy = "see what the agent's pod says: kubectl logs" if facts.in_pod else "systemctl start koord-qosd"
        return Finding("daemon", _WARN, facts.daemon_says or "not asked", remedy)
    return Finding("daemon", _OK, f"koord-qosd {facts.daemon.version} answers")


def unit(facts: Facts) -> Finding:
    if facts.in_pod:
        return Finding("systemd-unit", _INFO, "this is a pod: kubelet starts koord-qosd again, and needs no unit")
    if not facts.systemd:
        return Finding("systemd-unit", _INFO, "systemd is not process 1 here: something else must restart koord-qosd")
    if not facts.koord.unit_file:
        remedy = "koordctl install, or run the DaemonSet"
        return Finding("systemd-unit", _WARN, "koord-qosd.service is not installed", remedy)
    return Finding("systemd-unit", _OK, facts.koord.unit_file)


def slice_memory(facts: Facts) -> Finding:
    """What Koord's daemons use is not reclaimed for pods that are protected themselves; without it, first of all."""
    if facts.in_pod:
        text = "this is a pod: its memory request is what protects koord-qosd (koordlet.resources in the chart)"
        return Finding("slice-memory", _INFO, text)
    protected = facts.koord.slice_memory_min
    if protected is None:
        return Finding("slice-memory", _INFO, f"no {SLICE_UNIT}: whoever starts koord-qosd protects its memory, or not")
    if protected in ("", "0"):
        remedy = f"MemoryMin=256M in {SLICE_UNIT}, as it is shipped"
        text = f"{SLICE_UNIT} has no MemoryMin=: protected pods come before koord-qosd and koord-runtime-proxy"
        return Finding("slice-memory", _WARN, text, remedy)
    text = f"{SLICE_UNIT}: MemoryMin={protected}"
    if facts.cgroup.version == 1:
        return Finding("slice-memory", _INFO, f"{text}, which cgroup v1 cannot keep")
    return Finding("slice-memory", _OK, text)


def kubelet_drop_in(facts: Facts) -> Finding:
    stale = facts.kubelet.drop_in_stale
    if stale is None:
        return Finding("kubelet-drop-in", _INFO, "kubelet's endpoint is not set by a drop-in of koordctl install")
    if stale:
        text = f"{facts.kubelet.unit} has changed its command since Koord's drop-in repeated it"
        return Finding("kubelet-drop-in", _WARN, text, "koordctl install brings it up to date")
    return Finding("kubelet-drop-in", _OK, f"{facts.kubelet.unit} starts kubelet on the proxy's socket")


def open_files(facts: Facts) -> Finding:
    limit = facts.daemon.open_files_limit if facts.daemon else facts.koord.unit_open_files
    if limit is None:
        return Finding("open-files", _INFO, "the daemon's limit cannot be told: it is not running, and no unit says it")
    owner = "the container runtime's unit, of which pods have it" if facts.in_pod else "koord-qosd.service"
    remedy = f"LimitNOFILE={_OPEN_FILES} in {owner}"
    if limit < _MIN_OPEN_FILES:
        return Finding("open-files", _FAIL, f"koord-qosd may open {limit} files: too few from 75 pods on", remedy)
    if limit < _OPEN_FILES:
        return Finding("open-files", _WARN, f"koord-qosd may open {limit} files", remedy)
    return Finding("open-files", _OK, f"koord-qosd may open {limit} files")


def grants(facts: Facts) -> Finding:
    lacking = facts.daemon.lacking if facts.daemon else ()
    if lacking:
        text = f"koord-qosd may not do all that its strategies need: {_some(lacking)}"
        remedy = "run koordctl install: its drop-in allows what is on"
        return Finding("grants", _WARN, text, "koordlet.extraCapabilities in the chart" if facts.in_pod else remedy)
    if facts.in_pod:
        return Finding("grants", _OK, "koord-qosd's pod may do what its strategies need")
    if facts.koord.grants_stale:
        text = "koord-qosd's unit allows something else than the features that are on need"
        return Finding("grants", _WARN, text, "run koordctl install: it brings the drop-in up to date")
    return Finding("grants", _OK, "koord-qosd's unit allows what the features that are on need")


def rules(facts: Facts) -> Finding:
    if problem := facts.koord.rules_problem:
        return Finding("rules", _WARN, problem, "correct the rules file; it is read again at once")
    where = facts.koord.rules_file
    return Finding("rules", _OK, where) if where else Finding("rules", _INFO, "no rules file: built-in defaults")


def policy(facts: Facts) -> Finding:
    """Of the daemon that runs; the rules file as it is on disk is a check of its own."""
    if facts.daemon is None or not facts.daemon.policy:
        return Finding("policy", _INFO, "koord-qosd is not there to say by which policy it goes")
    text = "; ".join(facts.daemon.policy)
    if facts.daemon.is_policy_doubtful:
        return Finding("policy", _WARN, text, "correct what it names, or bring the API server back")
    return Finding("policy", _OK, text)


def warnings(facts: Facts) -> Finding:
    if facts.daemon is None:
        return Finding("warnings", _INFO, "koord-qosd is not there to warn of anything")
    said = facts.daemon.warnings
    if said:
        remedy = "koordctl node lists them; each names what to correct"
        return Finding("warnings", _WARN, _some(said), remedy)
    return Finding("warnings", _OK, "none")


def hook_file(facts: Facts) -> Finding:
    koord = facts.koord
    if koord.hook_problem:
        return Finding("hook-file", _WARN, koord.hook_problem, "restart koord-qosd: it writes the file again")
    if not koord.hook_file:
        return Finding("hook-file", _INFO, "no hook-server file: a runtime proxy, if there is one, asks no hooks")
    if not koord.hook_endpoint_exists:
        remedy = "start koord-qosd, or remove the file"
        return Finding("hook-file", _WARN, f"{koord.hook_file} names {koord.hook_endpoint}: no such socket", remedy)
    return Finding("hook-file", _OK, f"{koord.hook_file} names {koord.hook_endpoint}")


def bypass(facts: Facts) -> Finding:
    file = facts.koord.bypass_file
    if file:
        remedy = f"rm {file}, or systemctl kill -s USR1 --kill-whom=main koord-runtime-proxy"
        return Finding("bypass", _WARN, f"{file} exists: the runtime proxy edits nothing", remedy)
    return Finding("bypass", _OK, "no file keeps the runtime proxy from editing")


def front_end(facts: Facts) -> Finding:
    if facts.daemon is None:
        return Finding("front-end", _INFO, "only the running daemon knows which front end acts")
    acting, attached = facts.daemon.acting_front_end, facts.daemon.attached_front_ends
    others = [name for name in attached if name not in (acting, _RECONCILER)]
    if acting == _RECONCILER:
        text = "no proxy and no NRI is attached: containers get their values just after they start"
        return Finding("front-end", _INFO, text, "point kubelet at koord-runtime-proxy, or enable NRI")
    rest = f"; {', '.join(others)} attached too, and told nothing" if others else ""
    return Finding("front-end", _OK, f"{acting or 'nobody'} acts{rest}")


def loops(facts: Facts) -> Finding:
    if facts.daemon is None:
        return Finding("loops", _INFO, "only the running daemon knows how its collectors fare")
    failing = facts.daemon.failing_loops
    if failing:
        text = f"failing: {_some(failing)}"
        return Finding("loops", _WARN, text, "koordctl node shows errors and ages")
    return Finding("loops", _OK, "every collector and source succeeds")


def contested(facts: Facts) -> Finding:
    found = facts.daemon.contested if facts.daemon else ()
    if found:
        remedy = "koordctl explain file PATH says who else writes; stop one of the writers"
        return Finding("contested", _WARN, f"another writer insists on {_some(found)}", remedy)
    return Finding("contested", _OK if facts.daemon else _INFO, "no contested file" if facts.daemon else "not asked")


def journal_space(facts: Facts) -> Finding:
    free = facts.koord.state_free_bytes
    if free is None:
        return Finding("journal-space", _INFO, "free space for the journal cannot be told")
    text = f"{free / (1 << 20):.0f} MiB free for the journal"
    if free < _FREE_BYTES:
        remedy = "free space below /var/lib/koord, or the journal drops entries"
        return Finding("journal-space", _FAIL if free < _MIN_FREE_BYTES else _WARN, text, remedy)
    return Finding("journal-space", _OK, text)


def journal_drops(facts: Facts) -> Finding:
    dropped = facts.daemon.journal_dropped if facts.daemon else 0
    if dropped:
        return Finding("journal-drops", _WARN, f"{dropped} journal entries were dropped", "see check journal-space")
    return Finding("journal-drops", _OK if facts.daemon else _INFO, "none" if facts.daemon else "not asked")


def undo_record(facts: Facts) -> Finding:
    if facts.koord.run_is_tmpfs is False:
        remedy = "mount a tmpfs on /run"
        return Finding("undo-record", _WARN, "/run is no tmpfs: the undo record wears a disk", remedy)
    return (
        Finding("undo-record", _OK, "/run is a tmpfs")
        if facts.koord.run_is_tmpfs
        else Finding("undo-record", _INFO, "what /run is cannot be told")
    )


def _some(sentences: tuple[str, ...]) -> str:
    return "; ".join(few(sentences, _SHOWN))
