"""What was measured: figures with their targets, as a table, JSON, Markdown and a picture."""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `target` is the most (or, with `at_least`, the least) it should be; None: no target."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target was met; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def shown(figure: Figure) -> str:
    """The value with its unit."""
    digits = 2 if abs(figure.value) < 10 else 0
    return f"{figure.value:.{digits}f} {figure.unit}"


def as_json(stages: Mapping[str, list[Figure]]) -> str:
    """For programs: the figures by stage, and on what kind of machine."""
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    figures = {stage: [asdict(figure) for figure in measured] for stage, measured in stages.items()}
    return json.dumps({"machine": machine, "figures": figures}, indent=2) + "\n"


def from_json(text: str) -> dict[str, list[Figure]]:
    """The figures by stage, as `as_json` wrote them; none of another form."""
    stages = json.loads(text)["figures"]
    if not isinstance(stages, dict):
        return {}
    return {stage: [Figure(**fields) for fields in measured] for stage, measured in stages.items()}


def as_markdown(figures: list[Figure]) -> str:
    """A table."""
    lines = ["| what | measured | target | |", "|---|---|---|---|"]
    for figure in figures:
        bound = "" if figure.target is None else f"{'≥' if figure.at_least else '≤'} {figure.target:g} {figure.unit}"
        verdict = {True: "met", False: "**missed**", None: ""}[figure.met]
        name = f"{figure.name} ({figure.note})" if figure.note else figure.name
        lines.append(f"| {name} | {shown(figure)} | {bound} | {verdict} |")
    return "\n".join(lines) + "\n"


def as_svg(figures: list[Figure]) -> str:
    """Bars of each figure as a share of its target; the line is the target."""
    rows = [figure for figure in figures if figure.target]
    height, top, left, scale = 22, 30, 380, 220
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="820" height="{top + height * len(rows) + 20}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<text x="{left}" y="18" fill="#666">share of the target (the line); left of it is better</text>',
    ]
    for number, figure in enumerate(rows):
        target = figure.target or 1.0
        share = target / max(figure.value, 1e-9) if figure.at_least else figure.value / target
        y = top + number * height
        colour = "#3a7d44" if figure.met else "#b3402a"
        parts += [
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end" fill="#444">{figure.name}</text>',
            f'<rect x="{left}" y="{y + 3}" width="{min(share, 1.6) * scale:.0f}" height="15" fill="{colour}"/>',
            f'<text x="{left + min(share, 1.6) * scale + 6:.0f}" y="{y + 14}" fill="#444">{shown(figure)}</text>',
        ]
    parts.append(
        f'<line x1="{left + scale}" y1="{top - 4}" x2="{left + scale}" y2="{top + height * len(rows)}" stroke="#888"/>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"
