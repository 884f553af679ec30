#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what 'make demo' saw: the queue and the replicas over time.

    bench/plot_demo.py build/demo.csv docs/replicas.svg
"""

import csv
import pathlib
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 50, 50, 36, 40


def steps(points, x, y):
    """A line that stays level between samples."""
    path = []
    for i, (t, v) in enumerate(points):
        path.append(f"{'M' if i == 0 else 'H'}{x(t):.1f}" + (f",{y(v):.1f}" if i == 0 else ""))
        if i:
            path.append(f"V{y(v):.1f}")
    return " ".join(path)


def text(x, y, words, anchor="middle", color="#333"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{words}</text>'


def draw(rows):
    end = max(t for t, _, _ in rows)
    queue_max, replicas_max = max(q for _, q, _ in rows) or 1, max(n for _, _, n in rows) + 1
    x = lambda t: LEFT + t / end * (WIDTH - LEFT - RIGHT)
    left = lambda v: HEIGHT - BOTTOM - v / queue_max * (HEIGHT - TOP - BOTTOM)
    right = lambda v: HEIGHT - BOTTOM - v / replicas_max * (HEIGHT - TOP - BOTTOM)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for t in range(0, int(end) + 1, 5):
        out += [f'<path d="M{x(t):.1f},{TOP} V{HEIGHT - BOTTOM}" stroke="#eee"/>', text(x(t), HEIGHT - BOTTOM + 16, f"{t} s")]
    for v in range(0, int(queue_max) + 1, max(1, int(queue_max) // 5)):
        out.append(text(LEFT - 8, left(v) + 4, v, "end", "#b5541c"))
    for v in range(0, replicas_max + 1):
        out.append(text(WIDTH - RIGHT + 8, right(v) + 4, v, "start", "#1c5fb5"))
    area = steps([(t, q) for t, q, _ in rows], x, left)
    out += [f'<path d="{area} V{left(0):.1f} H{x(rows[0][0]):.1f} Z" fill="#f3c9ae"/>',
            f'<path d="{area}" fill="none" stroke="#b5541c" stroke-width="1.5"/>',
            f'<path d="{steps([(t, n) for t, _, n in rows], x, right)}" fill="none" stroke="#1c5fb5" stroke-width="2.5"/>',
            text(LEFT, 20, "requests that wait", "start", "#b5541c"),
            text(WIDTH - RIGHT, 20, "replicas that serve", "end", "#1c5fb5"), "</svg>"]
    return "\n".join(out) + "\n"


def main():
    with open(sys.argv[1], newline="") as f:
        rows = [(float(r["seconds"]), float(r["waiting"]), int(r["replicas"])) for r in csv.DictReader(f)]
    pathlib.Path(sys.argv[2]).write_text(draw(rows))


if __name__ == "__main__":
    main()
