#!/bin/sh
# gradscale/torch.hpp against the libtorch of a Python's torch: TORCH_PYTHON, or the one of `make torch`. The
# same bits as torch.amp.GradScaler, every layout of gradients, misuse, the example.
. tests/support/shell.sh

python=${TORCH_PYTHON:-build/torch/bin/python}
if [ -n "${SAN:-}" ]; then
    skip libtorch "a sanitizer's runtime is not in it"
elif ! "$python" -c 'import torch' >/dev/null 2>&1; then
    skip libtorch "there is no torch (make torch, or TORCH_PYTHON=)"
else
    "$python" - >"$tmp/paths" 2>/dev/null <<'END'
import torch
from torch.utils.cpp_extension import include_paths

major, minor = (int(x) for x in torch.__version__.split(".")[:2])
lib = torch.__path__[0] + "/lib"
print("-std=c++20" if (major, minor) >= (2, 9) else "-std=c++17")
print("-D_GLIBCXX_USE_CXX11_ABI=%d" % torch._C._GLIBCXX_USE_CXX11_ABI)
print(*("-isystem " + path for path in include_paths()))
print("-L%s -Wl,-rpath,%s -ltorch_cpu -ltorch -lc10" % (lib, lib))
END
    compile=$(head -n 3 "$tmp/paths") libs=$(tail -n 1 "$tmp/paths")
    warn="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
    build() # PROGRAM SOURCE
    {
        ${CXX:-g++} $compile $warn -Iinclude -o "$tmp/$1" "$2" "$BUILD/libgradscale.a" $libs -lm -pthread
    }

    for header in torch torch_grads; do
        echo "#include \"gradscale/$header.hpp\"" >"$tmp/alone.cpp"
        check "$header.hpp alone" ${CXX:-g++} $compile $warn -Iinclude -fsyntax-only "$tmp/alone.cpp"
    done
    check "builds grads.cpp" build grads tests/torch/grads.cpp
    check "gradients of every kind" "$tmp/grads"
    check "builds parity.cpp" build parity tests/torch/parity.cpp
    runs=100
    is_long && runs=2000
    check "runs" sh -c "'$tmp/parity' $runs >'$tmp/ours'"
    check "torch.amp.GradScaler" sh -c "'$python' tests/torch/parity.py $runs >'$tmp/theirs'"
    check "steps" test "$(wc -l <"$tmp/theirs")" -eq $((runs * 40))
    check "some of them skipped" sh -c "cut -d' ' -f4 '$tmp/theirs' | sort -u | wc -l | grep -v '^1$'"
    check "the same bits" cmp "$tmp/ours" "$tmp/theirs"
    check "bench/torch_step.py" sh -c "'$python' bench/torch_step.py --program '$1' --models mlp --seconds 0.2 \
        --turns 1 --precisions fp32,fp16 --no-compile --json >'$tmp/steps.json' 2>'$tmp/errors'"
    check "of both sides" sh -c "'$python' -c 'import json, sys
runs = json.load(sys.stdin)[\"models\"][0][\"runs\"]
assert len(runs) == 4 and all(0 < r[\"best\"] <= r[\"median\"] and r[\"resident\"] > 0 for r in runs)' \
        <'$tmp/steps.json'"
    check "builds the example" build example examples/07_libtorch.cpp
    check "which learns" "$tmp/example"
fi
finish
