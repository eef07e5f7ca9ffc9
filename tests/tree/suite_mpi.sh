#!/bin/sh
# Ranks over MPI, on this machine: with every implementation that is installed, 1, 2 and 4 ranks.
# What does not need MPI is in test_ranks.
. tests/support/shell.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers have nobody else
export OMPI_MCA_rmaps_base_oversubscribe=1                       # more ranks than cores
export ASAN_OPTIONS=detect_leaks=0                               # MPI's own

if [ -z "$MPICC" ] || [ "${SAN:-}" = thread ]; then
    skip "ranks over MPI" "$([ -n "$MPICC" ] && echo "MPI is not built for ThreadSanitizer" || echo "there is no MPI")"
    finish
    exit
fi

# run N KEY=VALUE...: the job's output in $tmp/out, its error messages in $tmp/err
run()
{
    ranks=$1
    shift
    timeout 60 $mpirun -n "$ranks" "$steps" "$@" >"$tmp/out" 2>"$tmp/err"
}
weights() { run "$@" && sed -n 's/^weights //p' "$tmp/out"; }
column() { sed -n "s/.* $1 \([^ ]*\).*/\1/p" "$tmp/out"; } # a number of every step

same_as() { want=$1; shift; got=$(weights "$@") && echo "$got, not $want" && [ "$got" = "$want" ]; }
close() # of two files of numbers, one per line
{
    paste "$1" "$2" | awk -v most="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) bad = 1 }
        END { exit bad || NR == 0 }'
}
# ends WITHIN SECONDS MESSAGE N KEY=VALUE...: the job fails, in time, and says so
ends()
{
    within=$1 message=$2
    shift 2
    start=$(date +%s)
    run "$@"
    status=$?
    took=$(($(date +%s) - start))
    echo "status $status after $took s" && cat "$tmp/err"
    [ $status -ne 0 ] && [ $status -ne 124 ] && [ $took -le "$within" ] &&
        cat "$tmp/out" "$tmp/err" | grep -q "$message"
}

with()
{
    name=$1 mpirun=$2 steps=$3
    for ranks in $counts; do
        first=$(weights $ranks)
        column loss >"$tmp/loss.$ranks"
        check "$name: $ranks ranks run" test -n "$first"
        check "$name: $ranks ranks twice: the same bits" same_as "$first" $ranks
        check "$name: $ranks ranks, ZeRO-1: the same bits" same_as "$first" $ranks zero=1
        check "$name: $ranks ranks and 1: close" close "$tmp/loss.1" "$tmp/loss.$ranks" 1e-4
    done
    run 2 && column sent | head -n 1 >"$tmp/sent"
    check "$name: compressed" run 2 wire=f16
    check "$name: half the bytes" test "$(cat "$tmp/sent")" = $((2 * $(column sent | head -n 1)))
    column loss >"$tmp/loss.f16"
    check "$name: compressed and not: close" close "$tmp/loss.2" "$tmp/loss.f16" 1e-3
    half=$(weights 4 wire=f16)
    check "$name: compressed, ZeRO-1: the same bits" same_as "$half" 4 wire=f16 zero=1
    check "$name: 3 ranks, uneven" run 3 items=4
    check "$name: more ranks than items" run 4 items=2
    check "$name: an overflow of rank 1" run 3 overflow=1
    check "$name: is skipped by all, once" test "$(column action | tr -d '\n')" = 001000
    check "$name: a rank that differs" ends 30 "after 4 steps rank 2 differs" 3 differ=2 compare=2
    check "$name: a rank that hangs" ends 30 "rank 1 has not answered for 2 s" 3 hang=1 timeout=2
    check "$name: a rank that is killed" ends 30 "[Kk]illed\|KILLED\|rank 1" 3 die=1 timeout=2
}

counts="1 2 4"
with "$MPICC" mpirun "$BUILD/tests/mpi_steps"

# The other implementation, if there is one, without sanitizers: built and run.
case $(readlink -f "$(command -v "$MPICC")") in
*openmpi* | *opal*) other=mpich ;;
*) other=openmpi ;;
esac
if [ -n "${SAN:-}" ]; then
    skip "$other" "only the first implementation is run with a sanitizer"
elif ! command -v mpicc.$other >/dev/null; then
    skip "$other" "it is not installed (scripts/deps.sh mpi)"
else
    build=$tmp/$other
    compile()
    {
        OMPI_CC=$CC MPICH_CC=$CC mpicc.$other -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror -O2 \
            -D_POSIX_C_SOURCE=200809L -Iinclude -o "$build" mpi/*.c tests/mpi/steps.c \
            "$BUILD/libgradscale_train.a" "$BUILD/libgradscale.a" -lz -lpng -ljpeg -lm -pthread
    }
    check "builds with $other" compile
    counts="1 2"
    with "mpicc.$other" mpirun.$other "$build"
fi
finish
