#!/bin/sh
# Breaks the library, one line at a time, and expects the tests to notice.
#
#   [WHERE=FILES] [ONLY=PREFIX] tests/mutants/mutants.sh [COUNT [SEED]]
#   tests/mutants/mutants.sh --check [LIST...]      only whether every entry applies to the tree, in a second
#
# Every wrong of tests/mutants/mutants.txt, and COUNT more drawn by SEED from the mechanical ones
# (mutants.awk), must be caught by a suite, or by a sanitizer in it. tests/mutants/mutants-equal.txt lists,
# with reasons, those that change no result. ONLY takes those of the list whose files begin so, and with
# ONLY=src/device builds no other suites than theirs. A mutant that does not compile, or compiles to the same
# code, does not count.
#
# In both lists an entry is, in this order,
#     # why
#     src/num/num.c
#     - the line, or the part of it that is replaced; it occurs once in the file
#     + what replaces it

count=${1:-40} seed=${2:-1}
unset MAKEFLAGS
where=${WHERE:-src/num/*.[ch] src/scaler/*.[ch] src/kernel/pass/ref.c src/kernel/pass/stats.c}
flags='-O2 -g0 -w'

# ---- one mutant: mutants.sh --one WORK NUMBER ----

replace='
{ at = index($0, ENVIRON["from"]) }
ENVIRON["line"] ? FNR == ENVIRON["line"] : at {
    $0 = ENVIRON["line"] ? ENVIRON["to"] \
         : substr($0, 1, at - 1) ENVIRON["to"] substr($0, at + length(ENVIRON["from"]))
    found++
}
{ print }
END { exit found != 1 }'

# The suites that speak for a file, the likely first; those of the scaler by the time they take.
base='test_base test_fork test_cpus test_oom test_pass test_pass_bad'
num='test_num test_halves test_pass test_pass_values checkkern'
kernel='test_dispatch test_views test_pass test_pass_values test_pass_bad test_oom checkkern test_optim checkoptim'
gemm='test_gemm test_gemm_bad test_gemm_panels'
rows='checkrows test_rows test_math test_ops'
optim='test_optim test_optim_loop test_optim_rules test_optim_state test_parity checkoptim'
device='test_device test_device_cuda test_device_opencl'
engine='test_chunks test_grads test_tape test_ops test_recompute test_train'
train='test_train test_chunks test_train_bad test_ranks'
scaler=$(ls tests/unit/test_scaler*.c | sed 's|.*/\(.*\)\.c|\1|')
relevant()
{
    case $1 in
    src/base/*) echo "$base" ;;
    src/num/*) echo "$num" ;;
    src/kernel/gemm*) echo "$gemm" ;;
    src/kernel/rows* | src/kernel/simd/math.h | src/kernel/simd/tally.h) echo "$rows $gemm" ;;
    src/kernel/*) echo "$kernel" ;;
    src/optim/*) echo "$optim" ;;
    src/scaler/*) grep _scaler "$work/times" | sort -n | cut -d' ' -f2 ;;
    src/device/* | Makefile) echo "$device" ;;
    src/engine/*) echo "$engine" ;;
    src/train/*) echo "$train" ;;
    esac
}

# Builds and runs the relevant suites in a variant until one fails: its name in `caught`. False if
# it does not compile.
try() # build directory, make's arguments
{
    dir=$1
    shift
    for suite in $suites; do
        own=$(sed -n "s/ $suite\$//p" "$work/times")
        make -C "$tree" -s "$dir/tests/$suite" CFLAGS="$flags" "$@" || return 1
        if ! (cd "$tree" && env BUILD="$dir" "$@" timeout -k 1 $((10 + own * 10 / 1000)) "$dir/tests/$suite"); then
            caught=$suite
            return 0
        fi
    done
}

trim() { printf '%s\n' "$1" | sed 's/^ *//'; }

# No suite runs the kernels of another CPU.
absent()
{
    case $1 in
    */*avx2.[ch]) ! grep -qw avx2 /proc/cpuinfo ;;
    */*avx512.[ch]) ! grep -qw avx512bw /proc/cpuinfo ;;
    */avx512bf16.c) ! grep -qw avx512_bf16 /proc/cpuinfo ;;
    */avx512vnni.c) ! grep -qw avx512_vnni /proc/cpuinfo ;;
    *) false ;;
    esac
}

verdict()
{
    printf '%s\n' "$1" >"$work/verdict.$n"
    printf '%-9s %s%s: %s%s\n' "$1" "$file" "${line:+:$line}" "$(trim "$to")" "${2:+  ($2)}"
}

one()
{
    work=$1 n=$2
    { read -r file; read -r line; IFS= read -r from; IFS= read -r to; } <"$work/job.$n"
    export from to line
    tree=$work/tree.$n
    suites=$(relevant "$file") caught=
    cp -a "$work/tree" "$tree"
    if ! awk "$replace" "$work/tree/$file" >"$tree/$file"; then
        verdict ROTTEN "the text does not occur once"
    elif absent "$file"; then
        verdict same "not on this CPU"
    elif ! try build >/dev/null 2>&1; then
        verdict invalid
    elif [ -n "$caught" ]; then
        verdict caught "$caught"
    elif cat "$tree"/build/*.a | cmp -s - "$work/archives"; then
        verdict same
    elif grep -qxF "$file	$(trim "$from")	$(trim "$to")" "$work/equal"; then
        verdict equal
    elif try build-address-undefined SAN=address,undefined >/dev/null 2>&1 && [ -n "$caught" ]; then
        verdict caught "$caught, sanitized"
    else
        verdict SURVIVED "was: $(trim "$from")"
    fi
    rm -rf "$tree"
}

if [ "$1" = --one ]; then
    exec 2>/dev/null # where the shell mourns those that crash
    one "$2" "$3"
    exit 0
fi

# ---- the lists alone ----

# An entry is four lines in order, of a file that is there, with a text that is on one line of it.
check='
function rotten(why) { print FILENAME ":" FNR ": " why; bad++ }
function occurs(text,    line, got, n) { # on how many lines of the file; -1: there is none
    while ((got = (getline line <file)) > 0)
        n += index(line, text) > 0
    close(file)
    return got < 0 ? -1 : n + 0
}
/^#/ || !NF { next }
{ kind = /^- / ? 2 : /^\+ / ? 3 : 1 }
kind != last % 3 + 1 { rotten("not an entry: a file, - and + in this order") }
{ last = kind }
kind == 1 { file = $0 }
kind == 2 {
    from = substr($0, 3)
    n = occurs(from)
    if (n < 0) rotten(file " is not there")
    else if (n != 1) rotten("on " n " lines: " from)
}
kind == 3 {
    count++
    if (substr($0, 3) == from) rotten("it changes nothing")
}
END {
    if (last % 3) rotten("the last entry has no end")
    printf "%d entries, %d rotten\n", count, bad
    exit bad > 0 || count == 0
}'

if [ "$1" = --check ]; then
    shift
    [ $# -gt 0 ] || set -- tests/mutants/mutants.txt tests/mutants/mutants-equal.txt
    exec awk "$check" "$@"
fi

# ---- all of them ----

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

entries='
/^[A-Za-z]/ { file = $0 }
/^- / { from = substr($0, 3) }
/^\+ / { print file "\t" from "\t" substr($0, 3) }'

# The tree as it is, built; suites timed.
mkdir "$work/tree"
cp -a Makefile include src cli scripts tests "$work/tree"
programs() # build directory
{
    case $ONLY in
    src/device* | Makefile) printf '%s\n' $device ;;
    *) printf '%s\n' $base $num $kernel $gemm $rows $optim $scaler $device $engine $train ;;
    esac | sort -u | sed "s|^|$1/tests/|"
}
build() # build directory, make's arguments
{
    dir=$1
    shift
    make -C "$work/tree" -s -j"$(nproc)" $(programs "$dir") CFLAGS="$flags" "$@" >"$work/log" 2>&1 ||
        { cat "$work/log"; exit 1; }
}
build build
build build-address-undefined SAN=address,undefined
cat "$work"/tree/build/*.a >"$work/archives"
for suite in $(programs build); do
    start=$(date +%s%N)
    (cd "$work/tree" && BUILD=build "$suite") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    echo "$((($(date +%s%N) - start) / 1000000)) $(basename "$suite")" # ms
done >"$work/times"

n=0
job() # file, line or nothing, from, to
{
    n=$((n + 1))
    printf '%s\n' "$@" >"$work/job.$n"
}
tab=$(printf '\t')
awk "$entries" tests/mutants/mutants-equal.txt >"$work/equal"
awk "$entries" tests/mutants/mutants.txt | awk -v only="$ONLY" 'index($0, only) == 1 || only == "src/device" && /^Makefile/' >"$work/listed"
while IFS=$tab read -r file from to; do
    job "$file" "" "$from" "$to"
done <"$work/listed"

# A sample without repetition: the least by a hash of the seed and the number.
awk -f tests/mutants/mutants.awk $(ls -d $where 2>/dev/null) |
    awk -v s="$seed" '{ x = (NR * 48271 + s * 69621) % 2147483647
                        for (i = 0; i < 8; i++) x = x * 16807 % 2147483647
                        printf "%d\t%s\n", x, $0 }' |
    sort -n | head -n "$count" | cut -f2- >"$work/sample"
while IFS=$tab read -r file line to; do
    job "$file" "$line" "$(sed -n "${line}p" "$file")" "$to"
done <"$work/sample"

seq "$n" | xargs -P "$(nproc)" -n 1 sh "$0" --one "$work"

cat "$work"/verdict.* | sort | uniq -c | awk '{ of[$2] = $1 }
END {
    printf "%d caught, %d of equal results, %d of the same code, %d that do not compile\n",
        of["caught"], of["equal"], of["same"], of["invalid"]
    printf "%d survived, %d rotten\n", of["SURVIVED"], of["ROTTEN"]
    exit of["SURVIVED"] + of["ROTTEN"] > 0 || of["caught"] == 0
}'
