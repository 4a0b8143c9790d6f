"""The cells as curves: a panel for each workload, block hit ratio over capacity."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.laboratory.cell import Cell
from blockyard.core.config import Eviction

PANELS_A_ROW = 4
PANEL_INCHES = (3.0, 2.3)


def save_curves(cells: Sequence[Cell], path: Path) -> None:
    """Write a PNG, or what else the name's end says."""
    names = list(dict.fromkeys(cell.workload for cell in cells))
    num_columns = min(PANELS_A_ROW, len(names))
    num_rows = -(-len(names) // num_columns)
    width, height = PANEL_INCHES
    picture = Figure(figsize=(width * num_columns, height * num_rows + 0.5), layout="constrained")
    panels = list(picture.subplots(num_rows, num_columns, squeeze=False).flat)
    for panel in panels:
        panel.set_axis_off()
    for name, panel in zip(names, panels, strict=False):
        of_workload = [cell for cell in cells if cell.workload == name]
        capacities = [cell.capacity for cell in of_workload]
        panel.set_axis_on()
        panel.plot(
            capacities,
            [cell.optimal_hit_ratio for cell in of_workload],
            color="black",
            linestyle="--",
            linewidth=1,
            label="optimum",
        )
        for policy in Eviction:
            ratios = [cell.hit_ratio(policy) for cell in of_workload]
            panel.plot(capacities, ratios, marker="o", markersize=3, label=policy.value)
        panel.set_xscale("log")
        panel.set_ylim(0, 1)
        panel.set_title(name, fontsize=9)
        panel.tick_params(labelsize=7)
    picture.legend(*picture.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    picture.supxlabel("blocks", fontsize=9)
    picture.supylabel("block hit ratio", fontsize=9)
    picture.savefig(path, dpi=120)
