# For suites that run the program, which is their first argument: shell.sh, and
#
#   $gs                     its path, from any folder
#   run ARG...              runs it; leaves $tmp/out and $tmp/err
#   says CODE MESSAGE ARG...    it exits with CODE, and this is the one line on stderr
#   value KEY FILE          the first value of KEY in a file of JSON
#   small_images NAME N...  N images of 8 x 8 with labels 0..9, each class brighter than the one before it:
#                           $tmp/NAME-images-idx3-ubyte and its labels
. tests/support/shell.sh
gs=$1
case $gs in /*) ;; *) gs=$PWD/$gs ;; esac

run() { "$gs" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; }

says()
{
    want=$1 message=$2
    shift 2
    run "$@"
    code=$?
    sed "s|$tmp/||g" "$tmp/err" >"$tmp/said"
    echo "gradscale $*: exit code $code, wanted $want and: gradscale: $message"
    cat "$tmp/said"
    [ $code -eq "$want" ] && [ "$(cat "$tmp/said")" = "gradscale: $message" ]
}

value() { sed -n "s/.*\"$1\": *\([^,}]*\),*.*/\1/p" "$2" | head -1; }

small_images()
{
    python3 - "$tmp" "$@" <<'END'
import random, sys
random.seed(1)
folder, names, counts = sys.argv[1], sys.argv[2::2], sys.argv[3::2]
head = lambda *sizes: bytes([0, 0, 8, len(sizes)]) + b"".join(s.to_bytes(4, "big") for s in sizes)
for name, n in zip(names, map(int, counts)):
    labels = bytes(i % 10 for i in range(n))
    pixels = bytes(min(255, 20 * label + random.randrange(40)) for label in labels for _ in range(64))
    open(f"{folder}/{name}-images-idx3-ubyte", "wb").write(head(n, 8, 8) + pixels)
    open(f"{folder}/{name}-labels-idx1-ubyte", "wb").write(head(n) + labels)
END
}
