"""The README's first step, and the manual's examples, run."""
import pathlib
import re

import pytest

torch = pytest.importorskip("torch")
TREE = pathlib.Path(__file__).parents[2]


def blocks(path):
    return re.findall(r"^```python\n(.*?)^```", (TREE / path).read_text(), re.M | re.S)


def test_the_first_step_of_the_readme(capsys):
    (code,) = blocks("README.md")
    assert len(code.splitlines()) == 5
    exec(code, {})
    assert "applied=True" in capsys.readouterr().out


def test_the_manual_is_python():
    code = blocks("doc/python.md")
    assert len(code) >= 5
    for block in code:
        compile(block, "doc/python.md", "exec")
