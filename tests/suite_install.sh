#!/bin/sh
# `make install` to an empty place; programs built through pkg-config, shared and static; the
# examples; what the libraries export and need; `make uninstall`.
. tests/shell.sh

if [ -n "${SAN:-}" ]; then # a sanitizer's runtime is no part of what is installed
    echo "0 passed, 0 failed"
    exit 0
fi
cc=${CC:-gcc} cxx=${CXX:-g++}
root=$tmp/root
lib=$root/opt/gs/lib
export PKG_CONFIG_LIBDIR="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root" LD_LIBRARY_PATH="$lib"
unset PKG_CONFIG_PATH
parts=$(cd "$BUILD" && ls lib*.a | sed 's/^lib//; s/\.a$//')

install() { ${MAKE:-make} -s "$1" CC="$cc" DESTDIR="$root" PREFIX=/opt/gs; }
check "make install" install install
for part in $parts; do
    check "lib$part.so" test -e "$lib/lib$part.so"
    check "soname of lib$part" sh -c "readelf -d '$lib/lib$part.so' | grep -q 'soname: .lib$part.so.[0-9]*\]'"
    check "lib$part: headers, libs, version" pkg-config --exists --print-errors "$part"
done

cat >"$tmp/version.c" <<'END'
#include <gradscale/kernel.h>
#include <stdio.h>
int main(void)
{
    gs_context *ctx;
    float x[3] = {1, 2, 4};
    const gs_tensor list[] = {{x, 3, GS_F32, "x", 0}};
    gs_stats stats;
    if (gs_context_create(&ctx, NULL) || gs_tensors_scan(ctx, list, 1, &stats) || stats.sumsq != 21)
        return 1;
    gs_context_free(ctx);
    puts(gs_version());
    return 0;
}
END
strict="-std=c11 -Wall -Wextra -Wpedantic -Werror"
version=$(pkg-config --modversion gradscale)
check "builds, shared" $cc $strict $(pkg-config --cflags gradscale) -o "$tmp/shared" "$tmp/version.c" \
    $(pkg-config --libs gradscale)
check "builds, static" $cc $strict $(pkg-config --cflags gradscale) -static -o "$tmp/static" \
    "$tmp/version.c" $(pkg-config --static --libs gradscale)
for how in shared static; do
    check "runs, $how, as version $version" test "$("$tmp/$how")" = "$version"
done
check "the header's version" grep -q "^#define GS_VERSION_MINOR $(echo "$version" | cut -d. -f2)$" \
    "$root/opt/gs/include/gradscale/base.h"
check "the sources, as a text to learn" cmp src/train/step.c "$root/opt/gs/share/gradscale/src/train/step.c"
learns() { (cd / && "$root/opt/gs/bin/gradscale" train --model gpt --data self --dry-run); }
check "which the installed program finds" learns
check "the program" test -x "$root/opt/gs/bin/gradscale"

# The examples, as a reader would build them. They need no arguments.
for source in examples/*.c examples/*.cpp; do
    [ -e "$source" ] || continue
    case $source in
    *.c) compile="$cc $strict" ;;
    *) compile="$cxx -std=c++17 -Wall -Wextra -Wpedantic -Werror" ;;
    esac
    need=gradscale
    grep -qE 'gradscale/(io|trace|train|data|checkpoint|log)\.h' "$source" && need=gradscale_train
    check "builds $source" $compile $(pkg-config --cflags $need) -o "$tmp/example" "$PWD/$source" \
        $(pkg-config --libs $need) -lm
    check "runs $source" sh -c "cd '$tmp' && ./example" # they may leave files behind
done

# libgradscale links libc, libm and threads, and nothing else; both export gs_ names only.
needs_only()
{
    readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE "$2" && return 1
    return 0
}
exports_only()
{
    nm "$@" --defined-only | awk 'NF == 3 && $2 ~ /[A-Z]/ { print $3 }' >"$tmp/names"
    grep -q . "$tmp/names" || { echo "exports nothing"; return 1; }
    ! grep -vE "$pattern" "$tmp/names"
}
libc='^(libc\.so|libm\.so|libpthread\.so|ld-linux)'
check "libgradscale needs libc and libm only" needs_only "$lib/libgradscale.so" "$libc"
for part in $parts; do
    check "lib$part needs nothing unexpected" needs_only "$lib/lib$part.so" \
        "$libc|^(libz|libjansson|libgradscale|libmpi|libmpich|libopen-.*)\.so"
    pattern='^gs_' check "lib$part.so exports gs_ names only" exports_only -D "$lib/lib$part.so"
    pattern='^gsi?_' check "lib$part.a defines gs_ and gsi_ names only" exports_only "$lib/lib$part.a"
done

check "make uninstall" install uninstall
check "leaves nothing" test -z "$(find "$root" ! -type d)"
finish
