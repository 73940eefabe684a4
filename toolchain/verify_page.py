"""reports/verify.html: one page that opens anywhere, with the error of each pass, and of each layer behind each pass.

What stands in reports/verify.json flows in, HTML with inline SVG flows out: no script, no font, nothing to fetch. A
plotting library was the alternative and lost: a megabyte in every bundle, for two kinds of plot.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["verify_html"]

STYLE = """
body{font:14px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.15rem .6rem .15rem 0;border-bottom:1px solid #eee}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.bad{color:#b00020;font-weight:600}.quiet{color:#888}
svg{display:block;margin:.6rem 0 1.6rem}svg text{font:11px system-ui,sans-serif;fill:#555}
"""
WIDTH, HEIGHT, LEFT, BOTTOM = 880, 170, 60, 24
LOWEST, HIGHEST = -9, 1  # decades of the axis
COLOURS = ("#3366aa", "#b00020", "#22884d", "#aa7711", "#7744aa", "#448899")


def verify_html(name: str, verified: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of a bundle called `name`; `verified` is reports/verify.json."""
    body = "\n".join(part for role, report in verified.items() for part in _role(role, report))
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(name)}: verified passes</title>\n'
        f"<style>{STYLE}</style>\n<h1>{escape(name)}: verified passes</h1>\n"
        "<p>Each pass that changed what a graph computes was run before and after on stock onnxruntime. Errors are the "
        "root mean square of the difference over that of the values before the pass.</p>\n"
        f"{body}\n</html>\n"
    )


def _role(role: str, report: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2>{escape(role)}</h2><p>{report['rows']} rows of real text.</p>"
    if report["windows_not_reached"]:
        yield f"<p class=bad>Not exercised: attention windows of {report['windows_not_reached']} tokens.</p>"
    verdicts = [verdict for stage in report["stages"].values() for verdict in stage]
    yield _table(verdicts)
    ran = [verdict for verdict in verdicts if verdict["figures"]]
    if ran:
        yield "<h3>Largest relative error of any layer, by pass</h3>"
        yield _bars([(verdict["name"], _worst(verdict), _allowed(verdict)) for verdict in ran])
        yield "<h3>Relative error by layer, for each pass (last: logits)</h3>"
        yield _lines({verdict["name"]: [_number(one["relative"]) for one in verdict["figures"]] for verdict in ran})


def _table(verdicts: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(
        f"<th{' class=n' if place > 2 else ''}>{title}</th>"
        for place, title in enumerate(("pass", "verdict", "may change", "relative", "KL", "top-1"))
    )
    return f"<table><tr>{head}</tr>{''.join(map(_row, verdicts))}</table>"


def _row(verdict: Mapping[str, Any]) -> str:
    status, last = verdict["status"], verdict["figures"][-1] if verdict["figures"] else {}
    kind = {"same graph": "quiet", "passed": ""}.get(status, "bad")
    numbers = (_worst(verdict) if last else None, last.get("kl"), last.get("top1"))
    cells = "".join(f"<td class=n>{'' if number is None else f'{_number(number):.3g}'}</td>" for number in numbers)
    why = "".join(f"<br>{escape(fault)}" for fault in verdict["faults"])
    return (
        f"<tr class='{kind}'><td>{escape(verdict['name'])}</td><td>{status}{why}</td>"
        f"<td title='{escape(verdict['tolerance']['reason'])}'>{escape(verdict['tolerance']['kind'])}</td>{cells}</tr>"
    )


def _number(value: float | str) -> float:
    return float(value)


def _worst(verdict: Mapping[str, Any]) -> float:
    return max(_number(one["relative"]) for one in verdict["figures"])


def _allowed(verdict: Mapping[str, Any]) -> float:
    """At the logits, the deepest place."""
    return float(verdict["tolerance"]["relative"]) * math.sqrt(len(verdict["figures"]))


def _height(value: float) -> float:
    """Of a value on the logarithmic axis, in pixels from the top."""
    decade = min(max(math.log10(value) if value > 0 else LOWEST, LOWEST), HIGHEST)
    return (HIGHEST - decade) / (HIGHEST - LOWEST) * (HEIGHT - BOTTOM)


def _axis() -> Iterator[str]:
    for decade in range(LOWEST + 1, HIGHEST + 1, 2):
        y = _height(10.0**decade)
        yield f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eee"/>'
        yield f'<text x="0" y="{y + 4:.1f}">1e{decade}</text>'


def _svg(shapes: Sequence[str], height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="100%">{"".join(_axis())}{"".join(shapes)}</svg>'


def _bars(values: Sequence[tuple[str, float, float]]) -> str:
    """A bar for each pass's error, and a mark where its tolerance ends."""
    step = (WIDTH - LEFT) / len(values)
    floor = HEIGHT - BOTTOM
    shapes = []
    for number, (name, value, allowed) in enumerate(values):
        x, y, limit = LEFT + number * step, _height(value), _height(allowed)
        colour = COLOURS[0] if value <= allowed else COLOURS[1]
        size = f'width="{step - 6:.1f}" height="{max(floor - y, 1):.1f}"'
        shapes += [
            f'<rect x="{x + 2:.1f}" y="{y:.1f}" {size} fill="{colour}">'
            f"<title>{escape(name)}: {value:.3g}, allowed {allowed:.3g}</title></rect>",
            f'<line x1="{x:.1f}" x2="{x + step - 2:.1f}" y1="{limit:.1f}" y2="{limit:.1f}" stroke="#222"/>',
            f'<text transform="translate({x + step / 2:.1f},{floor + 10}) rotate(28)">{escape(name)}</text>',
        ]
    return _svg(shapes, HEIGHT + 70)


def _lines(series: Mapping[str, Sequence[float]]) -> str:
    """A line a pass, over the layers."""
    shapes = []
    for number, (name, values) in enumerate(series.items()):
        step = (WIDTH - LEFT - 10) / max(len(values) - 1, 1)
        points = " ".join(f"{LEFT + place * step:.1f},{_height(value):.1f}" for place, value in enumerate(values))
        colour = COLOURS[number % len(COLOURS)]
        shapes += [
            f'<polyline points="{points}" fill="none" stroke="{colour}"><title>{escape(name)}</title></polyline>',
            f'<text x="{LEFT + number % 4 * 200}" y="{HEIGHT + 14 * (number // 4)}" style="fill:{colour}">'
            f"{escape(name)}</text>",
        ]
    return _svg(shapes, HEIGHT + 14 * (len(series) // 4 + 1))
