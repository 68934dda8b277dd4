"""The live screen of ``koordctl top``: the node above, the pods below, asked again every interval.

The question is asked in a thread, so the screen stays alive while the daemon is slow or gone; then the last picture
stays and the line below says what is wrong.
"""

from __future__ import annotations

from typing import ClassVar

import click
from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Footer, Static

from koordctl.fields import Layout
from koordctl.views import top as view


class Screen(App[None]):
    """``ask``: a Daemon's; ``layout``: of the pods."""

    TITLE = "koordctl top"
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "Quit"), ("space", "hold", "Hold")]
    CSS = "#node { height: auto; padding: 0 1 1 1; } #said { height: 1; padding: 0 1; color: $error; }"

    def __init__(self, ask: view.Ask, interval_s: float, layout: Layout[view.PodLine]) -> None:
        super().__init__()
        self._ask, self._interval_s, self._layout = ask, interval_s, layout
        self._held = False

    def compose(self) -> ComposeResult:
        yield Static(id="node", markup=False)
        yield DataTable[str](id="pods", cursor_type="row")
        yield Static(id="said", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns(*(field.header for field in self._layout.columns(())))
        self.set_interval(self._interval_s, self.look)
        self.look()

    def action_hold(self) -> None:
        """Stop and go on."""
        self._held = not self._held
        self._say("held" if self._held else "")

    def look(self) -> None:
        """Ask again, unless held."""
        if not self._held:
            self._fetch()

    @work(thread=True, exclusive=True)
    def _fetch(self) -> None:
        try:
            picture = view.read(self._ask)
        except click.ClickException as error:
            self.call_from_thread(self._say, error.format_message())
        else:
            self.call_from_thread(self._show, picture)

    def _say(self, text: str) -> None:
        self.query_one("#said", Static).update(text)

    def _show(self, picture: view.Picture) -> None:
        if self._held:
            return
        self.query_one("#node", Static).update(view.node_text(picture))
        table = self.query_one(DataTable)
        row, top = table.cursor_row, table.scroll_offset
        table.clear()
        table.add_rows(self._layout.cells(picture.pods))
        table.move_cursor(row=row)
        table.scroll_to(y=top.y, animate=False)
        self._say("" if picture.observed_unix_ns else "no snapshot yet")
