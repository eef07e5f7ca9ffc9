"""The structs of _lib.py are those of the headers."""
import ctypes
import pathlib
import re
import shutil
import subprocess

import pytest

from gradscale import _lib

HEADERS = pathlib.Path(__file__).parents[2] / "include"
STRUCTS = {
    "gs_error": _lib.Error,
    "gs_stats": _lib.Stats,
    "gs_strided": _lib.Strided,
    "gs_tensor": _lib.Tensor,
    "gs_exponents": _lib.Exponents,
    "gs_rounded": _lib.Rounded,
    "gs_matrix": _lib.Matrix,
    "gs_matrix_out": _lib.MatrixOut,
    "gs_gemm": _lib.Gemm,
    "gs_params": _lib.Params,
    "gs_machine": _lib.Machine,
    "gs_rules": _lib.Rules,
    "gs_counters": _lib.Counters,
    "gs_scaler": _lib.Scaler,
    "gs_step": _lib.Step,
    "gs_verdict": _lib.Verdict,
    "gs_window": _lib.Window,
}


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_offsets_and_sizes_are_those_of_the_headers(tmp_path):
    lines, ours = [], []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        ours.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            member = field.rstrip("_")
            lines.append(f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));')
            ours.append(f"{name}.{member} {getattr(struct, field).offset}")
    source = '#include "gradscale/gradscale.h"\n#include <stdio.h>\nint main(void) {' + "\n".join(lines) + "}"
    (tmp_path / "x.c").write_text(source)
    subprocess.run(["cc", f"-I{HEADERS}", "-o", tmp_path / "x", tmp_path / "x.c"], check=True)
    theirs = subprocess.run([tmp_path / "x"], check=True, capture_output=True, text=True).stdout
    assert theirs.split("\n")[:-1] == ours


def test_words_are_those_of_the_library():
    names = {
        "gs_reason_name": _lib.REASONS,
        "gs_action_name": _lib.ACTIONS,
    }
    for function, words in names.items():
        name = getattr(_lib.lib, function)
        name.restype = ctypes.c_char_p
        assert tuple(name(i).decode() for i in range(len(words))) == words
    version = re.search(r'__version__ = "(.*)"', (pathlib.Path(_lib.__file__).parent / "__init__.py").read_text())
    assert _lib.lib.gs_version().decode() == version[1]
