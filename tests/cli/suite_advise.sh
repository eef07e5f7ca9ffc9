#!/bin/sh
# gradscale advise: what it prints, its exit codes, and that bad files cost one error message.
. tests/support/shell.sh
program=$1
data=tests/data
unset LC_ALL LC_CTYPE NO_COLOR
LANG=C.UTF-8 TERM=xterm
export LANG TERM

# same FILE COMMAND...: prints exactly what FILE holds. GOLDEN=1 writes the files anew.
same()
{
    golden=$1
    shift
    "$@" >"$tmp/got" || return 1
    if [ -n "${GOLDEN:-}" ]; then
        cp "$tmp/got" "$golden"
    fi
    diff "$golden" "$tmp/got"
}

# But for the version, which is to change.
json() { "$program" advise --json "$@" | grep -v '"version"'; }

# refuses WORDS COMMAND...: exit code 2, nothing on stdout, one line on stderr with these words.
refuses()
{
    words=$1
    shift
    "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
    cat "$tmp/err"
    [ $code -eq 2 ] && [ ! -s "$tmp/out" ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] &&
        grep -qF -- "$words" "$tmp/err"
}

for name in grads nonfinite zeros; do
    check "text of $name" same $data/$name.txt "$program" advise --ascii --per-tensor \
        $data/$name.safetensors
    check "JSON of $name" same $data/$name.json json $data/$name.safetensors
done
check "Unicode" same $data/grads-unicode.txt "$program" advise $data/grads.safetensors
check "all kinds of files" same $data/kinds.txt "$program" advise --ascii --margin 0 --top 4 \
    $data/f4.npy $data/f4_fortran.npy $data/f8_big_endian.npy $data/f2_scalar.npy $data/i8.npy \
    $data/stored.npz $data/deflated.npz

for name in large wide small fine beyond; do
    check "verdict $name" same $data/verdict_$name.txt "$program" advise --ascii \
        $data/verdict_$name.npy
done

# a dump at a scale: the same numbers, in true units
member() { sed -n "s/^ *\"$1\": \(.*[^,]\),*\$/\1/p" "$2" | head -n 1; }
json $data/grads.safetensors >"$tmp/plain.json"
json --scale 1024 $data/grads.safetensors >"$tmp/scaled.json"
check "--scale: its limit is higher by as much" test "$(member largest_safe_log2_scale "$tmp/scaled.json")" -eq \
    $(($(member largest_safe_log2_scale "$tmp/plain.json") + 10))
check "--scale: its exponents are lower" test "$(member first_exponent "$tmp/scaled.json")" -eq \
    $(($(member first_exponent "$tmp/plain.json") - 10))
check "--scale: is in the JSON" test "$(member dump_scale "$tmp/scaled.json")" = 1024
check "--scale 0" refuses "--scale must be from 2^-60 to 2^60, not 0" "$program" advise --scale 0 $data/f4.npy

# zeros of an f16 dump may be gradients that are gone
{ printf '\223NUMPY\001\000\166\000'; printf "%-117s\n" "{'descr': '<f2', 'fortran_order': False, 'shape': (4,), }"
  printf '\000\000\000\000\000\074\000\000'; } >"$tmp/half.npy"
"$program" advise --ascii "$tmp/half.npy" >"$tmp/got"
check "zeros of f16 may be losses" grep -q '^75.0% of the f16 values are zero, and some of them may be gradients' "$tmp/got"
json --scale 65536 "$tmp/half.npy" >"$tmp/got"
check "at a scale, too" grep -q '"zero_sentence": "75.0% .* below 4.55e-13 (2^-25 / 65536)' "$tmp/got"
"$program" advise --ascii $data/grads.safetensors >"$tmp/got"
check "zeros of f32 are zeros" not grep -q "may be gradients" "$tmp/got"
check "the table fits 80 columns" not sh -c "sed -n '/^scale/,/^ *2^24/p' '$tmp/got' | grep '.\{81\}'"
check "the recommended row is marked" test "$(grep -c '< use$' "$tmp/got")" -eq 1

# the same with one thread and the reference kernels
for how in "--threads 1" "--threads 3" "--cpu ref"; do
    check "JSON with $how" same $data/grads.json json $how $data/grads.safetensors
done

# a file of many blocks, full of every kind of value: threads and kernels change nothing
i=0
while [ $i -lt 200 ]; do
    cat $data/grads.safetensors
    i=$((i + 1))
done >"$tmp/bytes" # 2761600
header='{"a":{"dtype":"F32","shape":[100000],"data_offsets":[0,400000]},"b":{"dtype":"F16","shape":[500,2000],"data_offsets":[400000,2400000]},"c":{"dtype":"BF16","shape":[180800],"data_offsets":[2400000,2761600]}}   '
{ printf '\321\0\0\0\0\0\0\0'; printf '%s' "$header"; cat "$tmp/bytes"; } >"$tmp/blocks.safetensors"
json --threads 1 --cpu ref "$tmp/blocks.safetensors" >"$tmp/blocks.json"
check "a file of many blocks" grep -q '"elements": 1280800' "$tmp/blocks.json"
for how in "--threads 1" "--threads 2" "--threads 5"; do
    check "blocks with $how" same "$tmp/blocks.json" json $how "$tmp/blocks.safetensors"
done

# plain characters where Unicode is not wanted
plain() { ! LC_ALL=C grep -q '[^ -~]' "$tmp/got"; }
for how in "LANG=C" "LC_ALL=POSIX" "NO_COLOR=1"; do
    env $how "$program" advise $data/grads.safetensors >"$tmp/got"
    check "ASCII with $how" plain
done

# the report
report()
{
    "$program" advise --report "$tmp/r.html" "$@" >/dev/null && [ -s "$tmp/r.html" ] &&
        [ "$(ls "$tmp" | grep -c 'r.html')" -eq 1 ] && grep -q '</html>' "$tmp/r.html" &&
        ! grep -qE 'src=|href="[^#d]|https?:|@import|url\(' "$tmp/r.html"
}
check "report" report $data/grads.safetensors
for part in '<svg' '<title' '<desc' 'prefers-color-scheme:dark' 'name="viewport"' '<table>' fc1.weight; do
    check "report has $part" grep -q "$part" "$tmp/r.html"
done
check "report of zeros" report $data/zeros.safetensors
check "report of Inf and NaN" report $data/nonfinite.safetensors
check "it names the first" grep -q 'layer4.weight\[77\]' "$tmp/r.html"
check "report to nowhere, and nothing printed" refuses "--report" "$program" advise \
    --report "$tmp/no/r.html" $data/zeros.safetensors

# names from files are not to be trusted
header='{"<b>&\u001b[31m":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
{ printf '\103\0\0\0\0\0\0\0'; printf '%s' "$header"; printf '\0\0\200\077'; } >"$tmp/evil.safetensors"
check "a hostile name" report "$tmp/evil.safetensors"
check "is escaped" grep -qF '&lt;b&gt;&amp;?[31m' "$tmp/r.html"
"$program" advise --ascii "$tmp/evil.safetensors" >"$tmp/got" 2>&1
check "and cleaned" plain
header='{"a\u009b31m\u202eb":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
{ printf '\106\0\0\0\0\0\0\0'; printf '%s' "$header"; printf '\0\0\200\077'; } >"$tmp/evil.safetensors"
check "controls beyond ASCII" report "$tmp/evil.safetensors"
check "are none in the page" grep -qF 'a?31m?b' "$tmp/r.html"
"$program" advise --ascii "$tmp/evil.safetensors" >"$tmp/got" 2>&1
check "nor in the terminal" plain

# bad input
printf 'PK\003\004\024\000archive/data.pkl\200\002' >"$tmp/x.pt"
check "a file of torch.save" refuses "is a file of torch.save, which only Python can read: save the gradients with \
safetensors.torch.save_file" "$program" advise "$tmp/x.pt"
check "no file" refuses "FILE" "$program" advise
check "missing" refuses "no.npy: cannot be opened" "$program" advise "$tmp/no.npy"
cp $data/zeros.safetensors "$tmp/kept.safetensors"
check "report onto the input" refuses "would overwrite" "$program" advise \
    --report "$tmp/./kept.safetensors" "$tmp/kept.safetensors"
check "which is kept" cmp -s $data/zeros.safetensors "$tmp/kept.safetensors"
check "directory" refuses "is a directory" "$program" advise $data
check "not one" refuses "is not a .npy" "$program" advise tests/support/shell.sh
check "integers only" refuses "no tensor of f16" "$program" advise $data/i8.npy
check "a good and a bad one" refuses "is not a .npy" "$program" advise $data/f4.npy tests/support/shell.sh
check "bad margin" refuses "--margin" "$program" advise --margin 16 $data/f4.npy
: >"$tmp/empty.npy"
check "empty" refuses "is empty" "$program" advise "$tmp/empty.npy"
mkfifo "$tmp/pipe.npy"
check "pipe" refuses "is a pipe" "$program" advise "$tmp/pipe.npy"
for n in 7 8 100 400 13807; do
    head -c $n $data/grads.safetensors >"$tmp/cut.safetensors"
    check "cut to $n bytes" refuses "cut.safetensors" "$program" advise "$tmp/cut.safetensors"
done
{ cat $data/grads.safetensors; echo; } >"$tmp/long.safetensors"
check "a byte too many" refuses "belong to no tensor" "$program" advise "$tmp/long.safetensors"
cp $data/deflated.npz "$tmp/bad.npz"
printf 'X' | dd of="$tmp/bad.npz" bs=1 seek=80 conv=notrunc 2>/dev/null
check "damaged npz" refuses "bad.npz" "$program" advise "$tmp/bad.npz"
finish
