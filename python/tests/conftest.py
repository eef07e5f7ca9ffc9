import os
import pathlib
import shutil
import sys

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")  # before anything imports it


@pytest.fixture(scope="session")
def program():
    """The command `gradscale`: of the PATH, of this environment, of the tree's build."""
    beside = pathlib.Path(sys.executable).parent / "gradscale"
    built = pathlib.Path(__file__).parents[2] / "build" / "gradscale"
    for path in (shutil.which("gradscale"), beside, built):
        if path and pathlib.Path(path).exists():
            return str(path)
    pytest.skip("there is no command gradscale")
