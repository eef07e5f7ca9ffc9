#!/bin/sh
# The reports in a browser, headless Chromium (deps.sh browser): no error in its console, nothing
# wider than the screen, pictures in light, dark and at the width of a phone. They stay in
# BUILD/browser to be looked at. Without Chromium, or with a sanitizer, the suite checks the pages only.
. tests/support/shell.sh
program=$1
shots=${BUILD:-$tmp}/browser
mkdir -p "$shots"

log() { set -- "$@" && out=$1 && shift && awk "$@" -f tests/support/log.awk /dev/null >"$tmp/$out.jsonl"; }
log fp32 -v name=fp32 -v precision=fp32 -v steps=150 -v rate=900
log none -v name="fp16 none" -v precision=fp16 -v steps=150 -v underflow=0.7 -v loss=1
log pytorch -v name="fp16 pytorch" -v precision=fp16 -v scaler=pytorch -v steps=150 -v loss=0.1002 -v scale=12 -v skip=40
log headroom -v name="fp16 headroom with <a> & a name that is long, very_long_and_unbroken_for_a_phone" \
    -v precision=fp16 -v scaler=headroom -v steps=150 -v loss=0.0999 -v scale=15 -v again=50
log wide -v name="fp16 none" -v precision=fp16 -v steps=600 -v underflow=0.0001
check "a report of runs" "$program" report --output "$shots/report.html" --title "Browser test" \
    "$tmp/fp32.jsonl" "$tmp/none.jsonl" "$tmp/pytorch.jsonl" "$tmp/headroom.jsonl"
check "is well-formed" awk -f tests/support/html.awk "$shots/report.html"
"$program" advise --report "$shots/advise.html" tests/data/grads.safetensors >"$tmp/out"
check "and of gradients" awk -f tests/support/html.awk "$shots/advise.html"

chromium=$(command -v chromium || command -v chromium-browser)
why=
[ -n "$chromium" ] || why="Chromium is not installed (scripts/deps.sh browser)"
[ -z "${SAN:-}" ] || why="the pages are the same with a sanitizer"
if [ -n "$why" ]; then
    skip "in a browser" "$why"
    finish
    exit
fi

# browse PAGE OPTIONS...: stdout is the browser's, its console in $tmp/console.
browse()
{
    url=$1
    shift
    HOME=$tmp timeout -k 5 120 "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --hide-scrollbars --no-first-run --user-data-dir="$tmp/profile" --enable-logging=stderr --v=0 \
        "$@" "$url" 2>"$tmp/log"
    status=$?
    grep -E 'CONSOLE' "$tmp/log" >"$tmp/console"
    return $status
}

# silent PAGE OPTIONS...: it loads, and the console is empty.
silent() { browse "$@" >"$tmp/dom" && { cat "$tmp/console"; [ ! -s "$tmp/console" ]; }; }

# picture NAME PAGE WIDTH HEIGHT OPTIONS...: a PNG of that size.
picture()
{
    file=$shots/$1.png size=$3,$4
    rm -f "$file"
    html=$2
    shift 4
    silent "file://$html" --window-size=$size --screenshot="$file" "$@" || return 1
    printf '\211PNG' >"$tmp/magic"
    head -c 4 "$file" | cmp - "$tmp/magic" && [ "$(wc -c <"$file")" -gt 20000 ]
}

# Without an error that is made on purpose, "no error" says nothing.
echo '<script>console.error("made on purpose")</script>' >"$tmp/bad.html"
browse "file://$tmp/bad.html" --dump-dom >"$tmp/dom"
check "the console is heard" grep -q 'made on purpose' "$tmp/console"

dark="--blink-settings=preferredColorScheme=0"
case $shots in /*) ;; *) shots=$PWD/$shots ;; esac
for name in report advise; do
    check "$name, light" picture $name-light "$shots/$name.html" 1200 2400
    check "$name, dark" picture $name-dark "$shots/$name.html" 1200 2400 --force-dark-mode $dark
    check "$name, on a phone" picture $name-phone "$shots/$name.html" 390 2400
    check "dark differs from light" not cmp -s "$shots/$name-light.png" "$shots/$name-dark.png"
done
check "in print" silent "file://$shots/report.html" --print-to-pdf="$shots/report.pdf" --no-pdf-header-footer
check "a document" grep -q '^%PDF' "$shots/report.pdf"

# The page in a frame of a phone's width tells its own.
for name in report advise; do
    cat >"$tmp/frame.html" <<END
<!DOCTYPE html><body><iframe style="width:390px;height:800px;border:0" src="file://$shots/$name.html"></iframe>
<script>onload = () => { const d = document.querySelector("iframe").contentDocument.documentElement;
    document.title = "wide " + d.scrollWidth + " of " + d.clientWidth }</script>
END
    browse "file://$tmp/frame.html" --allow-file-access-from-files --dump-dom >"$tmp/dom"
    check "$name is no wider than a phone" grep -q '<title>wide 390 of 390</title>' "$tmp/dom"
done

# A run that diverged has the widest row.
sed 's/"status":"done"/"status":"diverged"/; s/"event":"valid",\("step":[0-9]*\),"loss":[0-9.e-]*/"event":"valid",\1,"loss":null/' \
    "$tmp/wide.jsonl" >"$tmp/diverged.jsonl"
check "a run that diverged" "$program" report --output "$tmp/diverged.html" "$tmp/diverged.jsonl"
check "says so in its row" grep -q ', diverged</td><td>not finite</td>' "$tmp/diverged.html"
cat >"$tmp/frame.html" <<END
<!DOCTYPE html><body><iframe style="width:1000px;height:800px;border:0" src="file://$tmp/diverged.html"></iframe>
<script>onload = () => { const d = document.querySelector("iframe").contentDocument.querySelector(".runs .scroll");
    document.title = d.scrollWidth > d.clientWidth ? "cut" : "whole" }</script>
END
browse "file://$tmp/frame.html" --allow-file-access-from-files --dump-dom >"$tmp/dom"
check "its table is whole at 1000 px" grep -q '<title>whole</title>' "$tmp/dom"
finish
