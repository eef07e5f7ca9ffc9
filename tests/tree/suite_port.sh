#!/bin/sh
# The same bits everywhere. tests/port/hash.c prints one hash of every preset, optimizer and kernel; it must be
# the same on other architectures (in an emulator), with another C library, and on Windows (under Wine). Those
# are for the long run: they need the compilers of scripts/deps.sh port. What would compute in a wider type does
# not compile.
. tests/support/shell.sh
make=${MAKE:-make}

# ---- arithmetic that rounds twice is refused ----

core() { find src/base src/num src/kernel src/scaler src/optim src/comm src/engine -name '*.c' | sort; }
if [ "$(uname -m)" = x86_64 ]; then
    names_the_flag()
    {
        gcc -mfpmath=387 -std=c11 -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc -fsyntax-only "$1" 2>"$tmp/said" && return 1
        grep -qe '-msse2 -mfpmath=sse' "$tmp/said"
    }
    for source in $(core | grep -v '^src/kernel/cpu\.c$'); do # that has no arithmetic
        check "x87: $source" names_the_flag "$source"
    done
else
    skip x87 "it is of x86"
fi

# ---- here ----

hash() { sed -n 's/^all *//p' "$1"; }
"$BUILD/tests/port_hash" >"$tmp/here" 2>"$tmp/said"
check "runs here" test $? = 0
cat "$tmp/said"
check "prints a hash" test "$(hash "$tmp/here" | wc -c)" = 17

if ! is_long || [ -n "${SAN:-}" ] || [ "${CC:-gcc}" != gcc ]; then
    skip "other machines" "it is for GS_LONG=1, gcc and no sanitizer; make test-port runs it alone"
    finish
    exit
fi

# ---- elsewhere: NAME COMPILER RUN FLAGS... ----

jobs=$(nproc 2>/dev/null || echo 2)
export WINEDEBUG=-all WINEPREFIX="$tmp/wine"
elsewhere()
{
    name=$1 cc=$2 run=$3
    shift 3
    if ! command -v "$cc" >/dev/null || ! { [ "$run" = env ] || command -v $run >/dev/null; }; then
        skip "$name" "no $cc or no $run (scripts/deps.sh port)"
        return
    fi
    ar=${cc%-gcc*}-ar
    command -v "$ar" >/dev/null || ar=ar
    program=build-$cc/tests/port_hash
    check "$name builds" $make -s -j$jobs TRAIN= MPICC= CC="$cc" AR="$ar" LDFLAGS=-static "$@" $program
    [ ! -e $program.exe ] || program=$program.exe
    $run $program 2>"$tmp/said" | tr -d '\r' >"$tmp/there"
    cat "$tmp/said"
    check "$name: the same bits" diff "$tmp/here" "$tmp/there"
}
elsewhere musl musl-gcc env
elsewhere AArch64 aarch64-linux-gnu-gcc qemu-aarch64
elsewhere RISC-V riscv64-linux-gnu-gcc qemu-riscv64
elsewhere armhf arm-linux-gnueabihf-gcc qemu-arm
elsewhere ppc64le powerpc64le-linux-gnu-gcc qemu-ppc64le
elsewhere s390x s390x-linux-gnu-gcc qemu-s390x # big-endian
# Files of a big-endian machine go on here, and back: a checkpoint, states of scalers and a log.
files() # NAME COMPILER RUN
{
    if ! command -v "$2" >/dev/null || ! command -v "$3" >/dev/null; then
        skip "files of $1" "no $2 or no $3 (scripts/deps.sh port)"
        return
    fi
    # Headers of the libraries for files that nothing here calls; of their own, only zlib's stand-ins are linked.
    mkdir -p "$tmp/headers" "$tmp/whole" "$tmp/there" "$tmp/back"
    for header in zlib.h zconf.h jansson.h jansson_config.h png.h pngconf.h pnglibconf.h jpeglib.h jmorecfg.h jconfig.h \
        jerror.h; do
        find /usr/include -maxdepth 2 -name $header -exec cp {} "$tmp/headers" \;
    done
    flags="-std=c11 -O2 -ffp-contract=off -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc -pthread"
    check "files here" ${CC:-gcc} $flags -o "$tmp/here.files" tests/port/files.c "$BUILD/libgradscale_train.a" \
        "$BUILD/libgradscale.a" -lz -lm
    check "libraries of $1" $make -s -j$jobs MPICC= CC="$2" AR="${2%-gcc}-ar" CFLAGS="-O2 -idirafter $tmp/headers" \
        build-$2/libgradscale_train.a build-$2/libgradscale.a
    check "files of $1" $2 $flags -DWITHOUT_ZLIB -idirafter "$tmp/headers" -static -o "$tmp/$1.files" tests/port/files.c \
        build-$2/libgradscale_train.a build-$2/libgradscale.a -lm
    check "a whole run" "$tmp/here.files" "$tmp/whole" 0 10
    check "$1 begins" $3 "$tmp/$1.files" "$tmp/there" 0 5
    check "it goes on here" "$tmp/here.files" "$tmp/there" 5 10
    check "begun here" "$tmp/here.files" "$tmp/back" 0 5
    check "$1 goes on" $3 "$tmp/$1.files" "$tmp/back" 5 10
    for folder in there back; do
        for file in step-00000010.safetensors scaler.txt scaler.bin; do
            check "$folder: $file has the same bits" cmp "$tmp/whole/$file" "$tmp/$folder/$file"
        done
        check "$folder: its log is whole" test "$(grep -c '^{"step":' "$tmp/$folder/log")" = 10
    done
}
files s390x s390x-linux-gnu-gcc qemu-s390x
elsewhere i686 i686-linux-gnu-gcc qemu-i386
elsewhere Windows x86_64-w64-mingw32-gcc-posix /usr/lib/wine/wine64

# ---- other compilers, and how much they optimise: NAME COMPILER CFLAGS ----

compiled()
{
    if ! command -v "$2" >/dev/null; then
        skip "$1" "no $2 (scripts/deps.sh port)"
        return
    fi
    case $2 in gcc*) ar=gcc-ar ;; *) ar=ar ;; esac # gcc-ar knows LTO's objects
    folder=build-port-$1
    # of other versions than those of .ci/run, warnings are not ours
    check "$1 builds" $make -s -j$jobs WERROR= BUILD=$folder TRAIN= MPICC= CC="$2" AR=$ar CFLAGS="$3" \
        $folder/tests/port_hash
    $folder/tests/port_hash >"$tmp/there" 2>"$tmp/said"
    cat "$tmp/said"
    check "$1: the same bits" diff "$tmp/here" "$tmp/there"
}
compiled O0 gcc "-O0"
compiled O1 gcc "-O1"
compiled O3 gcc "-O3"
compiled LTO gcc "-O2 -flto"
for version in gcc-11 gcc-12 clang-14 clang-16; do
    compiled $version $version "-O2"
done
compiled clang-16-O3 clang-16 "-O3"
finish
