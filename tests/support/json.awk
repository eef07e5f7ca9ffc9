# Is the input JSON? Exit status 0 or 1. With -v lines=1 each line must be a value: JSON Lines.
function token(regex) {
    sub(/^[ \t\r\n]+/, "", text)
    if (!match(text, regex) || RSTART != 1)
        return 0
    text = substr(text, RLENGTH + 1)
    return 1
}
function is_string() {
    return token("^\"([^\"\\\\\001-\037]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F])*\"")
}
function is_list(end, keyed) {
    if (token("^" end))
        return 1
    do {
        if (keyed && !(is_string() && token("^:")))
            return 0
        if (!is_value())
            return 0
    } while (token("^,"))
    return token("^" end)
}
function is_value() {
    if (token("^\\{"))
        return is_list("}", 1)
    if (token("^\\["))
        return is_list("\\]", 0)
    return is_string() || token("^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?") ||
           token("^(true|false|null)")
}
function is_all() {
    return is_value() && (token("^$") || text == "")
}
lines { text = $0; if (!is_all()) bad = 1; next }
{ whole = whole $0 "\n" }
END { if (!lines) { text = whole; if (!is_all()) bad = 1 } exit bad }
