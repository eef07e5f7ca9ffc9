#!/bin/sh
# `make install` to an empty place; programs built through pkg-config, shared and static; the
# examples; what the libraries export and need; `make uninstall`.
. tests/support/shell.sh

if [ -n "${SAN:-}" ]; then
    skip "make install" "a sanitizer's runtime is no part of what is installed"
    finish
    exit
fi
cc=${CC:-gcc} cxx=${CXX:-g++}
root=$tmp/root
lib=$root/opt/gs/lib
export PKG_CONFIG_LIBDIR="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root" LD_LIBRARY_PATH="$lib"
unset PKG_CONFIG_PATH
parts=$(cd "$BUILD" && ls lib*.a | sed 's/^lib//; s/\.a$//')

install() { ${MAKE:-make} -s CC="$cc" DESTDIR="$root" PREFIX=/opt/gs "$@"; }
# Until 1.0 a minor version may change the ABI.
number() { sed -n "s/^#define GS_VERSION_$1 *//p" include/gradscale/base.h; }
soversion=$(number MAJOR)
[ "$soversion" != 0 ] || soversion=0.$(number MINOR)
check "make install" install install
for part in $parts; do
    check "lib$part.so" test -e "$lib/lib$part.so"
    check "soname of lib$part" sh -c "readelf -d '$lib/lib$part.so' | grep -F 'soname: [lib$part.so.$soversion]'"
    check "which is a file" test -e "$lib/lib$part.so.$soversion"
    check "lib$part: headers, libs, version" pkg-config --exists --print-errors "$part"
done

cat >"$tmp/version.c" <<'END'
#include <gradscale/tensor.h>
#include <stdio.h>
int main(void)
{
    gs_context *ctx;
    float x[3] = {1, 2, 4};
    const gs_tensor list[] = {{x, 3, GS_F32, "x", 0}};
    gs_stats stats;
    if (gs_context_create(&ctx, NULL, NULL) || gs_tensors_scan(ctx, list, 1, &stats) || stats.sumsq != 21)
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
check "no sources but one text to learn" test "$(ls "$root/opt/gs/share/gradscale")" = self.txt
learns() { (cd "$1" && "$root/opt/gs/bin/gradscale" train --model gpt --data self --dry-run) >"$tmp/$2"; }
check "which the installed program finds" learns / installed
check "and the sources themselves" learns . tree
same() { grep ^data "$tmp/tree" >"$tmp/data" && grep -xFf "$tmp/data" "$tmp/installed"; }
check "which is as long" same
share=$root/opt/gs/share
for page in gradscale gradscale-train gradscale-report gradscale-bench gradscale-bench-gemm; do
    check "the page $page" grep -q '^.SH OPTIONS' "$share/man/man1/$page.1"
done
if command -v man >/dev/null; then
    pages() { for page in "$share"/man/man1/*.1; do MANROFFSEQ= man --warnings -E UTF-8 -l -Tutf8 "$page" 2>&1 >/dev/null; done; }
    check "which man shows without a warning" test -z "$(pages)"
    shown() { MANWIDTH=80 man -l "$share/man/man1/gradscale-train.1" | col -b | grep -q -- '--on-overflow HOW'; }
    check "with its options" shown
else
    skip "what man makes of the pages" "there is no man"
fi
check "documents" test -e "$share/doc/gradscale/doc/tutorial.md"
check "examples" cmp examples/tutorial/scaled.c "$share/doc/gradscale/examples/tutorial/scaled.c"
completes() # WORDS...: what bash would offer for the last of them
{
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gradscale; echo "${COMPREPLY[*]}"' - \
        "$share/bash-completion/completions/gradscale" "$root/opt/gs/bin/gradscale" "$@"
}
if command -v bash >/dev/null; then
    check "bash: commands" test "$(completes tr)" = train
    check "bash: options" test "$(completes train --prec)" = --precision
    check "bash: values" test "$(completes train --precision b)" = bf16
    check "bash: presets" test "$(completes train --scaler meg)" = megatron
    check "bash: commands of commands" test "$(completes bench gem)" = gemm
else
    skip "completion of bash" "there is no bash"
fi
if command -v zsh >/dev/null; then
    check "zsh reads its completion" zsh -n "$share/zsh/site-functions/_gradscale"
else
    skip "completion of zsh" "there is no zsh"
fi
if command -v fish >/dev/null; then
    check "fish reads its completion" fish -n "$share/fish/vendor_completions.d/gradscale.fish"
else
    skip "completion of fish" "there is no fish"
fi
check "the program" test -x "$root/opt/gs/bin/gradscale"

# The command that stands at the top of an example, without its second half, which runs it.
by_its_own()
{
    command=$(sed -n 's|^[ /*]* \(cc .*\) && .*|\1|p; s|^[ /*]* \(c++ .*\) && .*|\1|p' "$1" | head -n 1)
    echo "$command"
    [ -n "$command" ] || return 1
    (cd "$(dirname "$1")" && eval "$(echo "$command" | sed "s|^cc |$cc |; s|^c++ |$cxx |") -o '$tmp/own'")
}

# The examples, as a reader would build them. They need no arguments.
for source in examples/*.c examples/*.cpp examples/tutorial/*.c; do
    [ -e "$source" ] || continue
    ! grep -q gradscale/torch.hpp "$source" || continue # suite_torch
    ! grep -q gradscale/device.h "$source" || continue # suite_device
    case $source in
    *.c) compile="$cc $strict" ;;
    *) compile="$cxx -std=c++17 -Wall -Wextra -Wpedantic -Werror" ;;
    esac
    need=gradscale
    grep -qE 'gradscale/(io|trace|train|data|checkpoint|log)\.h' "$source" && need=gradscale_train
    check "builds by its own command: $source" by_its_own "$source"
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
        "$libc|^(libz|libjansson|libpng16|libjpeg|libgradscale|libmpi|libmpich|libopen-.*)\.so"
    pattern='^gs_' check "lib$part.so exports gs_ names only" exports_only -D "$lib/lib$part.so"
    pattern='^gsi?_' check "lib$part.a defines gs_ and gsi_ names only" exports_only "$lib/lib$part.a"
done

# ---- stripped, debug info apart ----

has_debug_info() { readelf -S "$1" | grep -q '\.debug_info'; }
has_link() # its debug file is where gdb looks
{
    debug=$(dirname "$1")/.debug/$(basename "$(readlink -f "$1")").debug
    has_debug_info "$debug" && readelf --string-dump=.gnu_debuglink "$1" | grep -F "$(basename "$debug")"
}
check "debug info is installed" has_debug_info "$lib/libgradscale.so"
check "make install STRIP=yes" install install STRIP=yes
for file in "$lib"/lib*.so "$root/opt/gs/bin/gradscale"; do
    check "stripped: $(basename "$file")" not has_debug_info "$file"
    check "its debug info is apart" has_link "$file"
done
check "and it runs" "$root/opt/gs/bin/gradscale" --version
check "stripped archives" not has_debug_info "$lib/libgradscale.a"
check "with all names" sh -c "nm '$lib/libgradscale.a' | grep -q ' T gs_context_create'"
check "link" $cc $(pkg-config --cflags gradscale) -static -o "$tmp/static" "$tmp/version.c" \
    $(pkg-config --static --libs gradscale)

check "make uninstall" install uninstall
check "leaves nothing" test -z "$(find "$root" ! -type d)"

# ---- the core alone, where there is neither zlib nor jansson ----

mkdir "$tmp/lone"
cp -r Makefile include src cmake "$tmp/lone"
mkdir "$tmp/lone/no"
for header in zlib.h jansson.h png.h jpeglib.h mpi.h; do
    echo '#error it is not needed' >"$tmp/lone/no/$header"
done
lone() { (cd "$tmp/lone" && install CFLAGS="-O0 -Ino" MPICC= "$@"); }
check "make install-lib" lone -j2 install-lib
check "installs no program" test ! -e "$root/opt/gs/bin/gradscale"
check "one library" test "$(ls "$lib"/*.a)" = "$lib/libgradscale.a"
check "its headers" test -e "$root/opt/gs/include/gradscale/optim.h"
check "those of C++" test -e "$root/opt/gs/include/gradscale/gradscale.hpp"
check "and no others" test ! -e "$root/opt/gs/include/gradscale/train.h"
for header in "$root"/opt/gs/include/gradscale/*.h; do
    check "$(basename "$header") alone" $cc -fsyntax-only -I"$root/opt/gs/include" -x c "$header"
done
check "its pkg-config file" test "$(ls "$lib/pkgconfig")" = gradscale.pc
check "a program builds" $cc $strict $(pkg-config --cflags gradscale) -o "$tmp/shared" "$tmp/version.c" \
    $(pkg-config --libs gradscale)
check "and runs" test "$("$tmp/shared")" = "$version"
check "make uninstall" lone uninstall
check "leaves nothing" test -z "$(find "$root" ! -type d)"

# ---- WERROR= ----

echo 'static int not_used;' >>"$tmp/lone/src/base/clock.c"
object=$(basename "$BUILD")/obj/src/base/clock.o
check "a warning is an error" not lone "$object"
check "unless WERROR=" lone "$object" WERROR=
finish
