"""A package that is not installed: one sentence says what to install."""
import subprocess
import sys

import pytest

NEEDS = {
    "gradscale.torch": ("torch", "torch>=2.9"),
    "gradscale.jax": ("jax", "jax>=0.10"),
    "gradscale.keras": ("keras", "keras>=3.12"),
    "gradscale.torch.lightning": ("lightning", "lightning"),
    "gradscale.torch.transformers": ("transformers", "transformers[torch]"),
}


HIDE = """
import sys

class Hide:
    def find_spec(name, path=None, target=None):
        if name in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide)
"""


def importing(module, hidden, **environ):
    """What is written where the packages `hidden` are not there."""
    command = [sys.executable, "-c", f"hidden = {hidden!r}{HIDE}import {module}"]
    return subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path), **environ}).stderr


@pytest.mark.parametrize("module", NEEDS)
def test_it_says_what_to_install(module):
    package, install = NEEDS[module]
    if module.startswith("gradscale.torch."):
        pytest.importorskip("torch")
    last = importing(module, [package]).strip().splitlines()[-1]
    assert last.startswith(f"ImportError: {module} needs {package}")
    assert last.endswith(f"which is not installed: pip install '{install}'")


def test_what_a_package_lacks_is_its_own_matter():
    pytest.importorskip("torch")
    assert "ModuleNotFoundError" in importing("gradscale.torch", ["typing_extensions"])


def test_keras_without_its_backend():
    pytest.importorskip("keras")
    last = importing("gradscale.keras", ["tensorflow"], KERAS_BACKEND="tensorflow").strip().splitlines()[-1]
    assert last == "ImportError: Keras looks for tensorflow: gradscale.keras needs KERAS_BACKEND=torch or KERAS_BACKEND=jax"


def test_the_package_itself_needs_nothing():
    assert importing("gradscale", ["numpy", "torch", "jax", "keras"]) == ""
