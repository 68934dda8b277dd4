"""Renders an explanation: one block per file that Koord decides, and a list of the files that it leaves alone.

Every formula is printed with its name and inputs, so that the result can be computed again by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koord.pb.koord import inspect_pb2 as inspect
from koordctl.fields import Listing, ListingField, ListingLayout, Visibility
from koordctl.plain import inputs, member
from koordctl.values import NONE, age, human
from koordctl.views import node as node_view
from koordctl.views import pods as pods_view

_INDENT = "  "
_NOT_DONE = "Koord does none of this itself: beyond CPU burst, limits and requests are their owner's."
_CHANGES = ("scale", "add", "at most", "at least")
"""The kinds of opinions that change what earlier stages made."""

LEFT: Listing[inspect.ExplainedFile] = Listing(
    "files",
    (
        ListingField("container", "CONTAINER", lambda file: file.container or NONE),
        ListingField("name", "VALUE"),
        ListingField("actual", "HOLDS", lambda file: human(file.unit, file.name, member(file, "actual"))),
        ListingField("path", "FILE", lambda file: file.path or NONE),
        ListingField("why", "WHY", visibility=Visibility.FILLED),
    ),
)


def page(answer: inspect.ExplainResponse, width: int | None = None) -> str:
    """Renders the whole answer, without its warnings."""
    decided = [each for each in answer.files if each.owner]
    left = [each for each in answer.files if not each.owner]
    sections = [*map(_pod, answer.pods), *map(_block, decided)]
    if left:
        sections.append(f"Left as kubelet and the runtime set them:\n{ListingLayout(LEFT, width=width).table(left)}")
    if not answer.files:
        sections.append("Koord decides no file here.")
    sections += [
        ListingLayout(node_view.STRATEGIES, width=width).table(answer.strategies),
        ListingLayout(node_view.LOOPS, width=width).table(answer.inputs),
    ]
    sections.append(node_view.doubtful_policy(answer.policy))
    return "\n\n".join(section for section in sections if section)


def _pod(pod: inspect.Pod) -> str:
    priority, state = pod.priority_class or "no priority class", pod.state.removeprefix("SANDBOX_").lower()
    lines = [
        f"{pod.namespace}/{pod.name}: {pod.qos_class} by {pod.qos_source}; {priority}; {state}; "
        f"cgroup {pod.cgroup_parent or 'unknown'}"
    ]
    lines += [f"{_INDENT}problem: {problem}" for problem in pod.problems]
    lines += [f"{_INDENT}{line}" for line in pods_view.advice(pod)]
    return "\n".join([*lines, *([f"{_INDENT}{_NOT_DONE}"] if pod.advice else [])])


def _block(file: inspect.ExplainedFile) -> str:
    lines = [file.path or f"{file.cgroup}/{file.name}"]
    about = " of ".join(
        part for part in (file.name, file.container and f"container {file.container}", file.pod) if part
    )
    lines.append(f"{_INDENT}{about}, decided by {file.owner}")
    lines.append(f"{_INDENT}{_holds(file)}")
    if file.HasField("result"):
        lines.extend(_result(file))
    if file.why:
        lines.append(f"{_INDENT}because {file.why}")
    if len(file.opinions) > 1 or any(each.refused or _says_more(file, each) for each in file.opinions):
        lines.extend(_opinion(file, each) for each in file.opinions)
    lines.extend(
        f"{_INDENT}another writer, {age(each.age_s)} ago: {_text(file, each.value)} {each.detail}".rstrip()
        for each in file.foreign
    )
    if file.contested:
        lines.append(f"{_INDENT}CONTESTED: {file.contested}")
    return "\n".join(lines)


def _says_more(file: inspect.ExplainedFile, each: inspect.Opinion) -> bool:
    """Returns whether an opinion has a formula of its own, which the file's result does not show."""
    return bool(each.formula) and each.formula != file.formula


def _result(file: inspect.ExplainedFile) -> Iterator[str]:
    """Yields the result, and its formula if a formula made it."""
    result = f"{_INDENT}result {_text(file, file.result)}"
    yield f"{result} = {_formula(file.formula, file.inputs)}" if file.formula else result
    if file.formula:
        yield f"{_INDENT}{file.formula}: {file.formula_text}"


def _holds(file: inspect.ExplainedFile) -> str:
    actual = _text(file, file.actual) if file.HasField("actual") else "nothing: the file does not exist"
    parts = [f"holds {actual}"]
    if file.HasField("age_s"):
        before = f", before that {_text(file, file.before)}" if file.HasField("before") else ""
        parts.append(f"written {age(file.age_s)} ago{before}")
    if file.HasField("base"):
        origin = f" ({file.base_from})" if file.base_from else ""
        parts.append(f"base {_text(file, file.base)}{origin}")
    if file.HasField("actual") and file.HasField("result") and file.actual != file.result:
        parts.append(f"DIFFERS from {_text(file, file.result)}")
    return "; ".join(parts)


def _opinion(file: inspect.ExplainedFile, each: inspect.Opinion) -> str:
    value = f" {_text(file, each.value)}" if each.value else ""
    head = f"{_INDENT}{each.stage}: {each.strategy}: {each.kind}{value}"
    if each.formula:
        head += f" = {_formula(each.formula, each.inputs)}"
    tail = f"; {each.why}" if each.why else ""
    text = f"\n{_INDENT}{_INDENT}{each.formula}: {each.formula_text}" if each.formula_text else ""
    then = f" → {_text(file, each.result)}" if each.kind in _CHANGES and each.HasField("result") else ""
    refused = f"; NOT FOLLOWED: {each.refused}" if each.refused else ""
    return f"{head}{then}{tail}{refused}{text}"


def _formula(name: str, values: Sequence[inspect.Input]) -> str:
    return f"{name}({', '.join(f'{key}={_plain(value)}' for key, value in inputs(values).items())})"


def _plain(value: object) -> str:
    return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _text(file: inspect.ExplainedFile, text: str) -> str:
    """Returns the value as it is, and as people read it if that differs."""
    short = human(file.unit, file.name, text)
    return text if short == text else f"{text} ({short})" if text else short
