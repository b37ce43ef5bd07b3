"""`magmath plan`, as a user calls it."""

import json
import signal
from dataclasses import replace

import pytest

import magmath
from magmath.cli.main import main
from magmath.cost import DEFAULT_MACHINE, machine_file


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)
    magmath.shutdown()


def test_without_a_network_it_lists_what_there_is(capsys):
    assert main(["plan"]) == 0
    printed = capsys.readouterr().out
    assert "alexnet" in printed
    assert "k80-fdr" in printed
    assert "here" in printed
    assert main(["plan", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    lines = (f"{kind}: {', '.join(names)}\n" for kind, names in content.items())
    assert printed == "".join(lines)


def test_a_plan_for_a_machine_that_was_not_measured_says_so(capsys, monkeypatch):
    for constants in (DEFAULT_MACHINE, replace(DEFAULT_MACHINE, source="AMD EPYC")):
        monkeypatch.setattr(machine_file, "current_machine", lambda constants=constants: constants)
        assert main(["plan", "mlp"]) == 0
        is_marked = "predicted for a typical server; `magmath calibrate`" in capsys.readouterr().out
        assert is_marked == (constants is DEFAULT_MACHINE)


def test_json_is_one_object_on_the_standard_output(capsys):
    arguments = ["plan", "lenet5", "--machine", "dgx-h200", "--workers", "4", "--batch", "64"]
    assert main([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["network"], content["workers"], content["batch"]) == ("lenet5", 4, 64)
    assert content["seconds"] <= min(content["strategies"].values())
    assert content["parameter_bytes"] == 4 * 61_706
    assert sum(layer["memory"] for layer in content["layers"]) == pytest.approx(
        content["memory_bytes"]
    )
    assert main([*arguments, "--strategy", "data", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {choice for layer in data["layers"] for choice in layer["option"]} == {"batch"}
    assert data["gap"] is None


def test_pictures_and_text(capsys, tmp_path):
    picture, timeline = tmp_path / "plan.svg", tmp_path / "step.json"
    files = ["--picture", str(picture), "--timeline", str(timeline)]
    assert main(["plan", "lenet5", "--machine", "k80-fdr", "--workers", "2", *files]) == 0
    assert "samples/s" in capsys.readouterr().out
    assert "</svg>" in picture.read_text()
    workers = {event["pid"] for event in json.loads(timeline.read_text())["traceEvents"]}
    assert workers == {0, 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lenet6"], "unknown network 'lenet6'; known are"),
        (
            ["lenet5", "--machine", "abacus"],
            "no machine 'abacus', and no file of this name exists; known are",
        ),
        (["lenet5", "--memory", "0.000001"], "fits 1e-06 GB a worker"),
        (["lenet5", "--picture", "plan.png"], "must end with .svg"),
        (["lenet5", "--timeline", "step.txt"], "must end with .svg or .json"),
    ],
)
def test_errors_are_one_message(capsys, arguments, message):
    assert main(["plan", *arguments]) == 1
    assert message in " ".join(capsys.readouterr().err.split())
