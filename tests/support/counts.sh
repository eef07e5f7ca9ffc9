# The form of results, for those that read them (run.sh, .ci/step.sh). A suite ends with the line
#     N passed, N failed[, N skipped]
# and names each skip before it, on a line "SKIPPED WHAT: WHY"; a suite of suites indents those.

# counts <TEXT: "PASSED FAILED SKIPPED" for every closing line in it
counts()
{
    sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\1 \2 0/p
        s/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed, \([0-9][0-9]*\) skipped$/\1 \2 \3/p'
}

# set_counts [PASSED FAILED SKIPPED]: $p, $f and $s, 0 without them
set_counts() { p=${1:-0} f=${2:-0} s=${3:-0}; }

# skips <TEXT: "WHAT: WHY", one per line
skips() { sed -n 's/^ *SKIPPED //p'; }

# closing PASSED FAILED SKIPPED: a closing line; no word of skips if there are none
closing()
{
    echo "$1 passed, $2 failed$([ "$3" -eq 0 ] || echo ", $3 skipped")"
}
