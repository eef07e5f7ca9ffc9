import pathlib
import shutil
import sys

import pytest


@pytest.fixture(scope="session")
def program():
    """The command `gradscale`: of this environment, else of the tree's build."""
    beside = pathlib.Path(sys.executable).parent / "gradscale"
    built = pathlib.Path(__file__).parents[2] / "build" / "gradscale"
    for path in (beside, built):
        if path.exists():
            return str(path)
    return shutil.which("gradscale") or pytest.skip("there is no command gradscale")
