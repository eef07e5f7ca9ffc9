#!/bin/sh
# make help names every target, and make compile_commands.json every source. No line is too wide.
. tests/support/shell.sh
make=${MAKE:-make}

# ---- help ----

$make -s help >"$tmp/help"
targets() # those of .PHONY but the parts of others
{
    awk '/^\.PHONY:/ { on = 1 } on { line = $0; sub(/^\.PHONY:/, "", line); sub(/\\$/, "", line); print line }
         on && !/\\$/ { exit }' Makefile | tr -s ' ' '\n' | grep -vxE '|all|run-tests|run-arm|run-fuzz|run-coverage'
}
for target in $(targets); do
    check "help: $target" grep -qE "^  make $target  +[^ ]" "$tmp/help"
done
check "there are targets" test "$(targets | wc -l)" -gt 10
listed() { sed -n 's/^  make \([a-z_.-]*\)  .*/\1/p' "$tmp/help" | grep .; }
for target in $(listed); do
    check "make $target exists" grep -qE "^([a-z-]+ )*$target( [a-z-]+)*:" Makefile
done

# ---- width: 100 columns of C, 110 of prose ----

# Of what clang-format leaves alone only comments; characters that are not ASCII are more than a byte.
wide_c()
{
    LC_ALL=C awk 'FNR == 1 { off = 0 } /clang-format off/ { off = 1 } /clang-format on/ { off = 0 }
        length > 100 && !/[^ -~]/ && (!off || /^ *[\/ ][*]/) { print FILENAME ":" FNR; bad = 1 }
        END { exit bad }' "$@"
}
# Tables, code and lines that are nothing but a link may be wider.
wide_prose()
{
    LC_ALL=C awk 'FNR == 1 { code = 0 } /^```/ { code = !code }
        length > 110 && !code && !/^([|]|    )/ && !/^ *[^ ]+$/ { print FILENAME ":" FNR; bad = 1 }
        END { exit bad }' "$@"
}
check "C sources have 100 columns" wide_c $(find src include cli mpi python/native tests examples bench -name '*.[ch]' -o -name '*.[ch]pp')
check "prose has 110" wide_prose ./*.md doc/*.md examples/*.md
printf '/* clang-format off */\n/* %0100d */\n' 0 >"$tmp/wide.c"
printf '| %0120d |\na %0120d\n' 0 0 >"$tmp/wide.md"
check "a wide comment is found" not wide_c "$tmp/wide.c"
check "wide prose is found" not wide_prose "$tmp/wide.md"

# ---- compile_commands.json, in a copy of the tree ----

mkdir "$tmp/tree"
cp -r Makefile include src cli mpi tests bench "$tmp/tree"
cd "$tmp/tree" || exit 1
json=compile_commands.json
check "is made" $make -s $json CC="${CC:-gcc}" MPICC="${MPICC:-}" SAN="${SAN:-}"
check "is JSON" awk -f tests/support/json.awk $json
sed -n 's/.*"file": "\([^"]*\)".*/\1/p' $json | sort >"$tmp/files"
find src cli tests bench $([ -n "${MPICC:-}" ] && echo mpi) -name '*.c' | sort >"$tmp/sources"
check "an entry per source" diff "$tmp/sources" "$tmp/files"
check "nothing was built" test ! -e "$(basename "${BUILD:-build}")"

# An entry's command compiles its file.
compiles()
{
    command=$(sed -n "s|.*\"file\": \"$1\".*\"command\": \"\(.*\)\"}.*|\1|p" $json)
    mkdir -p "$(dirname "$BUILD/obj/$1")" && eval "$command" && test -e "$BUILD/obj/${1%.c}.o"
}
BUILD=$(basename "${BUILD:-build}")
check "a source compiles by it" compiles src/base/status.c
check "a test does" compiles tests/unit/test_base.c
finish
