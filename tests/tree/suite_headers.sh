#!/bin/sh
# Every public header compiles alone, in C11 and in C++17; a C++ program links.
. tests/support/shell.sh

warn="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only -Iinclude"
c_compilers=gcc cxx_compilers=g++
if command -v clang >/dev/null && command -v clang++ >/dev/null; then
    c_compilers="gcc clang" cxx_compilers="g++ clang++"
else
    skip clang "it is not installed (scripts/deps.sh ci)"
fi

for header in include/gradscale/*.h; do
    name=gradscale/$(basename "$header")
    # Twice: the second must add nothing.
    printf '#include "%s"\n#include "%s"\nint unused;\n' "$name" "$name" >"$tmp/alone.c"
    cp "$tmp/alone.c" "$tmp/alone.cpp"
    for cc in $c_compilers; do
        check "$name, $cc, C11" $cc -std=c11 $warn "$tmp/alone.c"
    done
    for cxx in $cxx_compilers; do
        check "$name, $cxx, C++17" $cxx -std=c++17 $warn "$tmp/alone.cpp"
    done
done

cat >"$tmp/program.cpp" <<'END'
#include "gradscale/tensor.h"
#include <vector>
int main()
{
    std::vector<float> w(1000, 2.0f);
    gs_context *ctx = nullptr;
    if (gs_context_create(&ctx, nullptr, nullptr) != GS_OK)
        return 1;
    const gs_tensor list[] = {{w.data(), w.size(), GS_F32, "w", 0}};
    gs_stats stats;
    const gs_status status = gs_tensors_scale(ctx, list, 1, 0.5f, &stats);
    gs_context_free(ctx);
    return status == GS_OK && gs_stats_finite(&stats) && stats.amax == 1 && w[999] == 1 ? 0 : 2;
}
END
san=${SAN:+-fsanitize=$SAN}
check "a C++ program links" ${CXX:-g++} -std=c++17 -Wall -Wextra -Werror $san -Iinclude \
    -o "$tmp/program" "$tmp/program.cpp" "$BUILD/libgradscale.a" -lm -pthread
check "and runs" "$tmp/program"
finish
