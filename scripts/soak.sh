#!/bin/sh
# soak.sh PROGRAM MINUTES [FOLDER]: train, kill, resume and report, over and over, in little memory and with a log that
# grows. Every round has a line: how long a step takes, the memory and the descriptors of the program in its middle.
# They must not grow: the last quarter is compared with the first. A FOLDER that has rounds gets more of them.
program=$(realpath "$1") minutes=$2 folder=${3:-$(mktemp -d)}
mkdir -p "$folder" && cp README.md "$folder/text" && cd "$folder" || exit 1
ulimit -v 2000000
job="--model gpt --layers 2 --width 32 --heads 2 --context 32 --data text --batch 4 --threads 1 --valid-items 8
    --steps 100000000 --schedule constant --warmup 0 --valid-every 200 --checkpoint-every 50 --telemetry-every 100"
end=$(($(date +%s) + 60 * minutes))
touch rounds
round=$(wc -l <rounds)
while [ "$(date +%s)" -lt $end ]; do
    round=$((round + 1))
    if [ -e run/job.conf ]; then
        "$program" train --resume --checkpoint run --quiet 2>>errors &
    else
        "$program" train $job --checkpoint run --log run/log --csv run/csv --quiet 2>>errors &
    fi
    pid=$!
    sleep 4
    rss=$(awk '/^VmRSS/ { print $2 }' /proc/$pid/status 2>/dev/null)
    fds=$(ls /proc/$pid/fd 2>/dev/null | wc -l)
    case $((round % 3)) in 0) signal=TERM ;; *) signal=KILL ;; esac
    kill -$signal $pid 2>/dev/null
    wait $pid 2>/dev/null
    code=$?
    case $code in 137 | 143) ;; *) echo "round $round: exit code $code" && cat errors && exit 1 ;; esac
    "$program" report run/log --output report.html >/dev/null || exit 1
    ms=$(tail -n 200 run/log | sed -n 's/^{"step":.*"seconds":\([0-9.e-]*\).*/\1/p' | sort -g | awk '{ x[NR] = $1 } END { print 1000 * x[int((NR + 1) / 2)] }')
    echo "$round $ms ${rss:-0} $fds $(wc -c <run/log)" >>rounds
done
[ ! -s errors ] || { cat errors; exit 1; }
awk '{ n++; ms[n] = $2; rss[n] = $3; fds[n] = $4; bytes = $5 }
    function middle(x, from, to,   i, k, y, t) { k = 0; for (i = from; i <= to; i++) y[++k] = x[i]
        for (i = 2; i <= k; i++) { t = y[i]; for (j = i - 1; j > 0 && y[j] > t; j--) y[j + 1] = y[j]; y[j + 1] = t }
        return y[int((k + 1) / 2)] }
    END { q = int((n + 3) / 4)
        printf "%d rounds, log of %.1f MB\n", n, bytes / 1e6
        printf "first quarter: %.2f ms per step, %d kB, %d descriptors\n", middle(ms, 1, q), middle(rss, 1, q), middle(fds, 1, q)
        printf "last quarter:  %.2f ms per step, %d kB, %d descriptors\n", middle(ms, n - q + 1, n), middle(rss, n - q + 1, n), middle(fds, n - q + 1, n)
        exit !(middle(rss, n - q + 1, n) < 1.1 * middle(rss, 1, q) + 2000 && middle(fds, n - q + 1, n) <= middle(fds, 1, q)) }' rounds
