"""The report of `magmath reproduce`: its parts, its page, and errors of experiments."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from magmath.cli.main import main
from magmath.errors import DataError, MagmathError
from magmath.reproduce import EXPERIMENTS, Experiment, Options
from magmath.reproduce.drawing import inline_svg, new_figure
from magmath.reproduce.page import cell_text, page
from magmath.reproduce.report import Report, run_experiments
from magmath.reproduce.section import Finding, Plot, Section, Table


def sample(options: Options) -> Section:
    """A section with every kind of part, and text that HTML could take for its own."""
    plots = []
    for title in ("First", "Second"):
        figure = new_figure()
        axes = figure.subplots()
        axes.plot([1, 2, 3], [3.0, 1.0, 2.0], marker="o", label="a < b & c")
        axes.legend()
        plots.append(Plot(title, figure, "caption <b>"))
    columns = tuple(f"column {i}" for i in range(30))
    return Section(
        (
            "A paragraph with <script>alert(1)</script>.",
            Table.of(
                "Wide", columns, [range(30), ["<x>", None, 0.000123456, math.nan, *[1e6] * 26]]
            ),
            *plots,
            Finding("It holds", "yes", "yes", agrees=True),
            Finding("It fails", "3.2", "4.5", agrees=False, reason="another machine"),
            Finding("It is open", "3.2", "nothing", agrees=None, reason="not measured"),
        ),
        {"numbers": [1, 2, math.inf]},
    )


def fail(options: Options) -> Section:
    raise DataError("sample: needs <data>, was given none; add some")


SAMPLE = Experiment("sample", "A sample & more", "Paper, Fig. 1", sample)
FAILING = Experiment("failing", "One that fails", "Paper, Fig. 2", fail)


@pytest.fixture
def report() -> Report:
    return run_experiments([SAMPLE, FAILING], Options(quick=True))


class Elements(HTMLParser):
    """Checks that elements are closed in order; collects identifiers and references."""

    VOID = ("meta", "br", "input", "img", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self._note(tag, attributes)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._note(tag, attributes)

    def _note(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        for name, value in attributes:
            assert value is not None
            assert name != "src"
            if name == "id":
                self.ids.append(value)
            elif name.endswith("href"):
                assert value.startswith("#"), "the page is self-contained"
                self.references.append(value[1:])
            self.references += re.findall(r"url\(#([^)]+)\)", value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_well_formed_and_self_contained(report: Report) -> None:
    elements = Elements(page(report))
    assert len(set(elements.ids)) == len(elements.ids), "identifiers are unique"
    assert set(elements.references) <= set(elements.ids)
    for text in ("<script>alert(1)</script>", "a < b & c", "another machine", "0.0001235"):
        assert text in elements.text
    assert "1 agrees, 1 does not agree, 1 cannot be decided here" in elements.text
    assert "needs <data>" in elements.text, "the error of an experiment is in its section"
    assert "torch" in elements.text, "versions"


def test_equal_figures_in_one_page_do_not_share_identifiers() -> None:
    def drawn(name: str) -> str:
        figure = new_figure()
        figure.subplots().plot([1, 2], [1, 2], marker="o")
        return inline_svg(figure, name)

    ids = [set(re.findall(r'id="([^"]+)"', drawn(name))) for name in ("a", "b")]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert drawn("a") == drawn("a")


def test_a_failed_experiment_is_recorded_and_the_others_run(report: Report) -> None:
    first, second = report.results
    assert first.section is not None
    assert second.section is None
    with pytest.raises(MagmathError, match="failing: sample: needs <data>"):
        report.raise_if_failed()
    data = json.loads(json.dumps(report.as_data()))
    assert [e["name"] for e in data["experiments"]] == ["sample", "failing"]
    assert [f["agrees"] for f in data["experiments"][0]["findings"]] == [True, False, None]
    assert data["experiments"][1]["error"].startswith("sample: needs")


def test_findings_and_tables_are_checked() -> None:
    for agrees in (False, None):
        with pytest.raises(MagmathError, match="needs a reason"):
            Finding("x", "1", "2", agrees=agrees)
    with pytest.raises(MagmathError, match="each row needs 2 cells"):
        Table.of("t", ("a", "b"), [(1, 2), (1,)])


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, "–"), (0.5, "0.5"), (123456.7, "123,457"), (1234567, "1,234,567"), ("a", "a")],
)
def test_cells(cell: str | float | None, text: str) -> None:
    assert cell_text(cell) == text


def strict_json(text: str) -> dict[str, Any]:
    """Read JSON as other programs do, without Python's NaN and Infinity."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_the_command_writes_report_and_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "sample", SAMPLE)
    monkeypatch.setitem(EXPERIMENTS, "failing", FAILING)
    folder = tmp_path / "deep" / "out"
    command = ["reproduce", "--output", str(folder), "--quick"]
    assert main([*command, "sample", "sample"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "agrees: It holds. Paper: yes; here: yes" in shown
    assert "It fails. Paper: 3.2; here: 4.5 (another machine)" in shown
    Elements((folder / "report.html").read_text())
    numbers = strict_json((folder / "report.json").read_text())
    (only,) = numbers["experiments"]
    assert only["data"] == {"numbers": [1, 2, None]}
    assert only["tables"][0]["rows"][1][3] is None
    assert main([*command, "sample", "--json"]) == 0
    printed = strict_json(capsys.readouterr().out)
    assert printed.pop("numbers") == [1, 2, None]
    assert printed.keys() == numbers.keys()
    assert main([*command, "failing", "sample"]) == 1
    assert "needs <data>" in capsys.readouterr().err
    names = [e["name"] for e in json.loads((folder / "report.json").read_text())["experiments"]]
    assert names == ["failing", "sample"], "the report is written nevertheless"
    assert main(["reproduce", "--list"]) == 0
    assert "A sample & more" in capsys.readouterr().out
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["experiments"]
    assert ("sample", "A sample & more") in [(one["name"], one["title"]) for one in listed]
    assert main([*command, "sample", "--peer", "torch,abacus"]) == 1
    assert "unknown framework 'abacus'; known are jax, tensorflow, torch" in " ".join(
        capsys.readouterr().err.split()
    )
    assert main(["reproduce", "nonsense"]) == 1
    assert "known are " in capsys.readouterr().err


def interrupt(options: Options) -> Section:
    raise KeyboardInterrupt


def test_an_interrupted_run_leaves_the_report_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "sample", SAMPLE)
    monkeypatch.setitem(EXPERIMENTS, "stuck", Experiment("stuck", "It hangs", "dMath", interrupt))
    assert main(["reproduce", "sample", "stuck", "--output", str(tmp_path)]) == 130
    text = Elements((tmp_path / "report.html").read_text()).text
    assert "1 agrees, 1 does not agree, 1 cannot be decided here" in text
    assert "Not finished: stuck." in text


def test_a_folder_that_cannot_be_made_is_an_error_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "stuck", Experiment("stuck", "It hangs", "dMath", interrupt))
    (tmp_path / "file").write_text("text")
    assert main(["reproduce", "stuck", "--output", str(tmp_path / "file")]) == 1
    assert "cannot be created" in capsys.readouterr().err
    assert main(["reproduce", "stuck", "--output", "/proc"]) == 1  # not even for the superuser
    assert "cannot be written" in capsys.readouterr().err


def test_every_experiment_names_its_paper() -> None:
    for name, experiment in EXPERIMENTS.items():
        assert experiment.name == name
        assert re.fullmatch(r"[a-z0-9-]+", name), "names are identifiers in the page"
        assert any(paper in experiment.reference for paper in ("MagmaDNN", "dMath", "SHM-Learn"))


# In a browser -------------------------------------------------------------------------------------

CHROMIUM = next(
    filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None
)
TELEPHONE = 390  # pixels


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; apt-get install chromium")
def test_a_browser_shows_the_report_in_the_width_of_a_telephone(
    report: Report, tmp_path: Path
) -> None:
    """A frame of that width must not scroll sideways, and must show all plots and sections."""
    assert CHROMIUM is not None
    frame = html.escape(page(report), quote=True)
    (tmp_path / "telephone.html").write_text(
        f"<body><iframe id='frame' width='{TELEPHONE}' height='800' srcdoc=\"{frame}\"></iframe>"
        "<p id='found'></p><script>window.onload = () => {"
        "const page = document.getElementById('frame').contentDocument;"
        "const boxes = [...page.querySelectorAll('svg')].map(s => s.getBoundingClientRect());"
        "document.getElementById('found').textContent = [page.documentElement.scrollWidth,"
        "page.documentElement.clientWidth, page.querySelectorAll('section').length,"
        "...boxes.flatMap(b => [Math.round(b.right), Math.round(b.height)])].join(' ');"
        "}</script></body>"
    )
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
         f"--user-data-dir={tmp_path}/profile", "--dump-dom",
         (tmp_path / "telephone.html").as_uri()],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = re.findall(r'<p id="found">([^<]+)</p>', done.stdout)
    scrolled, shown, sections, *boxes = map(int, found.split())
    assert scrolled <= shown <= TELEPHONE
    assert sections == 3
    assert len(boxes) == 4
    for right, height in zip(boxes[::2], boxes[1::2], strict=True):
        assert right <= TELEPHONE
        assert height > 100
