"""Recordings of the frameworks' scalers, tests/traces: doc/scaler.md has the format."""
import pathlib
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "traces"


class Trace(NamedTuple):
    name: str
    preset: str
    settings: dict
    found: list  # one flag per step
    scales: list  # before the first step, then after each


def read(path):
    about = {}
    for line in path.read_text().splitlines():
        key, _, rest = line.partition(" ")
        if key == "trace":
            about = {"trace": rest}
        elif key == "end":
            yield _trace(about)
        elif key and key[0] != "#":
            about[key] = rest


def _trace(about):
    steps, flag, found = int(about["steps"]), False, []
    for run in about["found"].split():
        found += [flag] * int(run)
        flag = not flag
    found += [False] * (steps - len(found))
    scales, now = [], None
    changes = dict(item.split(":") for item in about.get("scale", "").split())
    for key in ["start", *map(str, range(steps))]:
        now = float.fromhex(changes[key]) if key in changes else now
        scales.append(now)
    settings = dict(item.split("=") for item in about.get("set", "").split())
    return Trace(about["trace"], about["preset"], settings, found, scales if changes else None)


def all_traces():
    for path in sorted(FOLDER.glob("*.trace")):
        yield from read(path)
