"""The documents are tested: README's example, the examples, the tour and the recipes for
contributors run as written."""

from __future__ import annotations

import doctest
import os
import re
import runpy
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magmath as mm
import operation_bodies as bodies
import operation_table
from engines import current, engine_of
from magmath.api import elementwise as functions
from magmath.cost import DEFAULT_MACHINE
from magmath.layout import Layout, Mesh, layout
from magmath.nn.layers import normalization
from magmath.ops import OPERATIONS, elementwise
from magmath.ops.elementwise import tables
from magmath.runtime import Pool

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
FENCE = re.compile(r"^```.*$", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")
NUMBER = re.compile(r"\d+\.\d+")


def run(script: Path, *arguments: str) -> str:
    """What a script prints, run as a user runs it; fails with its errors if it fails."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True, text=True, timeout=110, cwd=script.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def readme_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    example, *_ = BLOCK.findall((ROOT / "README.md").read_text())
    script = tmp_path_factory.mktemp("readme") / "first.py"
    script.write_text(example)
    return script


@pytest.fixture(scope="module")
def readme_figures(readme_script: Path) -> list[float]:
    return figures(run(readme_script, "0"))


def figures(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_readme_example_runs_as_written(
    workers: str, readme_script: Path, readme_figures: list[float]
) -> None:
    mean, accuracy = readme_figures if workers == "0" else figures(run(readme_script, workers))
    assert accuracy > 90
    assert mean == pytest.approx(readme_figures[0], abs=2e-3)
    assert accuracy == pytest.approx(readme_figures[1], abs=1.5)


def test_readme_example_is_short_and_speaks_of_no_machinery(readme_script: Path) -> None:
    text = readme_script.read_text()
    assert len(text.splitlines()) <= 25
    assert not re.search(r"\bmpi", text, re.IGNORECASE)


def test_readme_training_loop_runs_as_written() -> None:
    _, loop, *_ = BLOCK.findall((ROOT / "README.md").read_text())
    names: dict[str, Any] = {"mm": mm, "digits": mm.data.load("digits")}
    with kept_pool(0):
        exec(loop, names)
        assert float(names["loss"]) < 2


@contextmanager
def kept_pool(workers: int, **_: Any) -> Iterator[Pool]:
    """In the place of `mm.init`: a pool that serves all the examples."""
    with current("processes" if workers else "inline", max(workers, 1)) as pool:
        yield pool


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(
    script: Path,
    workers: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In this process, whose workers stay: that a script starts some, README's example shows."""
    monkeypatch.setattr(mm, "init", kept_pool)
    monkeypatch.setattr(sys, "argv", [str(script), "--workers", workers])
    runpy.run_path(str(script), run_name="__main__")
    assert capfd.readouterr().out.strip()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


class SlotsApart(doctest.OutputChecker):
    """Compares outputs in which `%3`, the number of a slot, may be another number."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        want, got = (re.sub(r"%\d+", "%", text) for text in (want, got))
        return super().check_output(want, got, optionflags)


PAGES = [
    "tour.md",
    "arrays.md",
    "magmadnn.md",
    "networks.md",
    "optimizers.md",
    "precision.md",
    "numpy.md",
    "planning.md",
    "parallel.md",
    "from_pytorch.md",
    "onnx.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_page_shows_what_happens(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages show plans by the default constants, which a calibration of this machine changes."""
    monkeypatch.setattr(
        "magmath.engine.programs.program_build.current_machine", lambda: DEFAULT_MACHINE
    )
    text = (ROOT / "docs" / page).read_text()
    test = doctest.DocTestParser().get_doctest(FENCE.sub("", text), {}, page, None, 0)
    assert len(test.examples) >= 10
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    report: list[str] = []
    try:
        doctest.DocTestRunner(SlotsApart(), False, flags).run(test, out=report.append)
    finally:
        mm.shutdown()
    assert not report, "".join(report)


def test_pictures_are_what_is_drawn(tmp_path: Path) -> None:
    images = ROOT / "docs" / "images"
    runpy.run_path(str(images / "draw.py"))["draw"](tmp_path)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    plots = {path.name for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    others = [path for path in images.glob("*.svg") if f"{path.stem}.json" not in plots]
    assert drawn == {path.name: path.read_text() for path in others}


# The recipes of CONTRIBUTING.md -------------------------------------------------------------------


def recipe(place: str) -> str:
    """The block of code in CONTRIBUTING.md that begins with a comment naming its place."""
    blocks = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text())
    (result,) = [block for block in blocks if block.startswith(f"# {place}\n")]
    return str(result)


def defined(place: str, module: Any) -> dict[str, Any]:
    """What a recipe defines in the place of a module's own code."""
    names = dict(vars(module))
    exec(recipe(place), names)
    return names


def test_recipe_for_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "ops/elementwise/tables.py, an item of UNARY"
    record = eval(f"({recipe(place)})", dict(vars(tables)))
    row_of_table = recipe("tests/operation_table/elementwise.py, in ROWS")
    tried = eval(row_of_table, dict(vars(operation_table.elementwise)))
    row = tried[record.name]
    monkeypatch.setitem(elementwise.OPERATIONS, record.name, record)
    monkeypatch.setitem(OPERATIONS, record.name, record)
    thorough = settings(max_examples=20, suppress_health_check=list(HealthCheck))

    @thorough
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        one, case = engine_of("inline"), data.draw(operation_table.cases(row))
        result = bodies.computed(one, record.name, case)
        bodies.check_close(result, bodies.reference(record.name, case), case)
        bodies.check_any_layout(engine_of("shared", 3), record.name, case, data)
        smooth = data.draw(operation_table.cases(row, smooth=True))
        bodies.check_first_gradient(one, record.name, smooth, row.slopes)
        bodies.check_second_gradient(one, record.name, smooth, row.slopes)

    holds()
    assert recipe("api/elementwise_names.py").splitlines()[1:] == [f"{record.name}: UnaryFunction"]
    public = functions._unary(record)
    assert public.__doc__.startswith(record.public.summary)
    np.testing.assert_allclose(np.asarray(public(mm.asarray([4.0, 0.25]))), [0.5, 2.0])


def test_recipe_for_a_layout_rule() -> None:
    names = dict(vars(layout))
    exec(textwrap.dedent(recipe("layout/layout.py, in Layout")), names)
    mesh = Mesh.line(3)
    bound = names["columns"].__func__().bind((4, 7), mesh)
    assert bound == Layout.split(1).bind((4, 7), mesh)


def test_recipe_for_an_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("adadelta")
    monkeypatch.setitem(sys.modules, "adadelta", module)
    exec(recipe("optim/adadelta.py"), vars(module))
    adadelta = module.Adadelta(weight_decay=0.1, groups={"*": {"learning_rate": 0.5}})
    start = [3.0, -2.0, 0.5]
    x, theirs = mm.variable("x", start), torch.tensor(start, requires_grad=True)
    reference = torch.optim.Adadelta([theirs], lr=0.5, weight_decay=0.1)
    expression = mm.sum(x**4 + x)
    for _ in range(5):
        adadelta.minimize(expression, [x])
        reference.zero_grad()
        (theirs**4 + theirs).sum().backward()
        reference.step()
    np.testing.assert_allclose(np.asarray(x), theirs.detach().numpy(), rtol=1e-5)


def test_recipe_for_a_layer() -> None:
    scale = defined("nn/layers/scale.py", normalization)["Scale"]
    net = mm.nn.NeuralNetwork(
        [scale()], loss="mean_squared_error", optimizer=mm.optim.GradientDescent(0.5)
    )
    samples = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    net.fit(samples, samples * [2.0, -1.0, 0.5], batch_size=16, epochs=30)
    np.testing.assert_allclose(np.asarray(net.parameters["0.factor"]), [2, -1, 0.5], atol=0.01)


# What documents refer to --------------------------------------------------------------------------


def test_tables_of_figures_are_those_recorded() -> None:
    """`python benchmarks/tables.py` would change nothing."""
    tables = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
    for path in tables["PAGES"]:
        page = path.read_text()
        assert tables["PLACE"].search(page)
        assert tables["with_tables"](page) == page


def test_arguments_of_init_are_listed() -> None:
    section, *_ = (ROOT / "docs" / "running.md").read_text().partition("## Cache")
    rows = re.findall(r"^\| `(\w+)=` \| (\S+)", section, re.MULTILINE)
    parameters = signature(mm.init).parameters
    assert [name for name, _ in rows] == [*parameters]
    for name, default in rows:
        if parameters[name].default not in (None, "mpiexec"):
            assert str(parameters[name].default) == default.strip('`"'), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_source_files_that_are_named_exist(document: Path) -> None:
    """`passes/place.py` and the like: below the package, or from the root."""
    for name in re.findall(r"`((?:\w+/)+\w+\.\w+)`", document.read_text()):
        places = (ROOT / name, ROOT / "src" / "magmath" / name, ROOT / "src" / name)
        assert any(place.exists() for place in places), f"{document.name} names {name}"


def test_modules_that_sources_name_exist() -> None:
    """`passes/place.py` below the package, or `place.py` in the folder of the source."""
    package = ROOT / "src" / "magmath"
    for source in package.rglob("*.py"):
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", source.read_text(encoding="utf-8")):
            places = (ROOT / name, package / name, source.parent / name)
            assert any(place.exists() for place in places), f"{source} names {name}"


GLOSSARY_ENTRY = re.compile(r"^\| \*\*(.+?)\*\* \| (.+) \|$", re.MULTILINE)


def test_glossary_has_few_terms_with_one_meaning_each() -> None:
    entries = GLOSSARY_ENTRY.findall((ROOT / "docs/glossary.md").read_text())
    terms = [term for term, _ in entries]
    assert terms == sorted(set(terms)), "in the order of the alphabet, each once"
    assert 25 <= len(terms) <= 48
    for term, meaning in entries:
        assert meaning.endswith("."), term
        assert not re.search(r"\. |\b1\. ", meaning), f"{term} has one meaning, one sentence"


def test_terms_of_the_glossary_are_in_use() -> None:
    pages = [x for x in DOCUMENTS if x.name != "glossary.md"]
    sources = ROOT.glob("src/magmath/**/*.py")
    text = " ".join(" ".join(x.read_text().split()) for x in [*pages, *sources]).lower()
    terms = [term for term, _ in GLOSSARY_ENTRY.findall((ROOT / "docs/glossary.md").read_text())]
    assert [term for term in terms if not re.search(rf"\b{term}(s|es)?\b", text)] == []
