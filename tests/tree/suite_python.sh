#!/bin/sh
# The Python package: built as an sdist and a wheel from it, installed where there is no compiler, tested against
# torch. The packages it needs are in a virtual environment: GS_PYTHON, or the one of `make python`.
. tests/support/shell.sh
unset PYTHONPATH

python=${GS_PYTHON:-.cache/python/bin/python}
if [ -n "${SAN:-}" ]; then
    skip package "a sanitizer's runtime is not in Python"
elif [ "${CC:-gcc}" != gcc ]; then
    skip package "it is built once, with gcc"
elif ! "$python" -c 'import torch, numpy, pytest, build, scikit_build_core' >/dev/null 2>&1; then
    skip package "there is no environment with its packages (make python, or GS_PYTHON=)"
else
    # Unoptimised and without debug information, to be quick; the numbers are the same.
    "$python" -m build --no-isolation --config-setting=cmake.build-type=None --outdir "$tmp/dist" python \
        >"$tmp/build.log" 2>&1 || cat "$tmp/build.log"
    wheel=$(ls "$tmp"/dist/*.whl 2>/dev/null)
    check "one wheel for all Pythons" sh -c "echo '$wheel' | grep -- '-py3-none-linux_'"
    check "nothing left behind in the tree" test ! -e python/tree
    PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair -w "$tmp/repaired" "$wheel" >"$tmp/audit.log" 2>&1
    check "the licence is in it" sh -c "'$python' -m zipfile -l '$wheel' | grep 'dist-info/licenses/LICENSE'"
    check "auditwheel tags it manylinux" sh -c "ls '$tmp'/repaired/*-py3-none-manylinux*.whl"

    # An environment without a compiler and without packages.
    check "an empty environment" python3 -m venv "$tmp/empty"
    check "installs there" env PATH="$tmp/empty/bin:/nowhere" "$tmp/empty/bin/python" -m pip install -q --no-index --no-deps \
        "$wheel"
    check "the command" env -i "$tmp/empty/bin/gradscale" --version
    check "needs no library but libc" sh -c "! ldd '$tmp/empty/bin/gradscale' | grep -E 'libz|libjansson|libpng|libjpeg'"
    check "imports" env -i "$tmp/empty/bin/python" -c 'import gradscale; assert gradscale.Scaler().scale == 65536'

    for part in torch jax keras; do
        check "what gradscale.$part needs is said" sh -c "env -i '$tmp/empty/bin/python' -c 'import gradscale.$part' 2>&1 |
            grep '^ImportError: gradscale.$part needs $part, which is not installed: pip install '"
    done

    site=$("$tmp/empty/bin/python" -c 'import gradscale, os; print(os.path.dirname(os.path.dirname(gradscale.__file__)))')
    mkdir "$tmp/site" && cp -r "$site/gradscale" "$tmp/site"
    PYTHONPATH="$tmp/site" PYTHONDONTWRITEBYTECODE=1 PATH="$tmp/empty/bin:$PATH" "$python" -m pytest -q -rs \
        -c python/pyproject.toml --rootdir python "$tmp/site/gradscale" python/tests >"$tmp/pytest.log" 2>&1 ||
        sed 's/^/  /' "$tmp/pytest.log"
    last=$(tail -n 1 "$tmp/pytest.log")
    count() { echo "$last" | tr ',' '\n' | sed -n "s/^ *\([0-9][0-9]*\) $1.*/\1/p"; }
    tests=$(count passed)
    passed=$((passed + ${tests:-0}))
    wrong=$(($(count failed | sed 's/^$/0/' | grep . || echo 0) + $(count error | grep . || echo 0)))
    failed=$((failed + wrong))
    check "the tests of python/" test "${tests:-0}" -gt 200 -a "$wrong" -eq 0
    grep '^SKIPPED' "$tmp/pytest.log" | sed 's/^SKIPPED \[[0-9]*\] //' >"$tmp/skips"
    while IFS= read -r line; do
        skip pytest "$line"
    done <"$tmp/skips"
fi
finish
