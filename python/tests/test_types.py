"""The package is typed: mypy --strict has nothing to say."""
import pathlib
import subprocess
import sys

import pytest

import gradscale

pytest.importorskip("mypy")
PACKAGE = pathlib.Path(gradscale.__file__).parent


def test_mypy_strict(tmp_path):
    assert (PACKAGE / "py.typed").exists()
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, PACKAGE]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_a_users_types(tmp_path):
    """What is returned has its type: a mistake is found, and a right program is right."""
    program = tmp_path / "user.py"
    program.write_text(
        "import gradscale\n"
        "scaler = gradscale.Scaler('pytorch')\n"
        "scale: float = scaler.scale\n"
        "verdict: gradscale.Verdict = scaler.step().end()\n"
        "wrong: str = scaler.scale\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "--cache-dir", tmp_path / "cache", program]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={"MYPYPATH": str(PACKAGE.parent)})
    assert [line.split(":")[1] for line in checked.stdout.splitlines() if ": error:" in line] == ["5"], checked.stdout
