#!/bin/sh
# `mpirun -n N gradscale train`, as a user runs it.
. tests/support/shell.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
export ASAN_OPTIONS=detect_leaks=0
program=$PWD/$1

if [ -z "$MPICC" ] || [ "${SAN:-}" = thread ]; then
    skip "ranks over MPI" "$([ -n "$MPICC" ] && echo "MPI is not built for ThreadSanitizer" || echo "there is no MPI")"
    finish
    exit
fi
job="--model gpt --data self --layers 1 --width 16 --heads 2 --context 16 --batch 2 --valid-every 0
    --valid-items 30 --threads 1"

# train N OPTION...: standard output in $tmp/out, error messages in $tmp/err
train()
{
    n=$1
    shift
    timeout 100 mpirun -n "$n" "$program" train "$@" $(unsaved "$@") >"$tmp/out" 2>"$tmp/err"
}
lines() { grep -c '^{"step":' "$1"; }
equal() { echo "$1, not $2" && [ "$1" = "$2" ]; }
says() { cat "$tmp/out" "$tmp/err" && cat "$tmp/out" "$tmp/err" | grep -q "$1"; }
refuses() { message=$1; shift; train "$@"; equal $? 2 && says "$message"; }
once() { says "$1" && equal "$(cat "$tmp/out" "$tmp/err" | grep -c "$1")" 1; }
losses() { sed -n 's/.*"loss":\([^,]*\),"scale".*/\1/p' "$1"; }

check "2 ranks" train 2 $job --steps 12 --log "$tmp/a.jsonl" --csv "$tmp/a.csv" \
    --checkpoint "$tmp/a" --checkpoint-every 6 --report "$tmp/a.html"
check "one log" equal "$(lines "$tmp/a.jsonl")" 12
check "one heading" once "^model "
check "it says how many" once "^ranks *2 of 1 thread,"
check "and what they hold" once "^memory .* per rank"
check "the log says how many" grep -q '"ranks":2' "$tmp/a.jsonl"
check "a report" grep -q "</html>" "$tmp/a.html"
check "a checkpoint" test -s "$tmp/a/step-00000012.safetensors"

check "again" train 2 $job --steps 12 --log "$tmp/b.jsonl" --checkpoint "$tmp/b" --checkpoint-every 6
losses "$tmp/a.jsonl" >"$tmp/losses"
losses "$tmp/b.jsonl" >"$tmp/again"
check "the same losses" cmp "$tmp/losses" "$tmp/again"
check "ZeRO-1" train 2 $job --zero --steps 12 --log "$tmp/z.jsonl" --checkpoint "$tmp/z" --checkpoint-every 6
losses "$tmp/z.jsonl" >"$tmp/again"
check "the same losses with ZeRO-1" cmp "$tmp/losses" "$tmp/again"
check "quantised: ranks agree on ranges" train 2 $job --quantize int8 --ranges max --steps 4 --compare-every 1
check "compressed" train 2 $job --compress fp16 --steps 4

# Half of it, then on: the same ranks to the same end; other ranks to an end.
rm "$tmp/z/step-00000012.safetensors"
check "goes on" train 2 --resume --checkpoint "$tmp/z" --log "$tmp/z.jsonl"
losses "$tmp/z.jsonl" | tail -n 6 >"$tmp/again"
tail -n 6 "$tmp/losses" >"$tmp/want"
check "with the same losses" cmp "$tmp/want" "$tmp/again"
check "goes on with 3 ranks" train 3 --resume --checkpoint "$tmp/z" --steps 16
check "goes on alone" "$program" train --resume --quiet --checkpoint "$tmp/z" --steps 18
check "and is at step 18" test -s "$tmp/z/step-00000018.safetensors"

check "a bad option, said once" refuses "unknown option --nonsense" 2 --nonsense
check "by rank 0" once "gradscale:"
check "bad data, said once" refuses "/nowhere: No such file" 2 --data /nowhere
check "a folder in use" refuses "add --resume" 2 $job --steps 4 --checkpoint "$tmp/a"
check "what zero cannot do" refuses "zero needs" 2 $job --steps 4 --zero --optimizer lamb
if [ -n "${SAN:-}" ]; then
    skip "without libgradscale_mpi" "it is run without sanitizers only"
else
    mkdir "$tmp/bare" && cp "$program" "$tmp/bare/"
    here=$program program=$tmp/bare/gradscale
    train 2 $job --steps 2
    check "without the library: an error message" once "need libgradscale_mpi"
    cat >"$tmp/bare/one.sh" <<END
[ \${OMPI_COMM_WORLD_RANK:-\$PMI_RANK} = 1 ] && exec "$program" train "\$@"
exec "$here" train "\$@"
END
    program=$here
    one_bare() { ! timeout 100 mpirun -n 2 sh "$tmp/bare/one.sh" $job --steps 2 >"$tmp/out" 2>"$tmp/err"; }
    check "without it on one rank: an end" one_bare
    check "with that rank's error message" once "rank 1: .*need libgradscale_mpi"
fi

# tokens COUNT BAD: a file for llm.c of COUNT zeros (2 octal bytes), number BAD beyond the vocabulary
tokens()
{
    printf '\210\330\064\001\001\000\000\000%b\000\000' "$1"
    head -c $((1012 + 2 * $2)) /dev/zero
    printf '\377\377'
    head -c 1000 /dev/zero
}
tokens '\0041\0003' 800 | head -c $((1024 + 2 * 801)) >"$tmp/last.bin" # only rank 1 validates with it
tokens '\0051\0000' 3 | head -c $((1024 + 2 * 41)) >"$tmp/first.bin"   # one of 5 items: one rank's
refused() { train "$@"; equal $? 2; }
for zero in "" --zero; do
    rm -rf "$tmp/v" "$tmp/v.jsonl"
    check "validation fails on rank 1 $zero" refused 2 $job --data "$tmp/last.bin" --context 8 --steps 4 \
        --timeout 30 --checkpoint "$tmp/v" --log "$tmp/v.jsonl" $zero
    check "it says why" once "rank 1: .*token 800 is 65535"
    check "no rank waited for another" not says "not answered"
    check "half a validation is none" not grep -q '"event":"valid"' "$tmp/v.jsonl"
    check "and no best" test ! -e "$tmp/v/best.safetensors"
done

for how in --dry-run "--steps 4 --zero"; do
    check "an item that one rank cannot read, $how" refused 2 $job --data "$tmp/first.bin" --context 8 \
        --batch 4 --timeout 30 $how
    check "that rank says so, once" once "gradscale: .*token 3 is 65535"
    check "nothing else goes wrong" not says "not answered\|rror in"
done

# A rank that dies or hangs in the middle: the others end in time, and the run goes on afterwards.
cat >"$tmp/rank.sh" <<END
echo \$\$ >"$tmp/pid.\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}"
exec "$program" train "\$@"
END
has_saved() { ls "$1" 2>/dev/null | grep -q '^step-000000[1-9]'; }
ends_after() # SIGNAL FOLDER
{
    rm -f "$tmp"/pid.*
    timeout 200 mpirun -n 3 sh "$tmp/rank.sh" $job --steps 100000 --schedule constant --timeout 5 --checkpoint "$2" \
        --checkpoint-every 5 --log "$2.jsonl" >"$tmp/out" 2>"$tmp/err" &
    job_pid=$!
    until_true has_saved "$2"
    "$program" train --resume --checkpoint "$2" >"$tmp/second" 2>&1 # rank 0 holds the folder
    second=$?
    kill -"$1" "$(cat "$tmp/pid.1")"
    start=$(date +%s)
    wait $job_pid
    status=$?
    took=$(($(date +%s) - start))
    echo "status $status after $took s; a second run: $second, $(cat "$tmp/second")"
    [ $second -eq 2 ] && grep -q 'another run is writing its checkpoints there$' "$tmp/second" &&
        [ $status -ne 0 ] && [ $status -ne 124 ] && [ $took -lt 40 ]
}
check "a rank that hangs" ends_after STOP "$tmp/hang"
check "is named" says "rank 1 has not answered for 5 s"
check "a rank that is killed" ends_after KILL "$tmp/kill"
for folder in hang kill; do
    newest=$(ls "$tmp/$folder" | sed -n 's/^step-0*\([0-9]*\)\..*/\1/p' | tail -n 1)
    check "$folder: goes on from the last checkpoint" train 3 --resume --checkpoint "$tmp/$folder" \
        --steps $((newest + 3))
    check "$folder: where it was" says "resumed *after step $newest"
done

# Ranks with different jobs: before the first step, by name, on all of them the same, exit code 1.
cat >"$tmp/other.sh" <<END
rank=\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}
other=\$1
shift
[ \$rank = 1 ] || other=
exec "$program" train "\$@" \$other
END
differs() # MESSAGE OPTIONS-OF-RANK-1 OPTION...
{
    message=$1 other=$2
    shift 2
    rm -rf "$tmp/d" "$tmp/d.jsonl"
    timeout 100 mpirun -n 3 sh "$tmp/other.sh" "$other" $job --steps 4 --timeout 30 --log "$tmp/d.jsonl" --checkpoint "$tmp/d" "$@" \
        >"$tmp/out" 2>"$tmp/err"
    equal $? 1 && says "$message" && [ ! -e "$tmp/d.jsonl" ] && [ ! -e "$tmp/d" ] && not says "not answered"
}
jobs="the ranks have different jobs:"
cp README.md "$tmp/data.txt"
sed 's/the/The/' README.md >"$tmp/other.txt"
mkdir -p "$tmp/copy" && cp README.md "$tmp/copy/same.txt"
for option in "lr 0.5" "optimizer sgd" "batch 3" "loss-weight 2" "clip 0.5" "schedule linear" "compress fp16" "steps 5" \
    "compare-every 7" "seed 9" "layers 2" "precision fp32" "valid-every 2" "accumulate 2" "warmup 1" "scaler headroom"; do
    check "another $option on rank 1" differs "$jobs --${option% *} is .* on rank 0 and ${option#* } on rank 1" "--$option"
done
for mode in dry-run print-config; do
    check "--$mode on rank 1" differs "$jobs --$mode is no on rank 0 and yes on rank 1" "--$mode"
done
check "a bad command line on rank 1" not differs "" "--batch 0"
check "is told" once "^gradscale: rank 1: --batch must be from 1"
check "a setting on rank 1" differs "$jobs --set is not given on rank 0 and eps=1e-3 on rank 1" "--set eps=1e-3"
check "ZeRO-1 on rank 1" differs "$jobs --zero is" --zero
check "other data on rank 1" differs "$jobs the content of the data is content .* on rank 0 and content .* on rank 1" \
    "--data $tmp/other.txt" --data "$tmp/data.txt"
cat >"$tmp/none.sh" <<END
[ \${OMPI_COMM_WORLD_RANK:-\$PMI_RANK} = 1 ] && set -- "\$@" --no-save
exec "$program" train "\$@"
END
mkdir "$tmp/home"
at_home() { (cd "$tmp/home" && timeout 100 mpirun -n 2 "$@" $job --steps 4 --valid-every 2 >"$tmp/out" 2>"$tmp/err"); }
check "no checkpoints on rank 1 alone" not at_home sh "$tmp/none.sh"
check "is told" says "$jobs the folder of checkpoints is given on rank 0 and not given on rank 1"
check "and nothing is left" test ! -e "$tmp/home/runs"
check "a folder of their own" at_home "$program" train --zero
check "is one" equal "$(ls "$tmp/home/runs" | wc -l)" 1
check "with all that belongs there" equal "$(ls "$tmp/home/runs/"* | tr '\n' ' ')" \
    "best.safetensors job.conf log.jsonl report.html step-00000002.safetensors step-00000004.safetensors "
check "it goes on alone" "$program" train --resume "$(echo "$tmp/home/runs/"*)" --steps 6 --quiet
agree() { rm -f "$tmp/d.jsonl"; timeout 100 mpirun -n 3 sh "$tmp/other.sh" "$1" $job --no-save --steps 4 --log "$tmp/d.jsonl" --data "$tmp/data.txt" >"$tmp/out" 2>"$tmp/err"; }
check "what a rank may have of its own" agree "--threads 2 --cpu ref --timeout 50 --data $tmp/copy/same.txt --name x"

# A rank that never starts, and one whose disk is slow.
cat >"$tmp/late.sh" <<END
[ \${OMPI_COMM_WORLD_RANK:-\$PMI_RANK} = 1 ] && exec sleep 60
exec "$program" train "\$@"
END
never() { start=$(date +%s); timeout 50 mpirun -n 2 sh "$tmp/late.sh" $job --no-save --steps 4 --timeout 3 >"$tmp/out" 2>"$tmp/err"
    code=$?; took=$(($(date +%s) - start)); echo "code $code, $took s"; [ $code -ne 0 ] && [ $code -ne 124 ] && [ $took -lt 20 ]; }
check "a rank that never starts ends the others" never
check "which say so" says "rank 0: not all ranks have started within 3 s"
. tests/fault/fault.sh
if can_fault; then
    cat >"$tmp/slow.sh" <<END
root=\$1 call=\$2
shift 2
[ \${OMPI_COMM_WORLD_RANK:-\$PMI_RANK} = 0 ] || exec "$program" train "\$@"
exec "$iofault" --root "\$root" --slow "\$call" -- "$program" train "\$@"
END
    mkdir -p "$tmp/slow"
    slow() { timeout 200 mpirun -n 2 sh "$tmp/slow.sh" "$tmp/slow" fsync:6000 $job --steps 4 --timeout 4 \
        --checkpoint "$tmp/slow/run" --checkpoint-every 4 $1 >"$tmp/out" 2>"$tmp/err"; }
    check "a slow disk is not death" slow
    check "nobody was given up" not says "not answered"
    rm -rf "$tmp/slow/run"
    check "nor with ZeRO-1" slow --zero
    slow_file() # FILE CALL OPTION...
    {
        file=$1 call=$2
        shift 2
        timeout 200 mpirun -n 2 sh "$tmp/slow.sh" "$file" "$call" $job --steps 1 --timeout 4 --no-save "$@" \
            >"$tmp/out" 2>"$tmp/err"
    }
    check "a slow disk for the log" slow_file "$tmp/slow/log" write:5000 --log "$tmp/slow/log" --telemetry-every 0
    check "with its step" equal "$(lines "$tmp/slow/log")" 1
    check "slow data" slow_file "$tmp/data.txt" open:6000 --data "$tmp/data.txt"
else
    skip "a slow disk" "this machine cannot trace"
fi
finish
