#!/usr/bin/env python3
"""Draws a run's ledger.json as a picture: python3 tools/draw_ledger.py RUN/ledger.json OUT.svg

Two bars, memory at the peak of a step as planned and as measured, by category; below them the table
plan | measured | difference in bytes, FLOPs and time. Self-contained SVG, no other file needed.
"""
import json
import sys
from html import escape

COLORS = {"parameter": "#4269d0", "gradient": "#efb118", "optimizer": "#ff725c", "activation": "#6cc5b0",
          "cache": "#a463f2", "workspace": "#9c6b4e", "data": "#97bbf5"}
WIDTH, LEFT, BAR_WIDTH = 860, 110, 720


def text(x, y, content, anchor="start", weight="normal", fill="#1b1e23", size=13):
    return (f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="{fill}" '
            f'font-size="{size}">{escape(content)}</text>')


def bar(y, label, categories, total):
    parts = [text(LEFT - 12, y + 21, label, "end", "bold")]
    x = float(LEFT)
    for name, color in COLORS.items():
        width = BAR_WIDTH * categories.get(name, 0) / total
        if width > 0:
            parts.append(f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="32" fill="{color}"/>')
        x += width
    return parts


def legend(y, categories):
    parts, x = [], LEFT
    for name, color in COLORS.items():
        if categories.get(name, 0) == 0:
            continue
        parts.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" rx="2" fill="{color}"/>')
        parts.append(text(x + 16, y, name, size=12))
        x += 30 + 7.2 * len(name)
    return parts


def rows(plan, measured):
    peaks = [(n, plan["peak_bytes"].get(n, 0), measured["peak_bytes"].get(n, 0)) for n in list(COLORS) + ["total"]]
    out = [("bytes at the peak of a step", None, None)]
    out += [r for r in peaks if r[1] or r[2]]
    out.append(("work of a step (measured: of the launches made)", None, None))
    out += [(n, v, measured["step"][n]) for n, v in plan["step"].items()]
    return out


def draw(ledger):
    plan, measured = ledger["plan"], ledger["measured"]
    total = max(plan["peak_bytes"]["total"], measured["peak_bytes"]["total"])
    parts = [text(LEFT, 30, f"{plan['parameters']:,} parameters; the peak is in {plan['peak_moment']}", weight="bold", size=15)]
    parts += bar(48, "plan", plan["peak_bytes"], total) + bar(88, "measured", measured["peak_bytes"], total)
    parts += legend(142, plan["peak_bytes"])
    columns, y = (LEFT + 380, LEFT + 560, LEFT + 720), 176
    for x, head in zip(columns, ("plan", "measured", "difference")):
        parts.append(text(x, y, head, "end", "bold"))
    for name, a, b in rows(plan, measured):
        y += 21
        if a is None:
            y += 6
            parts.append(text(LEFT, y, name, fill="#5b6270"))
            continue
        weight = "bold" if name == "total" else "normal"
        parts.append(text(LEFT + 14, y, name, weight=weight))
        for x, value in zip(columns, (a, b, b - a)):
            parts.append(text(x, y, f"{value:,}", "end", weight))
    if plan.get("step_seconds"):
        y += 21
        a, b = plan["step_seconds"] * 1e3, measured["step_seconds"] * 1e3
        parts.append(text(LEFT + 14, y, "time (predicted, median)"))
        for x, value in zip(columns, (f"{a:.1f} ms", f"{b:.1f} ms", f"{100 * (b / a - 1):+.0f} %")):
            parts.append(text(x, y, value, "end"))
    height = y + 24
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'font-family="system-ui, sans-serif"><rect width="{WIDTH}" height="{height}" fill="white"/>'
            + "".join(parts) + "</svg>\n")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        picture = draw(json.load(file))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    main()
