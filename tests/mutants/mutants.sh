#!/bin/sh
# Breaks the library, one line at a time, and expects the tests to notice.
#
#   [WHERE=FILES] [ONLY=PREFIX] [WORK=FOLDER] tests/mutants/mutants.sh [COUNT [SEED]]
#   tests/mutants/mutants.sh --check [LIST...]      only whether every entry applies to the tree, in a second
#
# Every wrong of tests/mutants/mutants.txt, and COUNT more drawn by SEED from the mechanical ones
# (mutants.awk), must be caught by a suite, or by a sanitizer in it. tests/mutants/mutants-equal.txt lists,
# with reasons, those that change no result. ONLY takes those of the list whose files begin so, and builds no
# other suites than theirs. A mutant that does not compile, or compiles to the same code, does not count. With
# WORK what was built and found out stays in FOLDER, and a run that was stopped goes on from there: survivors and
# what is new are tried again, the rest is taken as it was, which is for the same sources.
#
# A suite that does not end has caught its mutant as well, but is counted apart. It has ten times the CPU seconds that
# it takes by itself and ten more, and two minutes more by the clock for those that sleep: a busy machine catches
# nothing.
#
# In both lists an entry is, in this order,
#     # why
#     src/num/num.c
#     - the line, or the part of it that is replaced; it occurs once in the file
#     + what replaces it

count=${1:-40} seed=${2:-1}
unset MAKEFLAGS
where=${WHERE:-src/num/*.[ch] src/scaler/*.[ch] src/kernel/pass/ref.c src/kernel/pass/stats.c}
flags='-O1 -g0 -w'

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
gemm='test_gemm test_gemm_pairs test_gemm_bad test_gemm_panels'
rows='checkrows test_rows test_math test_ops'
optim='test_optim test_optim_loop test_optim_rules test_optim_state test_parity checkoptim'
device='test_device test_device_cuda test_device_opencl'
engine='test_chunks test_grads test_tape test_ops test_attention test_recompute test_train'
train='test_train test_chunks test_train_bad test_ranks'
io='test_io test_io_corners test_io_limits test_io_text test_io_rare test_io_faults'
json='test_json test_json_read test_tokenizer test_tokenizer_corners'
data='test_data test_images test_loader test_image_kinds test_image_corners test_data_corners'
logs='test_log test_log_corners test_io_text test_io_rare test_io_faults'
saves='test_checkpoint test_saver test_checkpoint_corners test_saver_corners test_train_bad test_io_faults'
models='test_models test_gpt test_llama test_vit test_resnet'
cli='test_cli suite_train suite_cli suite_report'
scaler=$(ls tests/unit/test_scaler*.c | sed 's|.*/\(.*\)\.c|\1|')
relevant()
{
    case $1 in
    src/base/*) echo "$base" ;;
    src/num/*) echo "$num" ;;
    src/kernel/gemm*) echo "$gemm" ;;
    src/kernel/rows* | src/kernel/simd/math.h | src/kernel/simd/tally.h) echo "$rows $gemm" ;;
    src/kernel/pass/stats.c) echo "$kernel test_rows" ;; # what is stored is counted by its limits
    src/kernel/*) echo "$kernel" ;;
    src/optim/*) echo "$optim" ;;
    src/scaler/*) sort -n "$work/times" | sed -n 's/.* \(test_scaler\)/\1/p' ;;
    src/device/* | Makefile) echo "$device" ;;
    src/engine/op_quantize* | src/engine/ranges*) echo "test_quantize $engine" ;;
    src/engine/*) echo "$engine" ;;
    src/io/bpe/* | src/io/json*) echo "$json" ;;
    src/io/image*) echo "$data" ;;
    src/io/*) echo "$io $data $saves" ;;
    src/train/data* | src/train/loader*) echo "$data" ;;
    src/train/log*) echo "$logs" ;;
    src/train/checkpoint* | src/train/saver*) echo "$saves" ;;
    src/train/layout*) echo "test_layout $saves" ;;
    src/train/model* | src/train/transformer*) echo "$train $models" ;;
    src/train/*) echo "$train" ;;
    cli/*) echo "$cli" ;;
    esac
}
suites() # PREFIX or nothing: all that speak for files that begin so
{
    case $1 in
    '') echo "$base $num $kernel $gemm $rows $optim $scaler $device $engine $train $io $json $data $logs $saves $models $cli test_layout test_quantize" ;;
    src/scaler*) echo "$scaler" ;;
    *) for file in $1 $(ls -d "$1"*/* "$1"* 2>/dev/null); do relevant "$file"; done ;;
    esac | tr ' ' '\n' | sort -u
}
# What make builds for a suite: a test program, or for a script the program that it runs.
target() # build directory, suite
{
    case $2 in suite_*) echo "$1/gradscale" ;; *) echo "$1/tests/$2" ;; esac
}
# Builds it of the objects of the library that it needs, and no others: most of a mutant's time is compiling.
make_suite() # tree, build directory, suite, make's arguments
{
    in=$1 what=$(target "$2" "$3") link=$(sed "s|^build/|$2/|" "$work/needs.$3" | tr '\n' ' ')
    shift 3
    make -C "$in" -s "$what" LINK="$link" "$@"
}
run() # seconds, build directory, suite, make's arguments
{
    limit=$1 dir=$2 suite=$3
    shift 3
    case $suite in
    suite_*) set -- BUILD="$dir" CC=gcc MAKE=make "$@" sh "tests/cli/$suite.sh" "$dir/gradscale" ;;
    *) set -- BUILD="$dir" "$@" "$dir/tests/$suite" ;;
    esac
    timeout -k 1 "$limit" env "$@"
}

# Builds and runs the relevant suites in a variant until one fails: its name in `caught`. False if
# it does not compile. (What was compiled is known from the tree that was built whole: no .d is written.)
try() # the right tree, build directory, how much slower it is, make's arguments
{
    right=$1 dir=$2 times=$3
    shift 3
    for suite in $suites; do
        own=$(sed -n "s/ $suite\$//p" "$work/times")
        seconds=$(((10 + own * 10 / 1000) * times))
        make_suite "$tree" "$dir" "$suite" CFLAGS="$flags -MF /dev/null" "$@" || return 1
        what=$(target "$dir" "$suite")
        [ ! "$tree/$what" -ef "$right/$what" ] || continue # not made anew: it has nothing of the file in it
        (cd "$tree" && ulimit -t $seconds && run $((seconds + 120)) "$dir" "$suite" "$@")
        case $? in
        0) continue ;;
        124 | 137 | 152) how=endless ;; # by the clock, or by its CPU time
        *) how=caught ;;
        esac
        caught=$suite
        return 0
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
    printf '%s\n' "$1" >"$work/verdict.$id"
    printf '%-9s %s%s: %s%s\n' "$1" "$file" "${line:+:$line}" "$(trim "$to")" "${2:+  ($2)}"
}

# The same with sanitizers, which only those need that have survived so far: built by the first of them.
sanitized()
{
    {
        flock 9
        [ -e "$work/sanitized" ] || sources "$work/sanitized"
        for s in $suites; do
            make_suite "$work/sanitized" "$1" "$s" -j"$(nproc)" CFLAGS="$flags" SAN=address,undefined || return 1
        done
        cp -al "$work/sanitized/$1" "$tree"
    } 9>"$work/lock"
    touch "$tree/$file" # later than all that was built of the right one
}

one()
{
    work=$1 id=$2
    { read -r file; read -r line; IFS= read -r from; IFS= read -r to; } <"$work/job.$id"
    export from to line
    tree=$work/tree.$id
    suites=$(relevant "$file") caught=
    # Links, for whatever is made anew is another file; but for those that nvcc writes over. It is for the kernels
    # of devices alone: others have their text in the library as well, where no suite of theirs looks.
    rm -rf "$tree"
    cp -al "$work/tree" "$tree"
    rm -rf "$tree/build/device" "$tree/$file"
    cp -a "$work/tree/build/device" "$tree/build"
    case $file in src/device/* | Makefile) set -- ;; *) set -- NVCC= ;; esac
    if ! awk "$replace" "$work/tree/$file" >"$tree/$file"; then
        verdict ROTTEN "the text does not occur once"
    elif absent "$file"; then
        verdict same "not on this CPU"
    elif ! try "$work/tree" build 1 "$@" >/dev/null 2>&1; then
        verdict invalid
    elif [ -n "$caught" ]; then
        verdict $how "$caught"
    elif same "$@" >/dev/null 2>&1; then
        verdict same
    elif grep -qxF "$file	$(trim "$from")	$(trim "$to")" "$work/equal"; then
        verdict equal
    elif sanitized build-address-undefined >"$work/log.$id" 2>&1 &&
        try "$work/sanitized" build-address-undefined 3 "$@" SAN=address,undefined >/dev/null 2>&1 &&
        [ -n "$caught" ]; then
        verdict $how "$caught, sanitized"
    else
        verdict SURVIVED "was: $(trim "$from")"
    fi
    rm -rf "$tree"
}

# What a mutant must change: an object that a suite has, or one of those that none of its suites has. With NVCC= not
# the device's text, which has some sources in it as they are written.
same() # make's arguments
{
    case $file in
    cli/*.c) cmp -s "$tree/build/obj/${file%.c}.o" "$work/tree/build/obj/${file%.c}.o"; return ;;
    cli/*) return 1 ;;
    esac
    for object in $(for s in $suites; do cat "$work/needs.$s"; done | sort -u); do
        [ "$tree/$object" -ef "$work/tree/$object" ] || cmp -s "$tree/$object" "$work/tree/$object" || return 1
    done
    parts="build/libgradscale.a build/libgradscale_train.a"
    [ -n "$1" ] || parts="$parts build/libgradscale_device.a"
    make -C "$tree" -s $parts CFLAGS="$flags -MF /dev/null" "$@" || return 1
    for part in $parts; do cmp "$tree/$part" "$work/tree/$part" || return 1; done
}

sources() # folder
{
    mkdir -p "$1"
    cp -au Makefile README.md doc include src cli scripts tests "$1"
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

work=${WORK:-$(mktemp -d)}
[ -n "$WORK" ] || trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

entries='
/^[A-Za-z]/ { file = $0 }
/^- / { from = substr($0, 3) }
/^\+ / { print file "\t" from "\t" substr($0, 3) }'

# The tree as it is, built; suites timed.
sources "$work/tree"
touch "$work/times"
wanted=$({
    suites "$ONLY"
    [ "$count" -eq 0 ] || for file in $(ls -d $where 2>/dev/null); do suites "$file"; done
} | sort -u)
make -C "$work/tree" -s -j"$(nproc)" $(for s in $wanted; do target build "$s"; done | sort -u) CFLAGS="$flags" \
    >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# The linker tells what it takes of an archive; by their paths, if it is a thin one.
rm -f "$work/thin.a"
(cd "$work/tree" && ar rcsT ../thin.a $(find build/obj/src build/obj/device -name '*.o'))
for suite in $wanted; do
    [ ! -e "$work/needs.$suite" ] || continue
    rm "$work/tree/$(target build "$suite")"
    make -C "$work/tree" -s "$(target build "$suite")" CFLAGS="$flags" LINK=../thin.a LDFLAGS=-Wl,-t \
        >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    sed -n 's|.*/tree/\(build/obj/.*\.o\)$|\1|p' "$work/log" >"$work/needs.$suite"
    start=$(date +%s%N)
    (cd "$work/tree" && run 600 build "$suite") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    echo "$((($(date +%s%N) - start) / 1000000)) $suite" >>"$work/times" # ms
done
built() { (cd "$work/tree" && find . -type f | sort | xargs cksum) }
built >"$work/built"

job() # file, line or nothing, from, to
{
    id=$(printf '%s\n' "$@" | cksum | tr ' ' -)
    printf '%s\n' "$@" >"$work/job.$id"
    echo "$id"
}
tab=$(printf '\t')
awk "$entries" tests/mutants/mutants-equal.txt >"$work/equal"
awk "$entries" tests/mutants/mutants.txt |
    awk -v only="$ONLY" 'index($0, only) == 1 || only == "src/device" && /^Makefile/' >"$work/listed"
while IFS=$tab read -r file from to; do
    job "$file" "" "$from" "$to"
done <"$work/listed" >"$work/jobs"

# A sample without repetition: the least by a hash of the seed and the number.
awk -f tests/mutants/mutants.awk $(ls -d $where 2>/dev/null) |
    awk -v s="$seed" '{ x = (NR * 48271 + s * 69621) % 2147483647
                        for (i = 0; i < 8; i++) x = x * 16807 % 2147483647
                        printf "%d\t%s\n", x, $0 }' |
    sort -n | head -n "$count" | cut -f2- >"$work/sample"
while IFS=$tab read -r file line to; do
    job "$file" "$line" "$(sed -n "${line}p" "$file")" "$to"
done <"$work/sample" >>"$work/jobs"

sort -u -o "$work/jobs" "$work/jobs"
while read -r id; do
    grep -qsx 'caught\|endless\|same\|invalid' "$work/verdict.$id" || echo "$id"
done <"$work/jobs" | shuf --random-source="$work/jobs" | xargs -P "$(nproc)" -n 1 sh "$0" --one "$work"

built | cmp -s - "$work/built" || { echo "the tree that all mutants share has changed"; exit 1; }
sed "s|^|$work/verdict.|" "$work/jobs" | xargs cat | sort | uniq -c | awk '{ of[$2] = $1 }
END {
    caught = of["caught"] + of["endless"]
    printf "%d caught, %d of these by a suite that did not end\n", caught, of["endless"]
    printf "%d of equal results, %d of the same code, %d that do not compile\n", of["equal"], of["same"], of["invalid"]
    printf "%d survived, %d rotten: %.1f%% caught\n", of["SURVIVED"], of["ROTTEN"],
        100 * caught / (caught + of["SURVIVED"] + of["ROTTEN"] + !caught)
    exit of["SURVIVED"] + of["ROTTEN"] > 0 || caught == 0
}'
