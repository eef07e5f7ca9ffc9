#!/bin/sh
# gradscale.hpp and what it includes: alone, with both compilers, as C++17 and C++20, with exceptions and
# without; what it does.
. tests/support/shell.sh

warn="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -Iinclude"
compilers=g++
if command -v clang++ >/dev/null; then
    compilers="g++ clang++"
else
    skip clang++ "it is not installed (scripts/deps.sh ci)"
fi
for header in include/gradscale/*.hpp; do
    name=gradscale/$(basename "$header")
    case $name in *torch*) continue ;; esac # suite_torch
    printf '#include "%s"\n#include "%s"\nint unused;\n' "$name" "$name" >"$tmp/alone.cpp"
    for cxx in $compilers; do
        for mode in "-std=c++17" "-std=c++17 -fno-exceptions" "-std=c++20"; do
            check "$name, $cxx $mode" $cxx $mode $warn -fsyntax-only "$tmp/alone.cpp"
        done
    done
done

link="$BUILD/libgradscale.a -lm -pthread"
san=${SAN:+-fsanitize=$SAN -fno-sanitize-recover=all}
[ -z "$san" ] || compilers=${CXX:-g++} # the runtime has to be that of the library
for cxx in $compilers; do
    for std in 17 20; do
        check "wrapper, $cxx, C++$std" $cxx -std=c++$std $warn -g $san -o "$tmp/wrapper" tests/cpp/wrapper.cpp $link
        check "runs" "$tmp/wrapper"
    done
    check "without exceptions, $cxx" $cxx -std=c++17 -fno-exceptions $warn $san -o "$tmp/without" \
        tests/cpp/without_exceptions.cpp $link
    check "runs" "$tmp/without"
done

# One program of both kinds: their functions must not be taken for each other.
cat >"$tmp/one.cpp" <<'END'
#include "gradscale/gradscale.hpp"
bool bad_name_throws();
bool bad_name_throws()
{
    try {
        gs::scaler x("no");
    } catch (const gs::error &e) {
        return e.status == GS_ENAME;
    }
    return false;
}
END
cat >"$tmp/other.cpp" <<'END'
#include "gradscale/gradscale.hpp"
bool bad_name_throws();
int main()
{
    gs_error error = {};
    gs::scaler x("no", &error);
    return !x && error.status == GS_ENAME && bad_name_throws() ? 0 : 1;
}
END
for order in "one other" "other one"; do
    set -- $order
    for file in one other; do
        flag=
        [ $file = one ] || flag=-fno-exceptions
        check "$file.cpp" ${CXX:-g++} -std=c++17 $flag $warn -O0 $san -c -o "$tmp/$file.o" "$tmp/$file.cpp"
    done
    check "both link" ${CXX:-g++} $san -o "$tmp/both" "$tmp/$1.o" "$tmp/$2.o" $link
    check "and each reports its own way" "$tmp/both"
done

# Mistakes that must not compile.
refused()
{
    printf '#include "gradscale/gradscale.hpp"\nvoid f(gs::context &ctx);\nvoid f(gs::context &ctx)\n{\n%s\n}\n' \
        "$1" >"$tmp/wrong.cpp"
    ! ${CXX:-g++} -std=c++17 ${2:-} $warn -fsyntax-only "$tmp/wrong.cpp"
}
check "a right one compiles" not refused 'std::vector<float> v; ctx.scan({gs::tensor(v)});'
check "a type that is no gradient" refused 'std::vector<int> v; ctx.scan({gs::tensor(v)});'
check "a temporary" refused '(void)gs::tensor(std::vector<float>(3));'
check "a copy of a context" refused 'gs::context other = ctx;'
check "no error argument without exceptions" refused 'std::vector<float> v; ctx.scan({gs::tensor(v)});' -fno-exceptions
finish
