#!/bin/sh
# What doc/tutorial.md shows is what there is: C is a part of an example, and commands print what
# stands below them.
. tests/support/shell.sh

# Each block becomes a file: 01.c, 02.console, ...
awk -v folder="$tmp" '
/^```[a-z]/ { on = 1; file = sprintf("%s/%02d.%s", folder, ++n, substr($0, 4)); printf "" >file; next }
/^```$/ { on = 0; close(file) }
on { print >file }' doc/tutorial.md

# Is the first file a run of whole lines of the other one?
part_of()
{
    awk 'NR == FNR { part = part "\n" $0; next } { all = all "\n" $0 }
         END { exit !index(all "\n", part "\n") }' "$1" "$2"
}
of_an_example()
{
    for example in examples/tutorial/*.c; do
        part_of "$1" "$example" && return 0
    done
    cat "$1"
    return 1
}
for block in "$tmp"/*.c; do
    check "$(basename "$block") is of an example" of_an_example "$block"
done

# The commands, in a folder that looks like the root. A block is a script and its output.
mkdir "$tmp/root"
case $BUILD in
/*) build=$BUILD ;;
*) build=$PWD/$BUILD ;;
esac
ln -s "$PWD/include" "$PWD/examples" "$PWD/tests" "$tmp/root"
ln -s "$build" "$tmp/root/build"
cc() { ${CC:-gcc} ${SAN:+-fsanitize=$SAN} "$@"; }
runs()
{
    sed -n 's/^\$ //p' "$1" >"$1.sh"
    (cd "$tmp/root" && . "$1.sh") >"$1.printed" && sed '/^\$ /d' "$1" | diff - "$1.printed"
}
for block in "$tmp"/*.console; do
    [ "$(cat "$block")" = '$ make' ] || check "$(basename "$block") runs as shown" runs "$block"
done
check "there were some" test "$(ls "$tmp"/*.c "$tmp"/*.console | wc -l)" -ge 10
finish
