"""The screen of ``koordctl top`` as lines of styled text: a function of a picture, a view of it and a size.

Invariant: a frame has exactly the lines and at most the columns that it was made for, whatever names pods have; no
text of a pod reaches the terminal as a control sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from koordctl.fields import ListingField, ListingLayout
from koordctl.values import sparkline
from koordctl.views import top
from koordctl.views.top import Picture, PodLine

_GIB = 1 << 30
_EIGHTHS = " ▏▎▍▌▋▊▉"
_EMPTY = "·"
_LABEL = 8
_LEAST_BAR, _LEAST_POD, _LEAST_HISTORY, _MOST_POD = 10, 12, 8, 50
_FULL_PERCENT, _BUSY_PERCENT = 90, 70

SORT_KEYS = {
    "c": "cpu_usage_cores",
    "m": "memory_usage_bytes",
    "t": "cpu_throttled_ratio",
    "w": "cpu_pressure_some_avg10_percent",
    "p": "pod",
    "g": "qos_class",
}
"""The field that each key sorts by; pressed again, the other way round."""

_KEYS = (
    ("q", "quit"),
    ("c", "CPU"),
    ("m", "memory"),
    ("t", "throttled"),
    ("w", "wait"),
    ("p", "pod"),
    ("g", "QoS"),
    ("/", "filter"),
    ("space", "hold"),
)


class TextStyle(StrEnum):
    """A style of text: SGR parameters of a terminal."""

    PLAIN = ""
    BOLD = "1"
    DIM = "2"
    REVERSE = "7"
    GREEN = "32"
    YELLOW = "33"
    RED = "31"
    CYAN = "36"


class Span(NamedTuple):
    text: str
    style: TextStyle = TextStyle.PLAIN


Line = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class View:
    """Which part of a picture is shown, and how. ``typing``: the filter is being typed. ``message``: an error.

    ``interval_s``: between two points of a history. ``is_live``: pictures follow each other.
    """

    layout: ListingLayout[PodLine]
    interval_s: float = 1.0
    filter: str = ""
    typing: bool = False
    held: bool = False
    offset: int = 0
    message: str = ""
    is_live: bool = True

    def pods(self, picture: Picture) -> list[PodLine]:
        """Returns the pods that pass the filter, sorted: by a part of the name, or the whole name of a QoS class."""
        wanted = self.filter.lower()
        return self.layout.sorted(
            [each for each in picture.pods if wanted in each.pod.lower() or wanted == each.qos_class.lower()]
        )

    def sorted_by(self, name: str) -> View:
        """Sorts by this field, amounts from the greatest on; the other way round if it is sorted by that already."""
        layout = self.layout
        is_again = layout.sort_by is not None and layout.sort_by.name == name
        descending = not layout.is_descending if is_again else name not in ("pod", "qos_class")
        changed = replace(layout, sort_by=layout.listing.field(name), is_descending=descending)
        return replace(self, layout=changed, offset=0)


def frame(picture: Picture, view: View, width: int, height: int) -> list[Line]:
    """Returns ``height`` lines of at most ``width`` characters."""
    head = [*node_lines(picture, view, width), (Span(view.message, TextStyle.RED),)]
    pods = view.pods(picture)
    room = max(0, height - len(head) - 2)
    offset = min(view.offset, max(0, len(pods) - room))
    table = pod_lines(picture, view, pods, width, offset, room)
    lines = [*head, *table]
    lines = lines[: height - 1] + [()] * (height - 1 - len(lines))
    return [cut(line, width) for line in (*lines, _footer(view, offset, room, len(pods)))]


def node_lines(picture: Picture, view: View, width: int) -> list[Line]:
    """Returns the node's lines: name, clock, size; CPU, best-effort CPU and memory; stalls; history of CPU."""
    return [
        _title(picture, view),
        _bar("CPU", picture, top.CPU, picture.cpus, f"of {picture.cpus} CPUs", width),
        _bar("  BE", picture, top.BE_CPU, picture.cpus, "by best-effort pods", width),
        _bar("memory", picture, top.MEMORY, picture.memory_bytes, f"of {picture.memory_bytes / _GIB:.1f} GiB", width),
        _stalls(picture),
        _history(picture, view, width),
    ]


def pod_lines(
    picture: Picture, view: View, pods: Sequence[PodLine], width: int, offset: int = 0, room: int | None = None
) -> list[Line]:
    """Returns the header, and ``room`` pods from ``offset`` on; all of them if that is None."""
    if not pods:
        said = f"No pod matches {view.filter!r}." if view.filter else view.layout.listing.empty
        return [(Span(said, TextStyle.DIM),)]
    fields = view.layout.columns(pods)
    last = None if room is None else offset + room
    widths = _widths(fields, view, pods, width)
    header = _row([_header(field, view, picture.scale) for field in fields], fields, widths)
    made: list[Line] = [(Span(header.ljust(width), TextStyle.REVERSE),)]
    for line in pods[offset:last]:
        cells = [_cell(field, line, size) for field, size in zip(fields, widths, strict=True)]
        made.append((Span(_row(cells, fields, widths), _QOS_STYLES.get(line.qos_class, TextStyle.PLAIN)),))
    return made


def text(lines: Sequence[Line]) -> str:
    """Returns the lines without styles, and without blanks at their ends."""
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines)


def cut(line: Line, width: int) -> Line:
    """Returns at most ``width`` characters, none of which a terminal takes for a command."""
    made = list[Span]()
    for span in line:
        shown = _printable(span.text)[:width]
        width -= len(shown)
        if shown:
            made.append(Span(shown, span.style))
    return tuple(made)


_QOS_STYLES = {"BE": TextStyle.CYAN, "SYSTEM": TextStyle.DIM}


def _title(picture: Picture, view: View) -> Line:
    if not picture.observed_unix_ns:
        return (Span(picture.node_name, TextStyle.BOLD), Span("  koord-qosd has not looked at the node yet"))
    clock = datetime.fromtimestamp(picture.observed_unix_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    size = f"{picture.cpus} CPUs  {picture.memory_bytes / _GIB:.1f} GiB  {len(picture.pods)} pods"
    held = "  HELD" if view.held else ""
    pace = f"  every {view.interval_s:g} s" if view.is_live else ""
    return (Span(picture.node_name, TextStyle.BOLD), Span(held, TextStyle.YELLOW), Span(f"  {clock}  {size}{pace}"))


def _bar(label: str, picture: Picture, metric: str, whole: float, remark: str, width: int) -> Line:
    figure = picture.node.get(metric)
    if figure is None or not whole:
        return (Span(f"{label:<{_LABEL}}"), Span("not measured", TextStyle.DIM))
    percent = 100 * figure.value / whole
    shown = f"{figure.value / _GIB:.1f}" if figure.unit == "bytes" else f"{figure.value:.2f}"
    said = f" {percent:3.0f} %  {shown} {remark}"
    room = max(_LEAST_BAR, min(width - _LABEL - 36, 100))
    style = (
        TextStyle.RED if percent >= _FULL_PERCENT else TextStyle.YELLOW if percent >= _BUSY_PERCENT else TextStyle.GREEN
    )
    full = bar(figure.value / whole, room)
    return (Span(f"{label:<{_LABEL}}"), Span(full, style), Span(_EMPTY * (room - len(full)), TextStyle.DIM), Span(said))


def bar(share: float, width: int) -> str:
    """Draws the part of ``width`` characters that ``share`` (of 1) fills, in eighths of a character."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def _stalls(picture: Picture) -> Line:
    named = zip(("CPU", "memory", "I/O"), top.STALLS, strict=True)
    found = [f"{name} {picture.node[metric].value:.1f} %" for name, metric in named if metric in picture.node]
    if not found:
        return (Span(f"{'stalled':<{_LABEL}}"), Span("not measured", TextStyle.DIM))
    return (Span(f"{'stalled':<{_LABEL}}{'   '.join(found)}"), Span("   of the last 10 s", TextStyle.DIM))


def _history(picture: Picture, view: View, width: int) -> Line:
    figure = picture.node.get(top.CPU)
    room = max(_LEAST_BAR, min(width - _LABEL - 36, 100))
    bars = sparkline(figure.history, room, picture.cpus) if figure is not None else ""
    scale = f" the last {_duration(len(bars) * view.interval_s)}, █ is {picture.cpus} CPUs" if bars else ""
    return (Span(f"{'history':<{_LABEL}}"), Span(bars.rjust(room), TextStyle.GREEN), Span(scale, TextStyle.DIM))


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _header(field: ListingField[PodLine], view: View, scale: float = 0.0) -> str:
    if field.name == "cpu_history" and scale:
        return f"{field.header}, █ is {scale:g} CPUs"
    order = view.layout.sort_by
    mark = "" if order is None or order.name != field.name else "▼" if view.layout.is_descending else "▲"
    return f"{field.header}{mark}"


def _cell(field: ListingField[PodLine], line: PodLine, width: int) -> str:
    return sparkline(line.history, width, line.scale) if field.name == "cpu_history" else field.cell(line)


def _widths(fields: Sequence[ListingField[PodLine]], view: View, pods: Sequence[PodLine], width: int) -> list[int]:
    """Returns each column's width; in too little room names of pods are cut, and the history takes the rest."""
    natural = {
        field.name: max(len(_header(field, view)), *(len(_printable(field.cell(line))) for line in pods))
        for field in fields
        if field.name not in ("pod", "cpu_history")
    }
    rest = width - sum(natural.values()) - 2 * (len(fields) - 1)
    names = [field.name for field in fields]
    history = _LEAST_HISTORY if "cpu_history" in names else 0
    longest = min(_MOST_POD, max(len("POD▲"), *(len(line.pod) for line in pods)))
    of_pod = min(longest, max(_LEAST_POD, rest - max(history, rest // 3))) if "pod" in names else 0
    sizes = {**natural, "pod": of_pod, "cpu_history": max(history, rest - of_pod)}
    return [sizes[name] for name in names]


def _row(cells: Sequence[str], fields: Sequence[ListingField[PodLine]], widths: Sequence[int]) -> str:
    """Joins cells: names and histories to the left, amounts to the right."""
    made = []
    for cell, field, width in zip(cells, fields, widths, strict=True):
        shown = cell if len(cell) <= width else f"{cell[: width - 1]}…"
        is_text = field.name in ("pod", "qos_class", "cpu_history")
        made.append(shown.ljust(width) if is_text else shown.rjust(width))
    return "  ".join(made)


def _footer(view: View, offset: int, room: int, count: int) -> Line:
    if view.typing:
        return (
            Span("filter: ", TextStyle.BOLD),
            Span(f"{view.filter}_"),
            Span("   Enter: keep   Esc: clear", TextStyle.DIM),
        )
    shown = [
        span for key, word in _KEYS for span in (Span(f"{key} ", TextStyle.BOLD), Span(f"{word}  ", TextStyle.DIM))
    ]
    more = f"{offset + 1}-{min(count, offset + room)} of {count} ↑↓" if count > room > 0 else ""
    kept = f"filter {view.filter!r}  " if view.filter else ""
    return (Span(f"{kept}{more}  ", TextStyle.YELLOW) if kept or more else Span(""), *shown)


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


def page(picture: Picture, layout: ListingLayout[PodLine], interval_s: float, width: int) -> str:
    """Renders one picture with all pods, for a pipe or a file."""
    view = View(layout, interval_s, is_live=False)
    lines = [*node_lines(picture, view, width), (), *pod_lines(picture, view, view.pods(picture), width)]
    return text([cut(line, width) for line in lines])
