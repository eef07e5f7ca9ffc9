# Is the input a page as the program writes them? Exit status 0, or 1 and what is wrong, a line each.
# Every tag is closed in order, attributes are quoted, & begins an entity, ids are unique and those
# that are referred to are there, headings do not skip a level, an SVG that is an image has a title
# and a description, tables have headers; no script, and nothing from elsewhere.
BEGIN { RS = "<" }
function wrong(what) {
    if (++n <= 10)
        print "near tag " NR ": " what ": <" substr($0, 1, 100)
}
function entities(text) {
    gsub(/&(amp|lt|gt|quot|#39);/, "", text)
    if (text ~ /&/)
        wrong("& alone")
}
NR == 1 { next } # before the first tag
/^!DOCTYPE html>/ { next }
/^\// {
    name = substr($0, 2)
    sub(/>.*/, "", name)
    if (depth == 0 || open[depth] != name)
        wrong("closes " name " in " open[depth])
    if (name == "svg" && image[depth] && !(titled[depth] && described[depth]))
        wrong("an image without title and desc")
    if (name == "table" && !headed)
        wrong("a table without headers")
    depth--
    text = $0
    sub(/^[^>]*>/, "", text)
    entities(text)
    next
}
{
    if (!match($0, /^[a-z][a-z0-9]*([ \n]+[a-zA-Z][a-zA-Z0-9-]*="[^"]*")*\/?>/)) {
        wrong("not a tag")
        next
    }
    tag = substr($0, 1, RLENGTH)
    text = substr($0, RLENGTH + 1)
    entities(tag)
    if (text ~ />/ && tag !~ /^style/)
        wrong("> alone")
    name = tag
    sub(/[^a-z0-9].*/, "", name)
    if (name !~ /^style$/)
        entities(text)
    if (name ~ /^(script|iframe|img|object|embed|base|form)$/ || tag ~ / on[a-z]+="/)
        wrong("it may run or load something")
    if (tag ~ /(src|href)="/ && tag !~ /href="(#|data:,)/)
        wrong("it points elsewhere")
    if (name ~ /^h[1-6]$/) {
        level = substr(name, 2) + 0
        if (level > last + 1)
            wrong("h" level " after h" last)
        last = level
    }
    if (name == "table")
        headed = 0
    if (name == "th")
        headed = 1
    if (depth > 0 && open[depth] == "svg") {
        titled[depth] = titled[depth] || name == "title"
        described[depth] = described[depth] || name == "desc"
    }
    if (match(tag, / id="[^"]*"/)) {
        id = substr(tag, RSTART + 5, RLENGTH - 6)
        if (id in ids)
            wrong("twice the id " id)
        ids[id] = 1
    }
    if (match(tag, / aria-labelledby="[^"]*"/)) {
        count = split(substr(tag, RSTART + 18, RLENGTH - 19), list, " ")
        for (i = 1; i <= count; i++)
            meant[list[i]] = 1
    }
    if (tag !~ /\/>$/) {
        open[++depth] = name
        image[depth] = name == "svg" && tag ~ / role="img"/
        titled[depth] = described[depth] = 0
    }
}
END {
    if (depth != 0)
        wrong(open[depth] " is not closed")
    for (id in meant)
        if (!(id in ids))
            wrong("no id " id)
    if (NR < 20 || !("main" in ids))
        wrong("no page")
    exit n > 0
}
