#!/bin/sh
# run.sh FOLDER SECONDS TARGET...: each program of FOLDER/TARGET so long; a line each, then the counts.
# LENGTH=512: of inputs, at most. Short ones are many more a second.
. tests/support/counts.sh
build=$1 seconds=$2
shift 2
passed=0 failed=0
top=$PWD
for target; do
    name=${target#fuzz_}
    corpus=$build/fuzz/corpus/$name found=$build/fuzz/found/$name
    mkdir -p "$corpus" "$found"
    case $name in
    io) seeds=tests/data ;;
    trace) seeds=tests/traces ;;
    state) seeds=tests/data ;;
    config) seeds=examples ;;
    report) seeds=tests/fuzz/corpus/log ;;
    json) seeds=tests/fuzz/corpus/log ;;
    tokenizer) seeds="tests/data/tokenizer tests/data/tokenizer/plain" ;;
    *) seeds= ;;
    esac
    [ $name != checkpoint ] || FUZZ_CORPUS="$corpus/fits" "$build/fuzz/$target" -runs=1 >/dev/null 2>&1
    kept=tests/fuzz/corpus/$name
    [ -d "$kept" ] || kept=
    if "$build/fuzz/$target" -max_total_time="$seconds" -max_len="${LENGTH:-8192}" -timeout=10 -rss_limit_mb=3000 -print_final_stats=1 \
        -artifact_prefix="$found/" "$corpus" $kept $seeds >"$found/log" 2>&1; then
        passed=$((passed + 1))
        echo "$target: $(sed -n 's/^stat::number_of_executed_units: //p' "$found/log") inputs," \
            "$(sed -n 's/.*cov: \([0-9]*\) .*/\1/p' "$found/log" | tail -n 1) edges"
    else
        failed=$((failed + 1))
        echo "FAILED $target: its input is in $found"
        tail -n 25 "$found/log" | sed 's/^/  /'
    fi
done
closing $passed $failed 0
[ $failed = 0 ]
