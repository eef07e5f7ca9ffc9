#!/bin/sh
# The program: exit codes, error messages, --help of every command, --json, standard output that breaks.
. tests/support/shell.sh
gs=$1
unset NO_COLOR
lines() { wc -l <"$1" | tr -d ' '; }

# exits CODE ARGS... : leaves $tmp/out and $tmp/err
exits()
{
    want=$1
    shift
    "$gs" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    echo "gradscale $*: exit code $code, wanted $want"
    cat "$tmp/err"
    [ "$code" -eq "$want" ]
}

# refuses MESSAGE ARGS... : exit code 2, this one line on stderr, nothing on stdout
refuses()
{
    message="gradscale: $1"
    shift
    exits 2 "$@" || return 1
    echo "wanted: $message"
    [ ! -s "$tmp/out" ] && [ "$(lines "$tmp/err")" -eq 1 ] && [ "$(cat "$tmp/err")" = "$message" ]
}

# prints PATTERN ARGS... : exit code 0, nothing on stderr, a line of stdout matches
prints()
{
    pattern=$1
    shift
    exits 0 "$@" || return 1
    [ ! -s "$tmp/err" ] || return 1
    echo "wanted: $pattern"
    cat "$tmp/out"
    grep -qE -- "$pattern" "$tmp/out"
}

is_json() { awk -f tests/support/json.awk "$@"; }

# ---- the validator itself ----

for good in '{}' '[]' '[1,-0.5e-3,"a\"\\\u00e9",true,false,null,{"a":[]}]' ' "x" ' '0'; do
    printf '%s\n' "$good" >"$tmp/j"
    check "JSON: $good" is_json "$tmp/j"
done
for bad in '' '{' '[1,]' '{"a"}' '{a:1}' '01' '1.' 'nan' '[1 2]' '"a' '"\x"' '{} {}' '[inf]'; do
    printf '%s\n' "$bad" >"$tmp/j"
    check "not JSON: $bad" not is_json "$tmp/j"
done

# ---- the program ----

check "--version" prints '^gradscale [0-9]+\.[0-9]+\.[0-9]+$' --version
check "--help" prints '^usage: gradscale \[options\] COMMAND' --help
check "-h" prints '^usage: gradscale ' -h
check "-V" prints '^gradscale [0-9]+\.[0-9]+\.[0-9]+$' -V
check "-h of a command" prints '^usage: gradscale info ' info -h
check "--help=man" prints '^\.SH OPTIONS' info --help=man
check "--help=words" prints '^--json	' info --help=words
check "--help=nonsense" refuses "--help is one of text|man|words, not 'nonsense'" info --help=nonsense
check "1e3" prints '^steps = 1000$' train --data shapes --steps 1e3 --print-config
check "2.5e2" prints '^steps = 250$' train --data shapes --steps 2.5e2 --print-config
check "1.5e0 is not whole" refuses "--steps needs a whole number from 1 to 1000000000000, not '1.5e0'" train --steps 1.5e0
check "1e99 is beyond" refuses "--steps needs a whole number from 1 to 1000000000000, not '1e99'" train --steps 1e99
check "--batch-size" prints '^batch = 3$' train --data shapes --batch-size 3 --print-config
check "--learning-rate" prints '^lr = 0.25$' train --data shapes --learning-rate 0.25 --print-config
check "a near choice" refuses "--precision is one of fp16|bf16|fp32, not 'fp61': did you mean fp16?" \
    train --precision fp61
check "a near scaler" refuses "--scaler: unknown scaler 'pytroch', did you mean 'pytorch'?" \
    train --data shapes --scaler pytroch --dry-run
check "-q" sh -c "test -z \"\$('$1' train --no-save --model fcn --data shapes --layers 1 --filters 2 --batch 2 --steps 2 --valid-items 4 -q)\""
if command -v script >/dev/null; then
    coloured() { TERM=xterm script -qec "$1" /dev/null </dev/null | grep -q "$(printf '\033')"; }
    check "colour on a terminal" coloured "'$1' info"
    check "none with NO_COLOR" not coloured "NO_COLOR=1 '$1' info"
else
    skip "colour on a terminal" "there is no script(1)"
fi
check "help" prints '^usage: gradscale ' help
check "no command" refuses 'a command is missing: gradscale --help lists them'
check "unknown command" refuses "unknown command 'frobnicate': gradscale --help lists them" \
    frobnicate
check "near command" refuses "unknown command 'inof', did you mean 'gradscale info'?" inof
check "help of an unknown command" refuses \
    "unknown command 'infoo', did you mean 'gradscale info'?" help infoo
check "empty command" refuses "unknown command '': gradscale --help lists them" ''
check "unknown option before the command" refuses \
    'unknown option --frobnicate: gradscale --help lists them' --frobnicate info
check "near option before the command" refuses 'unknown option --verson, did you mean --version?' \
    --verson
check "options after the command are the command's" refuses \
    'unknown option --version: gradscale info --help lists them' info --version
check "-- before the command" prints '^usage: gradscale info' -- info --help

# ---- every command ----

commands()
{
    "$gs" "$@" --help | awk '/^commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }'
}

check_help()
{
    exits 0 "$@" --help || return 1
    cat "$tmp/out"
    [ "$(head -n 1 "$tmp/out" | cut -d' ' -f"1-$(($# + 2))")" = "usage: gradscale $*" ] || return 1
    grep -q '^  -h, --help ' "$tmp/out" || return 1
    [ ! -s "$tmp/err" ] || return 1
    # Lines fit a terminal, but for an option too long to be broken; none ends in spaces.
    ! grep -nE '^.{80}' "$tmp/out" | grep -vE '^[0-9]+:  --' && ! grep -nE ' $' "$tmp/out"
}

check_command()
{
    check "$* --help" check_help "$@"
    check "$* with an unknown option" refuses \
        "unknown option --frobnicate: gradscale $* --help lists them" "$@" --frobnicate
    check "$* --help with a value" refuses "--help is one of text|man|words, not '1'" "$@" --help=1
    check "$* with a short option" refuses 'unknown option -x: options are written --name' "$@" -x
    check "$* --help to a full disk" full "$@" --help
}

# stdout that breaks: exit code 1 and an error message
full()
{
    "$gs" "$@" >/dev/full 2>"$tmp/err"
    code=$?
    cat "$tmp/err"
    [ $code -eq 1 ] && [ "$(lines "$tmp/err")" -eq 1 ] &&
        grep -q '^gradscale: writing to standard output failed: No space left' "$tmp/err"
}

found=0
for command in $(commands); do
    found=$((found + 1))
    check_command "$command"
    check "help $command" prints "^usage: gradscale $command " help "$command"
    for sub in $(commands "$command"); do
        check_command "$command" "$sub"
    done
done
check "commands are listed" [ "$found" -ge 2 ]

# ---- options ----

cat >"$tmp/golden" <<'END'
usage: gradscale info [options]

Shows what a run on this machine would use: the instruction sets the CPU has,
the kernels and threads in use, and the number formats with their limits.

options:
  -h, --help   show this text
  --threads N  threads to use; 0: one per CPU (default 0)
  --cpu auto|ref|avx2|avx512|neon|avx512bf16|avx512vnni
               the highest instruction set to use (default auto)
  --json       print JSON; its schema is in doc/json-info.md
END
"$gs" info --help >"$tmp/help"
check "info --help, word for word" diff "$tmp/golden" "$tmp/help"

check "near option" refuses 'unknown option --jsno, did you mean --json?' info --jsno
check "beginning of an option" refuses 'unknown option --thr, did you mean --threads?' info --thr 2
check "unknown option with a value" refuses 'unknown option --jsn, did you mean --json?' \
    info --jsn=yes
check "value for a flag" refuses '--json takes no value' info --json=yes
check "empty value for a flag" refuses '--json takes no value' info --json=
check "missing value" refuses '--threads needs a value (N)' info --threads
check "option for a value" refuses \
    "--threads needs a value (N); write --threads=VALUE if it is '--json'" info --threads --json
check "operand too many" refuses \
    "'x' is one argument too many: gradscale info --help shows the usage" info x
check "operand after --" refuses \
    "'--json' is one argument too many: gradscale info --help shows the usage" info -- --json
check "operand -" refuses \
    "'-' is one argument too many: gradscale info --help shows the usage" info -

check "empty number" refuses '--threads needs a value (N), not an empty one' info --threads ''
check "empty number after =" refuses '--threads needs a value (N), not an empty one' info --threads=
for bad in -1 +1 1.5 1x ' 1' '1 ' x 0x10 1e3.5 18446744073709551616 99999999999999999999999999; do
    check "whole number '$bad'" refuses \
        "--threads needs a whole number from 0 to 1024, not '$bad'" info --threads "$bad"
    check "whole number ='$bad'" refuses \
        "--threads needs a whole number from 0 to 1024, not '$bad'" info "--threads=$bad"
done
check "number too large" refuses '--threads must be from 0 to 1024, not 1025' info --threads 1025
check "largest whole number" refuses \
    '--threads must be from 0 to 1024, not 18446744073709551615' info --threads 18446744073709551615
check "the last one counts" prints '^threads +3$' info --threads 5 --threads=3
check "a wrong one before counts" refuses '--threads must be from 0 to 1024, not 5000' \
    info --threads 5000 --threads 3

for bad in x 1x nan inf -inf 1e999 ' 1' 0x 1,5; do
    check "number '$bad'" refuses "--seconds needs a finite number, not '$bad'" \
        bench kernels --seconds "$bad"
done
check "negative number" refuses '--seconds must be from 0 to 86400, not -1' \
    bench kernels --seconds -1
check "choice" refuses "--cpu is one of auto|ref|avx2|avx512|neon|avx512bf16|avx512vnni, not 'avx': did you mean avx2?" info --cpu avx
check "empty item of a choice" refuses '--cpu needs a value (auto|ref|avx2|avx512|neon|avx512bf16|avx512vnni), not an empty one' \
    info --cpu ''
check "part of the list of choices" refuses "--cpu is one of auto|ref|avx2|avx512|neon|avx512bf16|avx512vnni, not 'auto|ref'" \
    info --cpu 'auto|ref'

# ---- hostile words ----

long=$(awk 'BEGIN { for (i = 0; i < 100000; i++) printf "a" }')
check "an option of 100 KB" exits 2 info "--$long"
check "and one line about it" [ "$(wc -c <"$tmp/err")" -lt 300 ]
check "a command of 100 KB" exits 2 "$long"
check "a value of 100 KB" exits 2 info --threads "$long"
check "control characters do not reach the terminal" refuses \
    'unknown option --a?b?[31m: gradscale info --help lists them' \
    info "$(printf -- '--a\nb\033[31m')"
check "UTF-8 does" refuses "unknown command 'größe': gradscale --help lists them" größe
check "a format string" refuses "unknown command '%s%n': gradscale --help lists them" %s%n

# ---- standard output that breaks ----

check "--version to a full disk" full --version
check "info to a full disk" full info
check "info --json to a full disk" full info --json
check "bench to a full disk" full bench kernels --sizes 64K --seconds 0 --threads 1 --only check

closed() { "$gs" info >&- 2>"$tmp/err"; code=$?; cat "$tmp/err"; [ $code -eq 1 ]; }
check "closed stdout" closed
pipe()
{
    { sleep 0.2; "$gs" info 2>"$tmp/err"; echo $? >"$tmp/code"; } | true
    cat "$tmp/err"
    [ "$(cat "$tmp/code")" = 1 ] && [ ! -s "$tmp/err" ] # who closed it, as head does, has read enough
}
check "closed pipe" pipe
mute() { "$gs" frobnicate 2>&-; [ $? -eq 2 ]; }
check "closed stderr" mute
deaf() { "$gs" info <&- >"$tmp/out"; }
check "closed stdin" deaf

# ---- info ----

check "info" prints '^kernels +[a-z0-9]+$' info
check "f16" prints '^f16 +16 +5 +10 +65504 +6\.10352e-05 +5\.96046e-08 +0\.000976562$' info
check "bf16" prints '^bf16 +16 +8 +7 +3\.38953e\+38 +1\.17549e-38 +9\.18355e-41 +0\.0078125$' info
check "info --cpu ref" prints '^kernels +ref$' info --cpu ref
check "info --json" prints '^  "kernels": "[a-z0-9]+",$' info --json
check "info --json is JSON" is_json "$tmp/out"
check "info --json has f64's limits" grep -q '"max": 1.7976931348623157e+308,$' "$tmp/out"
check "info --json has the smallest number" grep -q '"min_subnormal": 4.94065645841247e-324,$' "$tmp/out"
check "info --json has all formats" [ "$(grep -c '"max_code": "0x' "$tmp/out")" -eq 6 ]
check "info: usable CPUs" prints '^cpu .*, [0-9]+ online, [0-9]+ usable \((no limit|limited by .*)\)$' info
check "info --json: usable CPUs" prints '^    "limit": "(online|affinity|quota)",$' info --json
bound() { taskset -c "$1" "$gs" info "$2" >"$tmp/out" && grep -E "$3" "$tmp/out"; }
cpu=$(taskset -cp $$ 2>/dev/null | sed 's/.*: //; s/[-,].*//') # one that we may use
if [ -n "$cpu" ] && [ "$("$gs" info | grep -c 'no limit')" = 1 ] && [ "$(nproc)" -gt 1 ]; then
    check "info, bound to a CPU" bound "$cpu" --threads=0 ' 1 usable .limited by the affinity mask.$'
    check "which has one thread" grep -qE '^threads +1$' "$tmp/out"
    check "info --json, bound to a CPU" bound "$cpu" --json '"limit": "affinity",$'
else
    skip "info, bound to a CPU" "needs taskset and two CPUs without a limit"
fi
for flag in avx2 avx512 neon avx512bf16 avx512vnni; do
    if "$gs" info | grep -qE "^detected.* $flag( |\$)"; then
        check "info --cpu $flag" prints "^kernels +$flag\$" info --cpu $flag
    else
        check "info --cpu $flag" refuses "--cpu $flag: this CPU has no such instructions" \
            info --cpu $flag
    fi
done

if "$gs" info | grep -q '^detected.* avx512'; then
    "$gs" info --cpu avx512 --json >"$tmp/out"
    check "a set includes the lower ones" [ "$(grep -c '^ *"avx2",$' "$tmp/out")" -eq 2 ]
else
    skip avx512 "this CPU has no such instructions"
fi

# ---- bench step ----

step='--model mlp --batch 8 --seconds 0 --threads 1'
check "bench step" prints '^mlp in fp16, O2: 669706 weights, 8 images per step' bench step $step
check "bench step, phases" prints '^decide +[0-9.]+ +[0-9.]+$' bench step $step
check "bench step, operations" prints '^linear +[0-9.]+ +[0-9.]+ +[0-9.]+$' bench step $step
check "bench step, memory" prints '^half_copies +1.34$' bench step $step
check "bench step --json" prints '"scaler_share": [0-9.e-]+,$' bench step $step --json
check "bench step --json is JSON" is_json "$tmp/out"
check "bench step --json, median" grep -Eq '"median_seconds": [0-9.e-]+,$' "$tmp/out"
check "bench step --json, operations" grep -q '"cross_entropy": {$' "$tmp/out"
check "bench step --json, telemetry" grep -Eq '"telemetry_share": [-0-9.e]+,$' "$tmp/out"
check "bench step --json, all with telemetry" prints '"telemetry_share": null,$' bench step $step \
    --telemetry --json
if "$gs" info | grep -qE '^detected.* avx512bf16( |$)'; then
    check "bench step, a unit for bf16" prints '^bf16 products on fma, of all +[+]0\.000$' bench step $step \
        --precision bf16
    check "bench step --json, a unit for bf16" prints '"fallback_share": 0,$' bench step $step \
        --precision bf16 --json
fi
check "bench step, no unit for f16" prints '"fallback_share": null,$' bench step $step --json
check "bench step, no unit in use" prints '"fallback_share": null,$' bench step $step --precision bf16 \
    --cpu ref --json
check "bench step in fp32" prints '"half_copies": 0,$' bench step $step --precision fp32 --json
check "bench step, telemetry" prints '^cnn in bf16, O1: ' bench step --model cnn --batch 2 --seconds 0 \
    --threads 1 --precision bf16 --mode O1 --telemetry
check "bench step, a gpt" prints '^gpt-mini in fp16, O3: .* 16 tokens' bench step --batch 2 --time 8 \
    --seconds 0 --threads 1 --mode O3
check "bench step, recomputation" prints '^peak_if_kept ' bench step --batch 2 --time 8 --seconds 0 \
    --recompute
check "bench step --recompute --json" prints '"recompute_longer": [-0-9.e]+,$' bench step --batch 2 \
    --time 8 --seconds 0 --recompute --json
check "bench step, a loader" prints '^waiting for the loader +[+]' bench step --data self --batch 2 \
    --time 8 --seconds 0
if [ -e /usr/share/datasets/fashion-mnist ]; then
    check "bench step, fashion-mnist" prints '^waiting for the loader +[+]' bench step --model cnn \
        --data fashion-mnist --batch 2 --seconds 0
else
    skip "bench step, fashion-mnist" "it is not installed (scripts/deps.sh demo)"
fi
check "bench step, data of another kind" refuses \
    '--data shapes does not go with this model, which learns tokens' bench step --data shapes
check "bench step, telemetry's cost" prints '^telemetry, whole steps +[-+]' bench step $step
check "bench step, mode against precision" refuses '--mode O1 does not go with --precision fp32' \
    bench step --precision fp32 --mode O1
check "bench step, one token" exits 2 bench step --time 1 --seconds 0

# ---- bench ranks ----

alone() { "$gs" bench ranks --help | tee "$tmp/out"; ! grep -q 'gradients sent as' "$tmp/out"; }
check "bench ranks --help measures nothing" alone

# ---- bench gemm ----

quick="--seconds 0 --threads 1 --only mini"
check "bench gemm" prints '^mini proj dw +384 +384 +1024 ' bench gemm $quick
check "bench gemm, the mean" prints '^mean of training ' bench gemm $quick
check "bench gemm --json" prints '"bf16_of_f32": [0-9.e-]+,$' bench gemm $quick --json
check "bench gemm --json is JSON" is_json "$tmp/out"
check "bench gemm --only" [ "$(grep -c '"name": "mini ' "$tmp/out")" -eq 12 ]
check "bench gemm --only of nothing" refuses '--only nothing: no shape has this in its name' \
    bench gemm --only nothing

# ---- bench kernels ----

quick="--sizes 64K,192K --seconds 0 --threads 1,2"
check "bench without a name" refuses 'a command is missing: gradscale bench --help lists them' bench
check "bench, unknown" refuses "unknown command 'kernel', did you mean 'gradscale bench kernels'?" \
    bench kernel
check "bench kernels" prints '^check f32 +read +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' \
    bench kernels $quick
check "bench kernels, two sizes" [ "$(grep -c '^working set ' "$tmp/out")" -eq 2 ]
check "bench kernels --json" prints '"of_limit": [0-9.e-]+,$' bench kernels $quick --json
check "bench kernels --json is JSON" is_json "$tmp/out"
check "bench kernels, four results" [ "$(grep -c '"size": ' "$tmp/out")" -eq 4 ]
check "bench kernels, random bits" prints '^stochastic f32 bf16 +philox +[0-9.]+ +[0-9.]+$' \
    bench kernels --sizes 64K --seconds 0 --threads 1 --only stochastic
check "bench kernels --only" prints '"name": "scan f16",$' bench kernels $quick --only scan --json
check "only those" [ "$(grep -c '"of_limit": ' "$tmp/out")" -eq 12 ]
check "and only their limit" [ "$(grep -c '"loop": ' "$tmp/out")" -eq 4 ]
check "bench kernels --cpu ref" prints '^  "kernels": "ref",$' \
    bench kernels $quick --only check --cpu ref --json
check "--only of nothing" refuses '--only nothing: no pass has this in its name' \
    bench kernels --only nothing
for bad in 1K 63K 2T x 1M, ,1M 1M,,1G 1Q 1MM -1M; do
    case $bad in
    *,*) ;;
    *)
        check "--sizes $bad" refuses \
            "--sizes needs sizes from 64K to 1T such as 1M,32M,1G, not '$bad'" \
            bench kernels "--sizes=$bad"
        ;;
    esac
    check "--sizes $bad, code" exits 2 bench kernels "--sizes=$bad"
done
for bad in 0 1025 x 1, 1,,2; do
    check "--threads $bad" exits 2 bench kernels --threads "$bad"
done
check "too many sizes" refuses '--sizes takes at most 16 sizes' bench kernels \
    --sizes 1M,1M,1M,1M,1M,1M,1M,1M,1M,1M,1M,1M,1M,1M,1M,1M,1M
check "no size fits" exits 1 bench kernels --sizes 1T
check "and it is said" grep -q '^gradscale: size 1T is left out: ' "$tmp/err"
check "one size fits" exits 0 bench kernels --sizes 64K,1T --seconds 0 --threads 1 --only check
check "and the other is named" grep -q '^gradscale: size 1T is left out: ' "$tmp/err"

# ---- terminals ----

if command -v script >/dev/null && script -qec true /dev/null >/dev/null 2>&1; then
    esc=$(printf '\033')
    terminal() { TERM=xterm script -qec "$*" /dev/null </dev/null >"$tmp/out" 2>&1; }
    colored() { terminal "$@"; grep -q "$esc" "$tmp/out"; }
    check "headings on a terminal" colored "$gs" --help
    check "NO_COLOR" not colored env NO_COLOR=1 "$gs" --help
    check "an empty NO_COLOR is none" colored env NO_COLOR= "$gs" --help
    check "TERM=dumb" not colored env TERM=dumb "$gs" --help
    check "progress on a terminal" colored "$gs" bench kernels $quick --json
    check "is a bar" grep -q '\[[#.]*\] ' "$tmp/out"
    cr=$(printf '\r')
    check "a table after it" terminal "$gs" bench kernels $quick
    check "does not leave it standing" not grep -q "[^$cr]$esc\[K$cr\$" "$tmp/out"
    gpt="--model gpt --layers 1 --width 16 --heads 2 --context 16 --data README.md --batch 2 --valid-items 2 --threads 1"
    check "of a run that is interrupted by validations" colored timeout -s INT 2.5 "$gs" train $gpt --no-save --steps 1000000 \
        --valid-every 10
    check "the time left is of all of it" grep -q ' [1-9][0-9:]*:[0-9][0-9] left' "$tmp/out"
    check "a terminal that rewrites no line" not colored env TERM=dumb "$gs" compare $gpt --steps 2 --runs fp32,bf16 \
        --output "$tmp/dumb"
    check "gets lines" grep -q '^bf16: loss ' "$tmp/out"
    long="--model mlp --hidden 4 --data shapes --valid-every x$(printf '%060d' 0)"
    NO_COLOR=1 script -qec "'$gs' train $long" /dev/null </dev/null | tr -d '\r' >"$tmp/out"
    check "an error on a terminal is broken between words, within 80 columns" test "$(lines "$tmp/out")" -eq 2 -a "$(awk 'length($0) > 79' "$tmp/out")" = ""
    check "in a file it is one line" sh -c "! '$gs' train $long 2>'$tmp/err' && test \$(wc -l <'$tmp/err') -eq 1"
    check "and says the same as in a file" test "$(NO_COLOR=1 script -qec "'$gs' report '$tmp/none-of-this-name-is-there.jsonl'" /dev/null </dev/null | tr -s ' \r\n' ' ')" = \
        "$("$gs" report "$tmp/none-of-this-name-is-there.jsonl" 2>&1 | tr -s '\n' ' ')"
else
    skip "on a terminal" "there is no program 'script' that makes one"
fi

# ---- what a new user trips over ----

printf 'a|b|y\n1|2|0\n3|4|1\n' >"$tmp/bars.csv"
printf 'a,b,y\n1,2,0\n,4,1\n' >"$tmp/gap.csv"
printf 'a,b,y\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n' >"$tmp/rows.csv"
mkdir "$tmp/nothing"
check "a policy is no preset" refuses "'headroom' is a policy and no preset: doc/scaler.md has its parameters" presets headroom
check "help of a command's command" prints '^usage: gradscale bench gemm' help bench gemm
check "help of none such" refuses "unknown command 'gem', did you mean 'gradscale bench gemm'?" help bench gem
check "--config names itself" refuses "--config: $tmp/none: cannot be opened: No such file or directory" train --config "$tmp/none"
check "a folder for it, too" refuses "--config: $tmp: Is a directory" train --config "$tmp"
printf 'a text of no great length, again and again; ' >"$tmp/a.txt"
check "--heads and --width" refuses "--heads 3 cannot share --width 64" train --data "$tmp/a.txt" --context 8 --heads 3 --width 64
check "--heads and --kv-heads" refuses "--heads 4 cannot share --kv-heads 3" train --data "$tmp/a.txt" --context 8 --kv-heads 3
check "--warmup and --steps" refuses "--warmup 7 is no less than --steps 5: nothing is left for the schedule cosine" \
    train --data "$tmp/rows.csv" --steps 5 --warmup 7 --no-save
[ ! -d /proc/self ] || check "--checkpoint names itself" refuses "--checkpoint: /proc/none: cannot be made: No such file or directory" \
    train --data "$tmp/rows.csv" --steps 5 --checkpoint /proc/none
check "a table with bars" refuses "--data: $tmp/bars.csv:1: has one column, and 2 are needed, with commas, semicolons or tabs between them" \
    train --data "$tmp/bars.csv"
check "a field that is empty" refuses "--data: $tmp/gap.csv:3: field 1 is empty, and must be a number" train --data "$tmp/gap.csv"
check "a folder that is empty" refuses "--data: $tmp/nothing: is empty, or holds no file that is read" train --data "$tmp/nothing"
check "a batch is no larger than the data" prints '^training   2 steps of [1-4], ' train --data "$tmp/rows.csv" --batch 4000 --steps 2 --dry-run
check "how many rows validate" grep -qE '^data .* rows? to train on, [1-3] to validate with$' "$tmp/out"
check "replay asks for --policy" refuses "$tmp/a.txt:1: 'a text of no great length, again and aga' outside a trace: of a log ask with --policy" replay "$tmp/a.txt"
check "options of --simulate" refuses "--steps, --seeds, --walk and --seed belong to --simulate" replay --policy pytorch --steps 3 "$tmp/a.txt"
check "rows are told apart in every part of a table" sh -c "COLUMNS=80 '$gs' replay --simulate --steps 100 --seeds 1 --walk 10 |
    grep -qE '^megatron +0.01 +2\^4  attribute +[0-9.-]+ +'"
if command -v script >/dev/null && script -qec true /dev/null >/dev/null 2>&1; then
    silent() { [ -z "$(TERM=xterm script -qec "$1" /dev/null </dev/null)" ]; }
    check "train -q draws no bar" silent "'$gs' train -q --data '$tmp/rows.csv' --steps 2 --no-save --report '$tmp/q.html'"
    check "compare -q draws none" silent "'$gs' compare -q --data '$tmp/rows.csv' --steps 2 --runs fp32 --output '$tmp/q'"
else
    skip "-q on a terminal" "there is no script(1)"
fi
finish
