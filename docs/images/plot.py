#!/usr/bin/env python3
# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""Draw what TestPictureData asked a real Prometheus for: plot.py DATA.json PICTURE.png"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# What everybody has comes first; what it does not show is below.
USUAL = {"Request, start to end", "Tokens per second"}
INK, USUAL_INK, SECOND_INK = "#1f4e79", "#8a8a8a", "#c55a11"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        picture = json.load(file)
    panels = {}
    for series in picture["series"]:
        panels.setdefault(series["panel"], []).append(series)

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(len(panels) // 2, 2, figsize=(11, 8.5), sharex=True, layout="constrained")
    figure.suptitle("One model, five behaviours of its provider, 40 s each (rates over 10 s)", fontsize=12)
    edges = [phase["from"] for phase in picture["phases"]] + [picture["length"]]
    for axis, (name, lines) in zip(axes.flat, panels.items()):
        unit = lines[0]["unit"]
        axis.set_title(f"{name} ({unit})" if unit else name, loc="left", fontsize=10, color=USUAL_INK if name in USUAL else INK)
        for number, line in enumerate(lines):
            colour = USUAL_INK if name in USUAL else (INK, SECOND_INK)[number]
            axis.plot(*zip(*line["data"]), color=colour, linewidth=1.8, label=line["label"])
        if len(lines) > 1:
            axis.set_yscale("log")
        else:
            highest = max(value for line in lines for _, value in line["data"])
            axis.set_ylim(0, 1.3 * highest)
        axis.legend(loc="upper left", frameon=False, fontsize=8)
        for number, (left, right) in enumerate(zip(edges, edges[1:])):
            if number % 2:
                axis.axvspan(left, right, color="#f1f1f1", zorder=0, linewidth=0)
        axis.set_xlim(0, picture["length"])
    for axis in axes[0]:
        for phase, left, right in zip(picture["phases"], edges, edges[1:]):
            axis.text((left + right) / 2, 1.22, phase["name"].replace(", ", ",\n"), transform=axis.get_xaxis_transform(), ha="center", va="bottom", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("seconds")
    figure.savefig(sys.argv[2], dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
