"""Packages that a part of gradscale needs beyond the standard library."""
from __future__ import annotations

import importlib
from typing import Any


def need(package: str, by: str, install: str) -> Any:
    """The package; where it is not installed, an ImportError says what to install."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.split(".")[0]:  # it is there, and what it needs is not
            raise
        raise ImportError(f"{by} needs {package}, which is not installed: pip install '{install}'", name=package) from None
