#!/bin/sh
# The Debian packages: they build from the tree, install into an empty root, and what debian/tests asks of an
# installed package holds there. It compiles everything: for GS_LONG=1.
. tests/support/shell.sh

version=$(sed -n '1s/.*(\([0-9.]*\).*/\1/p' debian/changelog)
number() { sed -n "s/^#define GS_VERSION_$1 *//p" include/gradscale/base.h; }
check "the version of the library" test "$version" = "$(number MAJOR).$(number MINOR).$(number PATCH)"
check "its soname is the package's name" grep -q "^Package: libgradscale$(number MAJOR).$(number MINOR)\$" debian/control
check "tests can be run" test -x debian/tests/program -a -x debian/tests/library -a -x debian/rules

if ! is_long; then
    skip "building packages" "it is for GS_LONG=1"
elif ! command -v dpkg-buildpackage >/dev/null || ! command -v dh >/dev/null; then
    skip "building packages" "dpkg-buildpackage and debhelper are not installed (scripts/deps.sh debian)"
else
    mkdir "$tmp/tree"
    git ls-files -z | xargs -0 cp --parents -t "$tmp/tree"
    build() { (cd "$tmp/tree" && DEB_BUILD_OPTIONS=parallel=2 dpkg-buildpackage -us -uc -b); }
    check "dpkg-buildpackage" build
    for package in gradscale libgradscale0.1 libgradscale-dev; do
        check "$package" sh -c "dpkg-deb -x '$tmp/${package}_$version'_*.deb '$tmp/root'"
    done
    root=$tmp/root/usr
    lib=$(dirname "$(find "$root/lib" -name 'libgradscale.so.*' | head -n 1)")
    check "man pages" test -e "$root/share/man/man1/gradscale-train.1.gz"
    check "examples" sh -c "ls '$root'/share/doc/libgradscale-dev/examples/00_first.c*"
    # the tests of the packages, as if they were installed
    program() { (cd "$tmp" && mkdir p && PATH=$root/bin:$PATH LD_LIBRARY_PATH=$lib AUTOPKGTEST_TMP=$tmp/p sh "$tmp/tree/debian/tests/program"); }
    library()
    {
        mkdir "$tmp/l" && PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$tmp/root LD_LIBRARY_PATH=$lib \
            AUTOPKGTEST_TMP=$tmp/l sh "$tmp/tree/debian/tests/library"
    }
    check "debian/tests/program" program
    check "debian/tests/library" library
fi
finish
