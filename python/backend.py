"""scikit-build-core, but that an sdist carries the C sources of the tree around it, as tree/, and both it and a wheel
the tree's LICENSE."""
import contextlib
import pathlib
import shutil

from scikit_build_core import build as _core
from scikit_build_core.build import get_requires_for_build_sdist, get_requires_for_build_wheel  # noqa: F401

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


@contextlib.contextmanager
def _licence():
    """Beside pyproject.toml, which may name no file above it."""
    here = _HERE / "LICENSE"
    if here.exists():
        yield
        return
    try:
        shutil.copy2(_HERE.parent / "LICENSE", here)
        yield
    finally:
        here.unlink(missing_ok=True)


def build_sdist(sdist_directory, config_settings=None):
    with _sources(), _licence():
        return _core.build_sdist(sdist_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with _licence():
        return _core.build_wheel(wheel_directory, config_settings, metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    with _licence():
        return _core.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
