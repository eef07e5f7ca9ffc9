#!/bin/sh
# Installs what is missing, by group: deps.sh build test package demo arm port browser mpi device abi debian ci. Says
# nothing when all is there.
# Where there is no apt-get, or no right to use it, it says what is missing and lets the build try.

packages=
for group; do
    case $group in
    build) packages="$packages gcc make libc6-dev zlib1g-dev libjansson-dev libpng-dev libjpeg-dev" ;;
    test) packages="$packages g++ pkg-config" ;;
    package) packages="$packages cmake meson ninja-build" ;;
    demo) packages="$packages dataset-fashion-mnist" ;;
    arm) packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user" ;;
    port) # other C libraries, systems and architectures: a gigabyte
        packages="$packages qemu-user musl-tools gcc-mingw-w64-x86-64-posix wine64
            gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross
            gcc-arm-linux-gnueabihf libc6-dev-armhf-cross gcc-powerpc64le-linux-gnu libc6-dev-ppc64el-cross
            gcc-s390x-linux-gnu libc6-dev-s390x-cross gcc-i686-linux-gnu libc6-dev-i386-cross
            gcc-11 gcc-12 clang-14 clang-16"
        ;;
    browser) packages="$packages chromium fonts-dejavu-core" ;;
    ci) packages="$packages clang clang-format libclang-rt-14-dev" ;;
    abi) packages="$packages abigail-tools" ;;
    debian) packages="$packages dpkg-dev debhelper fakeroot" ;;
    device) packages="$packages pocl-opencl-icd ocl-icd-opencl-dev lld" ;;
    mpi) packages="$packages libopenmpi-dev openmpi-bin libmpich-dev mpich" ;;
    *)
        echo "deps.sh: no group $group: build, test, package, demo, arm, port, browser, mpi, device, abi, debian, ci" >&2
        exit 2
        ;;
    esac
done

header() { echo "#include <$1>" | ${CC:-cc} -E - >/dev/null 2>&1; }

# On Debian the package; elsewhere the thing that it brings.
is_there()
{
    if command -v dpkg-query >/dev/null; then
        case $(dpkg-query -W -f '${db:Status-Status} ' "$1" 2>/dev/null) in
        *'installed '*) return 0 ;;
        *) return 1 ;;
        esac
    fi
    case $1 in
    gcc) command -v "${CC:-cc}" ;;
    libc6-dev) header stdio.h ;;
    zlib1g-dev) header zlib.h ;;
    libjansson-dev) header jansson.h ;;
    libpng-dev) header png.h ;;
    libjpeg-dev) header stdio.h && header jpeglib.h ;;
    dataset-fashion-mnist) test -d /usr/share/datasets/fashion-mnist ;;
    gcc-aarch64-linux-gnu) command -v aarch64-linux-gnu-gcc ;;
    qemu-user) command -v qemu-aarch64 ;;
    musl-tools) command -v musl-gcc ;;
    ninja-build) command -v ninja ;;
    gcc-1[0-9] | clang-1[0-9]) command -v "$1" ;;
    gcc-mingw-w64-x86-64-posix) command -v x86_64-w64-mingw32-gcc-posix ;;
    gcc-*) command -v "${1#gcc-}-gcc" ;;
    libopenmpi-dev | libmpich-dev) command -v mpicc ;; # either will do
    openmpi-bin | mpich) command -v mpirun ;;
    libc6-dev-*-cross | libclang-rt-*) ;; # they come with their compilers
    pocl-opencl-icd) test -e /etc/OpenCL/vendors/pocl.icd ;;
    ocl-icd-opencl-dev) header CL/cl.h ;;
    abigail-tools) command -v abidw ;;
    dpkg-dev) command -v dpkg-buildpackage ;;
    debhelper) command -v dh ;;
    fonts-*) ;;                               # any will do
    *) command -v "$1" ;;
    esac >/dev/null
}

missing=
for package in $packages; do
    is_there "$package" || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
if ! command -v apt-get >/dev/null || { [ -n "$as_root" ] && ! command -v sudo >/dev/null; }; then
    echo "gradscale needs what Debian calls:$missing" >&2
    exit 0
fi

install()
{
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing >/dev/null
}
echo "installing$missing" >&2
install 2>/dev/null || { $as_root apt-get update -qq && install; } || {
    echo "could not install$missing" >&2
    exit 1
}
