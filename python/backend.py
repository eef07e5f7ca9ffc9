"""scikit-build-core, but that an sdist carries the C sources of the tree around it, as tree/."""
import contextlib
import pathlib
import shutil

from scikit_build_core import build as _core
from scikit_build_core.build import (  # noqa: F401  what PEP 517 asks for
    build_wheel,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

_HERE = pathlib.Path(__file__).resolve().parent
_TREE = _HERE / "tree"
_PARTS = ("CMakeLists.txt", "LICENSE", "cmake", "include", "src", "cli", "scripts")


@contextlib.contextmanager
def _sources():
    if _TREE.exists():  # this is an unpacked sdist
        yield
        return
    try:
        for part in _PARTS:
            source = _HERE.parent / part
            if source.is_dir():
                shutil.copytree(source, _TREE / part)
            else:
                _TREE.mkdir(exist_ok=True)
                shutil.copy2(source, _TREE / part)
        yield
    finally:
        shutil.rmtree(_TREE, ignore_errors=True)


def build_sdist(sdist_directory, config_settings=None):
    with _sources():
        return _core.build_sdist(sdist_directory, config_settings)
