"""``koordctl lint``: checks manifests before they are applied, without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click

from koordctl import guide, options
from koordctl.exits import FAILED, OK

if TYPE_CHECKING:
    from koordctl.fields import ListingLayout


@click.command(short_help=guide.summary("lint"), epilog=guide.examples("lint"))
@click.argument("files", nargs=-1, required=True, type=click.File())
@options.listing("views.lint:FINDINGS", "wide: whole, however narrow the terminal is.")
def lint(files: tuple[TextIO, ...], layout: ListingLayout[Any]) -> int:
    """Check FILES of YAML or JSON (-: standard input), and say what Koord would refuse, ignore or read otherwise.

    It reads profiles, slo-controller-config, ResourceQuotas, pods, and the pods of Deployments, Jobs and the like. Give
    it your own PriorityClasses too; it knows Koord's and Kubernetes'. About Nodes, their zones and devices it says
    what only Koordinator's manager does for them. Exit code 4: there is a finding.
    """
    from koordctl.linting import lint as examine  # noqa: PLC0415
    from koordctl.output import show  # noqa: PLC0415
    from koordctl.views import lint as view  # noqa: PLC0415

    report = examine((file.name, file.buffer.read()) for file in files)
    show(layout, lambda: view.page(report, layout), lambda: view.document(report, layout))
    return FAILED if report.findings else OK
