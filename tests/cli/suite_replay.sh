#!/bin/sh
# gradscale replay and presets: recordings byte for byte, logs, simulations, and files that lie.
. tests/support/shell.sh
gradscale=$1

# ---- traces ----

for file in tests/traces/*.trace; do
    check "emit $file" sh -c "'$gradscale' replay --emit $file | cmp - $file"
done
check "all equal" sh -c "'$gradscale' replay tests/traces/*.trace | grep -qx '417 traces, 190543 steps: 0 differ'"
{
    cat tests/traces/apex.trace
    echo
    cat tests/traces/flax.trace
} >"$tmp/two"
check "emit two files" sh -c "'$gradscale' replay --emit tests/traces/apex.trace tests/traces/flax.trace | cmp - '$tmp/two'"
sed '/^scale/d; /^error/d; s/^steps/# a remark\nsteps/' tests/traces/deepspeed.trace >"$tmp/bare"
check "scale and error lines are not needed, remarks are dropped" \
    sh -c "'$gradscale' replay --emit '$tmp/bare' | cmp - tests/traces/deepspeed.trace"
check "from standard input" sh -c "'$gradscale' replay --emit - <tests/traces/flax.trace | cmp - tests/traces/flax.trace"
check "nothing recorded is no difference" "$gradscale" replay "$tmp/bare"

# $1 what, $2 a sed script over deepspeed.trace, $3 the line that is printed
differs()
{
    sed "$2" tests/traces/deepspeed.trace >"$tmp/changed"
    "$gradscale" replay "$tmp/changed" >"$tmp/out" 2>"$tmp/err"
    code=$?
    check "$1: exit 1" test $code -eq 1
    check "$1: quiet on stderr" test ! -s "$tmp/err"
    sed "s|^$tmp/||" "$tmp/out" >"$tmp/shown"
    check "$1: the line" grep -qxF "$3" "$tmp/shown"
}
differs "a wrong scale" '0,/5:0x1p+11/s//5:0x1p+12/' \
    "changed:$(grep -n '5:0x1p+11' tests/traces/deepspeed.trace | head -1 | awk -F: -v f=tests/traces/deepspeed.trace '{ n = $1; while ((getline line < f) > 0) { i++; if (i <= n && line ~ /^trace/) { at = i; name = substr(line, 7) } } print at ": trace " name }'): step 5: the scale is 0x1p+11, recorded 0x1p+12"
differs "an error too many" 's/^error 17$/error 16 17/' \
    "$(awk '/^trace/ { at = NR; name = $2 } /^error 17$/ { print "changed:" at ": trace " name ": step 16: no error, but one was recorded"; exit }' tests/traces/deepspeed.trace)"
differs "an error too few" 's/^error 17$/error 999/' \
    "$(awk '/^trace/ { at = NR; name = $2 } /^error 17$/ { print "changed:" at ": trace " name ": step 17: an error that was not recorded"; exit }' tests/traces/deepspeed.trace)"

# $1 the error message about $tmp/bad, then the options to try: exit 2, nothing on stdout, one line on stderr
refused()
{
    want=$1
    shift
    for option in "$@"; do
        timeout 20 "$gradscale" replay $option "$tmp/bad" >"$tmp/out" 2>"$tmp/err"
        code=$?
        check "$want: exit 2" test $code -eq 2
        check "$want: one line" test "$(wc -l <"$tmp/err")" -eq 1
        sed "s|$tmp/||" "$tmp/err" >"$tmp/shown"
        check "$want" grep -qxF "gradscale: $want" "$tmp/shown"
    done
}
both="--emit --"
trace() { printf 'trace t\npreset %s\n%ssteps %s\nfound %s\nend\n' "$@"; }

: >"$tmp/bad"
refused "bad: there is no trace in it" $both
echo "hello world" >"$tmp/bad"
refused "bad:1: 'hello world' outside a trace: of a log ask with --policy" $both
trace pytroch "" 3 3 >"$tmp/bad"
refused "bad:2: trace t: unknown preset 'pytroch'" $both
trace pytorch "set groth=2
" 3 3 >"$tmp/bad"
refused "bad:3: trace t: unknown key 'groth'" $both
trace pytorch "set growth=0.5
" 3 3 >"$tmp/bad"
refused "bad:3: trace t: growth=0.5: growth must be at least 1" $both
trace pytorch "set floor=4 max=2
" 3 3 >"$tmp/bad"
refused "bad:3: trace t: floor=4 is greater than max=2" $both
trace pytorch "" 4 "1 2" >"$tmp/bad"
refused "bad:3: trace t: steps is 4, but found adds up to 3" $both
trace pytorch "" -4 "1 2" >"$tmp/bad"
refused "bad:3: trace t: 'steps -4' is not a number from 0 to 1000000000" $both
trace pytorch "" 1000000000000000000000000000000 1 >"$tmp/bad"
refused "bad:3: trace t: 'steps 1000000000000000000000000000000' is not a number from 0 to 1000000000" $both
trace pytorch "" 3 "1 99999999999999999999" >"$tmp/bad"
refused "bad:4: trace t: number 2 of found is not one from 0 to 1000000000" $both
trace pytorch "" 3 "1 nan" >"$tmp/bad"
refused "bad:4: trace t: number 2 of found is not one from 0 to 1000000000" $both
trace pytorch "" 3 "1 -2 4" >"$tmp/bad"
refused "bad:4: trace t: number 2 of found is not one from 0 to 1000000000" $both
printf 'trace t\npreset pytorch\nsteps 3\nfound 3\n' >"$tmp/bad"
refused "bad:5: trace t has no 'end'" $both
printf 'trace t\npreset pytorch\nsteps 3\nend\n' >"$tmp/bad"
refused "bad:4: trace t has no 'found' line" $both
printf 'trace t\ntrace u\n' >"$tmp/bad"
refused "bad:2: trace t has no 'end'" $both
printf 'trace t\npreset a\npreset b\n' >"$tmp/bad"
refused "bad:3: a second 'preset' line in trace t" $both
printf 'trace t\nsurprise 1\n' >"$tmp/bad"
refused "bad:2: unknown line 'surprise 1'" $both
printf 'trace\nend\n' >"$tmp/bad"
refused "bad:1: a trace without a name" $both
printf 'trace t\n\001\n' >"$tmp/bad"
refused "bad:2: byte 0x01 in it: this is not a text file" $both
head -c 4096 "$gradscale" >"$tmp/bad"
refused "bad:1: byte 0x7f in it: this is not a text file" $both
head -c 17000000 /dev/zero | tr '\0' a >"$tmp/bad"
refused "bad:1: the line is longer than 16777216 bytes" $both
printf 'trace t\npreset pytorch\nsteps 1\nfound 1\nscale rubbish\nend\n' >"$tmp/bad"
refused "bad:1: trace t: its 'scale' line is malformed" --
printf 'trace t\npreset pytorch\nsteps 1\nfound 1\nscale rubbish\nerror x\nend\n' >"$tmp/rubbish"
check "emit does not read what was recorded" "$gradscale" replay --emit "$tmp/rubbish"
: | "$gradscale" replay "$tmp/none" >"$tmp/out" 2>"$tmp/err"
check "no such file: exit 2" test $? -eq 2
check "no such file" grep -q "none: cannot be opened: No such file" "$tmp/err"
"$gradscale" replay "$tmp" >"$tmp/out" 2>"$tmp/err"
check "a folder: exit 2" test $? -eq 2
if [ -w /dev/full ]; then
    "$gradscale" replay --emit tests/traces/flax.trace >/dev/full 2>"$tmp/err"
    check "a full disk: exit 1" test $? -eq 1
else
    skip "a full disk" "there is no /dev/full"
fi

# ---- logs ----

cat >"$tmp/flags.jsonl" <<'END'
{"step": 0, "found_inf": 1, "loss": NaN}
{"step": 1, "found_inf": false, "text": "NaN \" Infinity"}

{"step": 2, "found_inf": 0.0}
{"step": 3, "found_inf": true}
END
cat >"$tmp/amax.jsonl" <<'END'
{"amax": 3}
{"amax": 3}
{"amax": Infinity}
{"amax": null}
{"amax": "nan"}
{"amax": 0.001}
{"amax": 1e-3, "found_inf": true, "scale": 65536}
{"amax": 3, "found_inf": true, "scale": 65536}
END
field() { "$gradscale" replay --json --policy "$2" "$1" $5 | awk -v key="\"$3\":" '$1 == key { printf "%.0f\n", $2 }' | tr '\n' ' ' | sed 's/ $//'; }
same() { test "$(field "$1" "$2" "$3" "" "$5")" = "$4" || { field "$1" "$2" "$3" "" "$5"; return 1; }; }
check "flags: skipped" same "$tmp/flags.jsonl" pytorch,megatron,guard,none skipped "2 2 2 0"
check "flags: final" same "$tmp/flags.jsonl" pytorch,megatron,static:8 final_scale "16384 2147483648 8"
check "amax: skipped" same "$tmp/amax.jsonl" pytorch,static:1024 skipped "6 4"
printf '{"amax": 3, "found_inf": null}\n{"amax": "-Inf"}\n{"amax": "NaN", "found_inf": 0}\n' >"$tmp/null.jsonl"
check "null is not in the log; a string says not finite" same "$tmp/null.jsonl" pytorch,guard skipped "2 1"
# of a batch that was retried, scale and amax are those with which it was applied
printf '{"step":1,"scale":1024,"amax":2,"found_inf":true,"verdict":"apply","reruns":2}\n{"step":2,"scale":1024,"amax":2,"found_inf":true,"verdict":"skip","reruns":0}\n' >"$tmp/retried.jsonl"
check "a retried batch: the flag is of an earlier try" same "$tmp/retried.jsonl" static:1024,static:65536 skipped "1 2"
check "at ceiling" same "$tmp/flags.jsonl" pytorch at_ceiling 1 "--set init=0x1p40"
check "a table" sh -c "'$gradscale' replay --policy pytorch,headroom '$tmp/amax.jsonl' | grep -q '^headroom  *8 '"

# $1 how the error message about $tmp/bad begins, $2 the options
refused_log()
{
    timeout 20 "$gradscale" replay $2 "$tmp/bad" >"$tmp/out" 2>"$tmp/err"
    code=$?
    check "$1: exit 2" test $code -eq 2
    check "$1: one line" test "$(wc -l <"$tmp/err")" -eq 1
    sed "s|$tmp/||" "$tmp/err" >"$tmp/shown"
    check "$1" grep -q "^gradscale: $1" "$tmp/shown"
}
: >"$tmp/bad"
refused_log "bad: there is no step in it" "--policy pytorch"
printf '{"found_inf": 1}\n{"found_inf": \n' >"$tmp/bad"
refused_log "bad:2: not JSON: " "--policy pytorch"
printf '[1, 2]\n' >"$tmp/bad"
refused_log "bad:1: not a JSON object" "--policy pytorch"
printf '{"loss": 1}\n' >"$tmp/bad"
refused_log "bad:1: it has none of found_inf, amax and scale" "--policy pytorch"
printf '{"found_inf": "yes"}\n' >"$tmp/bad"
refused_log "bad:1: found_inf is neither true, false nor a number" "--policy pytorch"
printf '{"amax": -1}\n' >"$tmp/bad"
refused_log "bad:1: amax is neither a number >= 0 nor null" "--policy pytorch"
printf '{"amax": "banana"}\n' >"$tmp/bad"
refused_log "bad:1: amax is neither a number >= 0 nor null" "--policy pytorch"
printf '{"found_inf": null}\n' >"$tmp/bad"
refused_log "bad:1: it has none of found_inf, amax and scale" "--policy pytorch"
printf '{"amax": 1e999}\n' >"$tmp/bad"
refused_log "bad:1: not JSON: real number overflow" "--policy pytorch"
head -c 4096 "$gradscale" >"$tmp/bad"
refused_log "bad:1: byte 0x7f" "--policy pytorch"
head -c 100000 /dev/zero | tr '\0' '[' >"$tmp/bad"
refused_log "bad:1: not JSON: " "--policy pytorch"
printf 'east,north\n1,2\n' >"$tmp/bad"
refused_log "bad:1: not JSON: .*; nor is it another log that gradscale replay --help names" "--policy pytorch"
echo '{"amax": 1}' >"$tmp/bad"
refused_log "bad:1: '{\"amax\": 1}' outside a trace: of a log ask with --policy"
refused_log "--policy: unknown scaler 'pytroch'" "--policy pytroch"
echo '{"amax": 1}' >"$tmp/bad"
refused_log "--policy: an item of the list is empty" "--policy pytorch,,apex"
echo '{"amax": 1}' >"$tmp/bad"
refused_log "--set: unknown key 'x'" "--policy pytorch --set x=1"
refused_log "--set: unknown key 'intervall', did you mean 'interval'?" "--policy pytorch --set intervall=1"
echo '{"amax": 1}' >"$tmp/bad"
refused_log "--set on_overflow: a batch of a log cannot be retried" "--policy pytorch --set on_overflow=attribute"
echo '{"amax": 1}' >"$tmp/bad"
refused_log "--set belongs to --policy or --simulate" "--set x=1"
echo '{"amax": 1}' >"$tmp/bad"
refused_log "--emit, --policy and --simulate exclude one another" "--emit --policy apex"
echo '{"amax": 1}' >"$tmp/bad"
refused_log "--simulate takes no file" "--simulate"
"$gradscale" replay >"$tmp/out" 2>"$tmp/err"
check "no file: exit 2" test $? -eq 2

# ---- logs of other frameworks ----

# steps_of FILE: how many there are and how many were skipped
steps_of() { "$gradscale" replay --policy pytorch,apex "$1" | awk '$1 == "pytorch" { print $2, $3 }'; }
check "Megatron-LM" test "$(steps_of tests/logs/megatron.log)" = "12 3"
check "DeepSpeed" test "$(steps_of tests/logs/deepspeed.log)" = "20 2"
check "Apex" test "$(steps_of tests/logs/apex.log)" = "2003 3"
check "fairseq" test "$(steps_of tests/logs/fairseq.log)" = "9 2"
check "Hugging Face" test "$(steps_of tests/logs/trainer_state.json)" = "3 1"
check "a scale that fell" test "$(steps_of tests/logs/scale.jsonl)" = "5 2"
printf 'step,scale\n1,8\n2,4\n3,4\n' >"$tmp/scale.csv"
check "in a table" test "$(steps_of "$tmp/scale.csv")" = "3 1"
"$gradscale" replay --policy pytorch tests/logs/lightning.csv >"$tmp/out" 2>"$tmp/err"
check "no scale: exit 2" test $? -eq 2
check "no scale" grep -qx "gradscale: tests/logs/lightning.csv: read as CSV: line 3 does not tell whether its step \
overflowed: there is no scale" "$tmp/err"
printf 'PK\003\004\024\000archive/data.pkl\200\002' >"$tmp/x.pt"
"$gradscale" replay --policy pytorch "$tmp/x.pt" >"$tmp/out" 2>"$tmp/err"
check "a file of torch.save: exit 2" test $? -eq 2
check "a file of torch.save" grep -q "x.pt: is a file of torch.save, which only Python can read: log found_inf" "$tmp/err"

# which policy: an amax that jumps by 2^7 now and then is beyond a scaler that rides at the limit
awk 'BEGIN { for (i = 1; i <= 20000; i++) printf "{\"step\":%d,\"amax\":%g}\n", i, i % 500 ? 0.001 : 0.05 }' >"$tmp/jumps.jsonl"
"$gradscale" replay --policy all "$tmp/jumps.jsonl" >"$tmp/out"
check "--policy all: every preset and more" test "$(grep -c '^[a-z]' "$tmp/out")" -ge 39
# of those within 0.1% of the fewest skips, the highest mean scale
best()
{
    awk '$2 == 20000 { skips[$1] = $3; scale[$1] = $5; if (n++ == 0 || $3 < least) least = $3 } /^Use / { use = $2; sub(/:$/, "", use) }
         END { for (p in skips) if (skips[p] <= least + 20 && scale[p] > scale[use] + 0.5) exit 1; exit !(use in skips) || skips[use] > least + 20 }' "$tmp/out"
}
check "--policy all: which to use" best
check "--policy all: and why" grep -q '^Use [a-z0-9.-]*: it skips [0-9]* of 20000 steps' "$tmp/out"
"$gradscale" replay --policy pytorch,headroom tests/logs/megatron.log >"$tmp/out"
check "flags cannot tell" grep -q '^The log has no amax, so every policy is given' "$tmp/out"

# ---- simulations ----

check "simulate: sentences keep to 79 columns" sh -c "! '$gradscale' replay --simulate --steps 2000 --walk 1000 --seeds 2 | grep -E '^[A-Z].{79}'"
check "simulate" sh -c "'$gradscale' replay --simulate --steps 2000 --walk 1000 --seeds 2 | grep -q '^megatron  *0.01  *2^4  *attribute '"
check "simulate --json" sh -c "'$gradscale' replay --simulate --json --steps 2000 --walk 1000 --seeds 2 | grep -c '\"on_overflow\": \"attribute\"' | grep -qx 30"

# ---- presets ----

sed '/^#/d; s/ .*//' tests/traces/presets.txt >"$tmp/names"
"$gradscale" presets --parameters >"$tmp/out"
check "presets: parameters in 80 columns" not grep -q '.\{81\}' "$tmp/out"
# a preset may take several lines: one each
awk '/^ / { sub(/^ */, " "); line = line $0; next } NR > 1 { print line } { line = $0 } END { print line }' "$tmp/out" >"$tmp/lines"
sed 's/ .*//' "$tmp/lines" >"$tmp/listed"
check "presets: all of them" cmp "$tmp/names" "$tmp/listed"
while read -r name; do
    sed -n "s/^$name //p" tests/traces/presets.txt >"$tmp/want"
    sed -n "s/^$name  *//p" "$tmp/lines" >"$tmp/have"
    check "presets: $name" cmp "$tmp/want" "$tmp/have"
done <"$tmp/names"
check "presets: one" sh -c "'$gradscale' presets --parameters apex | grep -qx 'apex      state=f64 backoff=0x1p+1 back_op=div max=0x1p+24'"
"$gradscale" presets >"$tmp/out"
check "presets: a sentence each" test "$(grep -c '^[a-z]' "$tmp/out")" -eq "$(($(wc -l <"$tmp/names") - 1))"
check "presets: in 80 columns" not grep -q '.\{81\}' "$tmp/out"
check "presets: every one is known" test "$(grep -cE '^([a-z0-9.-]+)  +\1:' "$tmp/out")" -eq 2 # fairseq, metaseq
check "presets: apex" grep -q '^apex  *Apex, amp: starts at 2^16; times 0.5 after an overflow,$' "$tmp/out"
"$gradscale" presets pytroch >"$tmp/out" 2>"$tmp/err"
check "presets: the one that is meant" grep -qx "gradscale: unknown preset 'pytroch', did you mean 'pytorch'?" "$tmp/err"
check "presets: JSON" sh -c "'$gradscale' presets --json jmp | grep -q '\"compare\": \"wrap\"'"
"$gradscale" presets nonsense >"$tmp/out" 2>"$tmp/err"
check "unknown preset: exit 2" test $? -eq 2
check "unknown preset" grep -qx "gradscale: unknown preset 'nonsense': gradscale presets lists them" "$tmp/err"
finish
