#!/bin/sh
# soak.sh PROGRAM MINUTES [FOLDER]: train, kill, resume and report, over and over, in little memory and with a log that
# grows. A round is 4 s of training, every 16th 40 s, and a report of the whole log. It has a line in FOLDER/rounds:
#     number, ms per step (median), kB and descriptors after 4 s, and at the end, bytes of the log, ms of the report
# At the end the last quarter of the rounds is compared with the first:
#     memory         the median grows by less than 10% and 2 MB; so does that of each round after its first 4 s
#     descriptors    the same, by at most 1: a checkpoint may be under way
#     step time      of 100 rounds and more: the lower quartile grows by less than 30%. On a busy machine the fastest
#                    rounds are those that were not disturbed, and a program that slows down slows those too
#     the log        has grown, and has every step; those after the last checkpoint before a kill, twice
# A FOLDER that has rounds gets more of them; with 0 MINUTES they are only judged.
program=$(realpath "$1") minutes=$2 folder=${3:-$(mktemp -d)}
mkdir -p "$folder" && cp README.md "$folder/text" && cd "$folder" || exit 1
ulimit -v 500000 # kB, of the program and of its report
job="--model gpt --layers 2 --width 32 --heads 2 --context 32 --data text --batch 4 --threads 1 --valid-items 8
    --steps 100000000 --schedule constant --warmup 0 --valid-every 200 --checkpoint-every 50 --telemetry-every 100"
end=$(($(date +%s) + 60 * minutes))
touch rounds errors
round=$(wc -l <rounds)
now() { echo "$(awk '/^VmRSS/ { print $2 }' /proc/$pid/status 2>/dev/null) $(ls /proc/$pid/fd 2>/dev/null | wc -l)"; }
while [ "$(date +%s)" -lt $end ]; do
    round=$((round + 1))
    if [ -e run/job.conf ]; then
        "$program" train --resume --checkpoint run --quiet 2>>errors &
    else
        "$program" train $job --checkpoint run --log run/log --csv run/csv --quiet 2>>errors &
    fi
    pid=$!
    sleep 4
    early=$(now)
    [ $((round % 16)) != 8 ] || sleep 36
    late=$(now)
    case $((round % 3)) in 0) signal=TERM ;; *) signal=KILL ;; esac
    kill -$signal $pid 2>/dev/null
    wait $pid 2>/dev/null
    code=$?
    case $code in 137 | 143) ;; *) echo "round $round: exit code $code" && cat errors && exit 1 ;; esac
    start=$(date +%s%N)
    "$program" report run/log --output report.html >/dev/null || exit 1
    took=$((($(date +%s%N) - start) / 1000000))
    ms=$(tail -n 200 run/log | sed -n 's/^{"step":.*"seconds":\([0-9.e-]*\).*/\1/p' | sort -g |
        awk '{ x[NR] = $1 } END { print 1000 * x[int((NR + 1) / 2)] }')
    echo "$round $ms $early $late $(wc -c <run/log) $took" >>rounds
done
[ ! -s errors ] || { cat errors; exit 1; }
awk '
function at(x, from, to, share,    i, j, k, y, t) { # that share of x[from .. to] is not above
    for (i = from; i <= to; i++) {
        t = x[i]
        for (j = k++; j > 0 && y[j] > t; j--) y[j + 1] = y[j]
        y[j + 1] = t
    }
    return y[int((k - 1) * share) + 1]
}
function line(name, from, to) {
    printf "%s: %.3f ms per step (lower quartile %.3f), %d kB, %d descriptors, report in %.2f s\n",
        name, at(ms, from, to, 0.5), at(ms, from, to, 0.25), at(late, from, to, 0.5), at(fds, from, to, 0.5),
        at(report, from, to, 0.5) / 1000
}
function must(holds, what) { if (!holds) { print "it grows: " what; bad = 1 } }
NF != 8 { print "round " $1 " is not whole"; bad = 1 }
{ n++; ms[n] = $2; late[n] = $5; fds[n] = $6; bytes[n] = $7; report[n] = $8 }
{ must($5 < 1.1 * $3 + 2000, "memory, within round " $1) }
{ must($6 <= $4 + 1, "descriptors, within round " $1) }
END {
    if (n < 4) { print n + 0 " rounds are too few"; exit 1 }
    q = int((n + 3) / 4); last = n - q + 1
    printf "%d rounds, log of %.1f MB\n", n, bytes[n] / 1e6
    line("first quarter", 1, q)
    line("last quarter ", last, n)
    must(at(late, last, n, 0.5) < 1.1 * at(late, 1, q, 0.5) + 2000, "memory")
    must(at(fds, last, n, 0.5) <= at(fds, 1, q, 0.5) + 1, "descriptors")
    if (n >= 100) must(at(ms, last, n, 0.25) < 1.3 * at(ms, 1, q, 0.25), "step time")
    if (bytes[n] <= bytes[1]) { print "the log has not grown"; bad = 1 }
    exit bad
}' rounds || exit 1
[ ! -e run/log ] || sed -n 's/^{"step":\([0-9]*\),.*/\1/p' run/log |
    awk '$1 > last + 1 { print "step " $1 " follows " last + 0; bad = 1; exit } { last = $1 } END { exit bad }'
