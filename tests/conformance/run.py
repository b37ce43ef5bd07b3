"""Run the public test suite of the Python array API standard on magmath.

The suite is a separate project (github.com/data-apis/array-api-tests, with its submodule
`array-api`): clone it anywhere and pass its folder. Its tests then run unchanged in a pool of this
many workers; with `--layouts random`, every array that `asarray` and the creation functions make is
put into a random layout first. Arguments after `--` are passed to pytest: test files, `-k`, `-x` ….

    python tests/conformance/run.py --suite ../array-api-tests --workers 4 --layouts random

`known_failures.txt` lists the known failures with their reasons.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--suite", type=Path, required=True, help="clone of array-api-tests")
    parser.add_argument("--workers", type=int, default=0, help="0: one in the process itself")
    parser.add_argument("--launcher", default="threads", help="threads, or mpiexec for processes")
    parser.add_argument("--layouts", choices=("default", "random"), default="default")
    parser.add_argument("--max-examples", type=int, default=20, help="for each test")
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
    options = parser.parse_args()
    if not (options.suite / "array-api" / "src").is_dir():
        parser.error(f"{options.suite} is no clone of array-api-tests with its submodule array-api")
    command = [
        sys.executable, "-m", "pytest", "-c", "pytest.ini", "--rootdir", ".", "-p", "random_layouts", "-p", "no:cacheprovider", "-q",
        "--disable-deadline", "--max-examples", str(options.max_examples),
        "--xfails-file", str(HERE / "known_failures.txt"),
        "--workers", str(options.workers), "--launcher", options.launcher,
        "--layouts", options.layouts, *(options.pytest or ["array_api_tests"]),
    ]  # fmt: skip
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "ARRAY_API_TESTS_MODULE": "magmath",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    return subprocess.run(command, cwd=options.suite, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
