#!/bin/sh
# The library in programs that are built with CMake or Meson, and the release: each is used as a stranger
# would. Built without optimization, to be quick.
. tests/support/shell.sh

if [ -n "${SAN:-}" ]; then
    skip packages "a sanitizer's runtime is no part of what is installed"
    finish
    exit
fi
cc=${CC:-gcc}
make=${MAKE:-make}
export CC="$cc" CFLAGS=-O0
tree=$PWD

cat >"$tmp/core.c" <<'END'
#include <gradscale/optim.h>
#include <gradscale/scaler.h>
#include <stdio.h>
int main(void)
{
    gs_scaler scaler;
    if (gs_scaler_init(&scaler, "pytorch", NULL) != GS_OK)
        return 1;
    printf("%s %g\n", gs_version(), gs_scaler_scale(&scaler));
    return 0;
}
END
cat >"$tmp/train.c" <<'END'
#include <gradscale/train.h>
#include <gradscale/data.h>
#include <stdio.h>
int main(void)
{
    gs_data *data;
    return gs_data_open(&data, NULL, NULL, NULL) != GS_ENULL || puts(gs_version()) < 0;
}
END

# ---- CMake ----

# project FOLDER LINES...: a project with a program per target
project()
{
    mkdir -p "$tmp/$1"
    cp "$tmp/core.c" "$tmp/train.c" "$tmp/$1"
    { echo "cmake_minimum_required(VERSION 3.16)" && echo "project(stranger C)" && cat; } >"$tmp/$1/CMakeLists.txt"
}
programs='add_executable(core core.c)
target_link_libraries(core gradscale::gradscale)'
more='add_executable(train train.c)
target_link_libraries(train gradscale::train)'
# builds FOLDER BUILD OPTIONS...
builds()
{
    project=$tmp/$1 build=$tmp/$2
    shift 2
    cmake -S "$project" -B "$build" "$@" && cmake --build "$build" -j2
}
shared() { readelf -d "$1" | grep -F "[lib$2.so."; }

if command -v cmake >/dev/null; then
    # BUILD is made already, with the usual flags.
    check "make install" env -u CFLAGS $make -s CC="$cc" DESTDIR="$tmp/root" PREFIX=/opt/gs install
    project found <<END
set(gradscale_USE_STATIC_LIBS \${STATIC})
find_package(gradscale 0.1 REQUIRED COMPONENTS train)
$programs
$more
if(TARGET gradscale::mpi)
  message(STATUS "there is mpi")
endif()
END
    mv "$tmp/root/opt/gs" "$tmp/moved" # it is found from where it lies
    check "find_package" builds found found-shared -DSTATIC=OFF -DCMAKE_PREFIX_PATH="$tmp/moved"
    check "is shared" shared "$tmp/found-shared/core" gradscale
    check "runs" "$tmp/found-shared/core"
    check "train runs" "$tmp/found-shared/train"
    check "find_package, static" builds found found-static -DSTATIC=ON -DCMAKE_PREFIX_PATH="$tmp/moved"
    check "is static" not shared "$tmp/found-static/core" gradscale
    check "runs, static" "$tmp/found-static/core"
    check "train runs, static" "$tmp/found-static/train"
    if [ -e "$BUILD/libgradscale_mpi.a" ]; then
        check "the target mpi" sh -c "cmake -S '$tmp/found' -B '$tmp/found-shared' | grep 'there is mpi'"
    fi
    for version in 0.2 1.0 0.1.9 0.0; do
        sed "s/gradscale 0.1 /gradscale $version /" "$tmp/found/CMakeLists.txt" | project "not-$version"
        sed -i '1,2d' "$tmp/not-$version/CMakeLists.txt"
        check "version $version is another" not cmake -S "$tmp/not-$version" -B "$tmp/not-$version/build" \
            -DCMAKE_PREFIX_PATH="$tmp/moved"
    done
    sed 's/COMPONENTS train/COMPONENTS nonsense/' "$tmp/found/CMakeLists.txt" >"$tmp/lists"
    project nonsense <"$tmp/lists"
    check "an unknown component" not cmake -S "$tmp/nonsense" -B "$tmp/nonsense/build" -DCMAKE_PREFIX_PATH="$tmp/moved"

    project inside <<END
set(GRADSCALE_TRAIN \${TRAIN})
set(GRADSCALE_DEVICE \${TRAIN})
add_subdirectory("$tree" gradscale)
$programs
if(TRAIN)
$more
endif()
END
    check "add_subdirectory" builds inside inside-static -DTRAIN=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
    check "runs as the other" test "$("$tmp/inside-static/core")" = "$("$tmp/found-shared/core")"
    sources() { sed -n "s|.*\"file\": \"$tree/\(.*\)\".*|\1|p" "$1/compile_commands.json" | sort -u; }
    core() { find src/base src/num src/kernel src/scaler src/optim src/comm src/engine -name '*.c' | sort; }
    core >"$tmp/core.list"
    sources "$tmp/inside-static" >"$tmp/cmake.list"
    check "the sources of the Makefile" diff "$tmp/core.list" "$tmp/cmake.list"
    check "configures with train" cmake -S "$tmp/inside" -B "$tmp/inside-shared" -DTRAIN=ON \
        -DBUILD_SHARED_LIBS=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
    find src -name '*.c' | sort >"$tmp/all.list"
    sources "$tmp/inside-shared" >"$tmp/cmake.list"
    check "all sources of the Makefile" diff "$tmp/all.list" "$tmp/cmake.list"
    if is_long; then
        check "add_subdirectory, shared" cmake --build "$tmp/inside-shared" -j2
        check "is shared" shared "$tmp/inside-shared/train" gradscale_train
        check "train runs" "$tmp/inside-shared/train"
        project own </dev/null
        check "cmake --install" sh -c "cmake -S . -B '$tmp/own/build' -DCMAKE_INSTALL_PREFIX='$tmp/own/usr' -DGRADSCALE_TRAIN=ON &&
            cmake --build '$tmp/own/build' -j2 && cmake --install '$tmp/own/build'"
        check "find_package of that" builds found found-own -DSTATIC=OFF -DCMAKE_PREFIX_PATH="$tmp/own/usr"
        check "runs" "$tmp/found-own/train"
    else
        skip "CMake, shared and installed" "it is for GS_LONG=1"
    fi
else
    skip CMake "it is not installed (scripts/deps.sh package)"
fi

# ---- Meson ----

check "meson.build has the sources of the Makefile" $make -s source-lists-check
if command -v meson >/dev/null && command -v ninja >/dev/null; then
    mkdir -p "$tmp/meson/subprojects"
    ln -s "$tree" "$tmp/meson/subprojects/gradscale"
    cp "$tmp/core.c" "$tmp/meson"
    cat >"$tmp/meson/meson.build" <<'END'
project('stranger', 'c')
gradscale = subproject('gradscale', default_options: ['default_library=static', 'optimization=0', 'debug=false'])
executable('core', 'core.c', dependencies: gradscale.get_variable('gradscale_dep'))
END
    check "a Meson subproject" meson setup "$tmp/meson/build" "$tmp/meson"
    check "builds" ninja -j2 -C "$tmp/meson/build"
    check "runs" "$tmp/meson/build/core"
else
    skip Meson "it is not installed (scripts/deps.sh package)"
fi

# ---- the release ----

if git rev-parse -q --verify HEAD >/dev/null 2>&1 && [ "$cc" = gcc ]; then
    check "make dist" $make -s dist
    release=$(basename "$(ls "$BUILD"/gradscale-*.tar.gz)" .tar.gz)
    cp "$BUILD/$release.tar.gz" "$tmp"
    check "the same bytes again" sh -c "$make -s dist && cmp '$BUILD/$release.tar.gz' '$tmp/$release.tar.gz'"
    mkdir "$tmp/release"
    check "unpacks" tar -xf "$tmp/$release.tar.gz" -C "$tmp/release"
    cd "$tmp/release/$release" || exit 1
    check "has all files of the tree" test "$(git -C "$tree" ls-files | wc -l)" = "$(find . -type f ! -path './dist/*' | wc -l)"
    check "has the amalgamation" test -e dist/gradscale.c -a -e dist/gradscale.h -a -e dist/README.md
    check "builds" $make -s -j2 MPICC= DESTDIR="$tmp/unpacked" PREFIX=/usr install-lib
    check "a program of it" $cc -I"$tmp/unpacked/usr/include" -o "$tmp/release/core" "$tmp/core.c" \
        "$tmp/unpacked/usr/lib/libgradscale.a" -lm -pthread
    check "runs" "$tmp/release/core"
    # The commands of dist/README.md, on its own program.
    cd dist || exit 1
    awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >main.c
    sed -n 's/^    \(cc .*\)/\1/p' README.md >commands
    check "the README has commands" test -s commands -a -s main.c
    check "its program builds" sh -e commands
    check "and runs" ./main
    cd "$tree" || exit 1
else
    skip "the release" "it is made of a git tree, by gcc"
fi
finish
