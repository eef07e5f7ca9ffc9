#!/bin/sh
# Makes the wrongs of tests/mutants.txt one by one and runs the suite that must notice:
# mutants.sh [SUBSTRING of a line]. A wrong that changes nothing or does not compile has failed too.

table=$PWD/tests/mutants.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cp -a Makefile include src tests "$work" && cd "$work" || exit 1

# Builds and runs a suite; NEON's wrongs need the other architecture.
suite()
{
    case $1 in
    */neon.c) set -- "$2" build-aarch64-linux-gnu-gcc qemu-aarch64 \
        TRAIN= LDFLAGS=-static CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar ;;
    *) set -- "$2" build env CC="${CC:-gcc}" BUILD=build ;;
    esac
    program=$2/tests/$1 run=$3
    shift 3
    make -s "$program" WARN=-std=c11 "$@" >log 2>&1 || { built=no; return 1; }
    built=yes
    timeout 300 $run "$program" >log 2>&1
}

passed=0 failed=0
verdict()
{
    if [ "$1" = caught ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    printf '%-9s %s\n' "$1" "$line"
}

grep -v -e '^#' -e '^$' "$table" | grep -F -e "${1:-}" >lines
while read -r line; do
    read -r file name script <<EOF
$line
EOF
    cp "$file" original
    sed "$script" original >"$file"
    if cmp -s "$file" original; then
        verdict 'no change'
    elif suite "$file" "$name"; then
        verdict SURVIVED
    elif [ $built = no ]; then
        verdict 'no build'
    else
        verdict caught
    fi
    cp original "$file"
done <lines

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
