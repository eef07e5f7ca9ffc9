#!/bin/sh
# Installs what is missing, by group: deps.sh build test arm ci. Says nothing when all is there.
# Where there is no apt-get, or no right to use it, it says what is needed and lets the build try.

packages=
for group; do
    case $group in
    build) packages="$packages gcc make libc6-dev zlib1g-dev libjansson-dev" ;;
    test) packages="$packages g++ pkg-config binutils" ;;
    arm) packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user" ;;
    ci) packages="$packages clang clang-format libclang-rt-14-dev" ;;
    *) echo "deps.sh: no group $group: build, test, arm, ci" >&2; exit 2 ;;
    esac
done

if ! command -v dpkg-query >/dev/null; then
    for tool in "${CC:-cc}" make; do
        command -v "$tool" >/dev/null && continue
        echo "gradscale needs what Debian calls:$packages" >&2
        exit 1
    done
    exit 0
fi

missing=
for package in $packages; do
    case $(dpkg-query -W -f '${db:Status-Status} ' "$package" 2>/dev/null) in
    *'installed '*) ;;
    *) missing="$missing $package" ;;
    esac
done
[ -z "$missing" ] && exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    if ! command -v sudo >/dev/null; then
        echo "gradscale needs these packages, and only root can install them:$missing" >&2
        exit 0
    fi
fi
echo "installing$missing" >&2
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing >/dev/null
}
install 2>/dev/null || { $as_root apt-get update -qq && install; } || {
    echo "could not install:$missing" >&2
    exit 1
}
