"""Write the tables and plots of docs/benchmarks.md, and the table of README.md, from the recorded
runs: python benchmarks/tables.py

A table stands between `<!-- table NAME -->` and `<!-- end -->`; its numbers are those of
benchmarks/results/NAME.json, or NAME-quick.json where there is no full record. An image with the
name of a table is its plot. `<!-- memory NAME -->` begins the table of peaks of memory of the same
record, `<!-- gains NAME -->` that of its ratios alone, with a column for each case, and `<!-- speed
NAME -->` the row of its ratios to PyTorch.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from magmath.bench.result import BenchResult
from magmath.bench.result_output import has_peaks, memory_text, rate_text
from magmath.bench.result_plots import plot_result

HERE = Path(__file__).parent
PAGES = (HERE.parent / "docs" / "benchmarks.md", HERE.parent / "README.md")
PLACE = re.compile(r"<!-- (table|memory|gains|speed) ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
IMAGE = re.compile(r"\]\((images/([\w-]+)\.svg)\)")


def main() -> None:
    """Rewrite the pages and draw their plots."""
    for path in PAGES:
        page = with_tables(path.read_text())
        path.write_text(page)
        for image, name in IMAGE.findall(page):
            if ("table", name) in PLACE.findall(page):
                plot_result(msgspec.convert(record(name), BenchResult), path.parent / image)


def with_tables(page: str) -> str:
    """A page's text with every table made anew."""
    return PLACE.sub(lambda place: marked(place[1], place[2]), page)


def marked(kind: str, name: str) -> str:
    """The table of a benchmark between its marks."""
    result = record(name)
    if kind == "memory":
        text = memory_table(msgspec.convert(result, BenchResult))
    elif kind == "speed":
        text = speed_table(result)
    else:
        text = f"{(table if kind == 'table' else gains_table)(result)}\n\n{source(result)}"
    return f"<!-- {kind} {name} -->\n{text}\n<!-- end -->"


def record(name: str) -> dict[str, Any]:
    """The recorded run of a benchmark."""
    full, quick = (HERE / "results" / f"{name}{kind}.json" for kind in ("", "-quick"))
    found: dict[str, Any] = json.loads((full if full.exists() else quick).read_text())
    return found


def table(result: dict[str, Any]) -> str:
    """Rates by case and system, and the ratios with their range over the rounds."""
    if result.get("simulation"):
        return simulated_table(result["simulation"])
    cases = result["cases"]
    systems = list(cases[0]["systems"])
    kinds = {figure["title"]: figure["kind"] for case in cases for figure in case["figures"]}
    unit = cases[0]["case"]["unit"]
    heads = [title if kind == "excess" else f"× {title}" for title, kind in kinds.items()]
    rows = [["case", *systems, *heads]]
    rows.append(["---"] * len(rows[0]))
    for case in cases:
        figures = {figure["title"]: ratio(figure) for figure in case["figures"]}
        rates = [rate(case["systems"][name], unit) for name in systems]
        rows.append([case["case"]["name"], *rates, *(figures.get(title, "") for title in kinds)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def memory_table(result: BenchResult) -> str:
    """The peaks of resident memory by case and system: the median, and the range over the runs."""
    systems = [name for name in result.cases[0].systems if has_peaks(result, name)]
    rows = [["case", *systems], ["---"] * (len(systems) + 1)]
    for case in result.cases:
        peaks = [memory_text(case.systems[name].peak_bytes) for name in systems]
        rows.append([case.name, *peaks])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def gains_table(result: dict[str, Any]) -> str:
    """The median ratios, a row for each and a column for each case; the range of the rounds is in
    the record."""
    cases = result["cases"]
    titles = dict.fromkeys([figure["title"] for case in cases for figure in case["figures"]])
    rows = [["", *[case["case"]["name"] for case in cases]], ["---"] * (len(cases) + 1)]
    for title in titles:
        ratios = [
            {figure["title"]: f"{figure['median']:.2f}" for figure in case["figures"]}.get(
                title, ""
            )
            for case in cases
        ]
        rows.append([title, *ratios])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def speed_table(result: dict[str, Any]) -> str:
    """The median ratios to PyTorch in one row, the largest first."""
    ratios = {
        case["case"]["name"].partition(", batch")[0]: figure["median"]
        for case in result["cases"]
        for figure in case["figures"]
        if figure["title"] == "PyTorch"
    }
    names = sorted(ratios, key=ratios.__getitem__, reverse=True)
    rows = [names, ["---"] * len(names), [f"{ratios[name]:.2f}" for name in names]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def simulated_table(accuracy: dict[str, Any]) -> str:
    """The milliseconds of the fastest step, and the simulated ones over them, by case and system;
    then Kendall's τ of the ranking of the systems."""
    systems = list(dict.fromkeys([row["system"] for row in accuracy["rows"]]))
    rows = [["case", *systems, "τ"], ["---"] * (len(systems) + 2)]
    for case in dict.fromkeys([row["case"] for row in accuracy["rows"]]):
        found = {row["system"]: row for row in accuracy["rows"] if row["case"] == case}
        cells = [f"{found[x]['measured'] * 1e3:.3g} × {found[x]['ratio']:.2f}" for x in systems]
        ranking = accuracy["kendall_tau"].get(case)
        rows.append([case, *cells, "" if ranking is None else f"{ranking:.1f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def rate(system: dict[str, Any], unit: str) -> str:
    """A system's median rate, or why there is none."""
    if system["state"] == "left out":
        return "–"
    measured = system["state"] == "measured"
    return rate_text(system["rate"], unit) if measured else str(system["state"])


def ratio(figure: dict[str, Any]) -> str:
    """A ratio's median and range; said where it misses its mark."""
    low, high = min(figure["rounds"]), max(figure["rounds"])
    missed = f" **misses {figure['mark']:g}**" if figure["reached"] is False else ""
    return f"{figure['median']:.2f} ({low:.2f} to {high:.2f}){missed}"


def source(result: dict[str, Any]) -> str:
    """Where and how a run was recorded."""
    machine, unit = result["machine"], result["cases"][0]["case"]["unit"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    absent = f" Absent: {', '.join(result['absent'])}." if result["absent"] else ""
    cut = " Interrupted: the later cases are missing." if result.get("interrupted") else ""
    what = "Medians" if unit == "s" else f"In {unit}; medians"  # times have their own units
    if result.get("simulation"):
        what = "In ms; minima"
    return (
        f"{what} of {result['rounds']} rounds in turns, {result['date'][:10]}, "
        f"{machine['cores']} cores of {machine['cpu']}, commit {result['commit']}"
        f"{'; ' if versions else ''}{versions}. "
        f"`{result['command']}`.{absent}{cut}"
    )


if __name__ == "__main__":
    main()
