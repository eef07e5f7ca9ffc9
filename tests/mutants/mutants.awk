# Lists the mechanical mutants of C sources, a line each: FILE \t LINE \t mutated line. One operator,
# constant, connective or statement differs. Comments, strings and preprocessor lines are left alone.

# The line with everything that is not code blanked out, columns kept.
function code_of(line,    out, i, c, two) {
    out = ""
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        two = substr(line, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; out = out " "; i++ }
            out = out " "
        } else if (quote != "") {
            if (c == "\\") { out = out " "; i++ }
            else if (c == quote) quote = ""
            out = out " "
        } else if (two == "/*") { in_comment = 1; out = out "  "; i++ }
        else if (c == "\"" || c == "'") { quote = c; out = out " " }
        else out = out c
    }
    return out
}

function mutant(at, len, with) {
    printf "%s\t%d\t%s\n", FILENAME, FNR, substr($0, 1, at - 1) with substr($0, at + len)
}

FNR == 1 { in_comment = 0; quote = ""; complete = 1; in_macro = 0 }

{
    code = code_of($0)
    if (in_macro || code ~ /^[ \t]*#/) {
        in_macro = code ~ /\\$/
        next
    }
    if (code ~ /^[ \t]*$/)
        next

    # comparisons and connectives; the longest match keeps shifts and arrows out
    rest = code
    base = 0
    while (match(rest, /<<=?|>>=?|->|<=|>=|==|!=|&&|\|\||<|>/)) {
        op = substr(rest, RSTART, RLENGTH)
        at = base + RSTART
        if (op == "<") { mutant(at, 1, "<="); mutant(at, 1, ">") }
        if (op == ">") { mutant(at, 1, ">="); mutant(at, 1, "<") }
        if (op == "<=") { mutant(at, 2, "<"); mutant(at, 2, "==") }
        if (op == ">=") { mutant(at, 2, ">"); mutant(at, 2, "==") }
        if (op == "==") mutant(at, 2, "!=")
        if (op == "!=") mutant(at, 2, "==")
        if (op == "&&") mutant(at, 2, "||")
        if (op == "||") mutant(at, 2, "&&")
        base += RSTART + RLENGTH - 1
        rest = substr(code, base + 1)
    }

    # constants, + 1 and - 1
    rest = code
    base = 0
    while (match(rest, /(^|[^A-Za-z0-9_.])(0[xX][0-9A-Fa-f]+|[0-9]+)[uUlL]*/)) {
        text = substr(rest, RSTART, RLENGTH)
        at = base + RSTART
        len = RLENGTH
        if (text !~ /^[0-9]/) { at++; len--; text = substr(text, 2) }
        follows = substr(code, at + len, 1)
        if (follows !~ /[.A-Za-z0-9_]/) {
            mutant(at, len, "(" text " + 1)")
            mutant(at, len, "(" text " - 1)")
        }
        base += RSTART + RLENGTH - 1
        rest = substr(code, base + 1)
    }

    # a statement of one line that declares nothing and jumps nowhere
    if (complete && code ~ /^ +[^{}]*;[ \t]*$/ &&
        code !~ /^ *(const|static|int|unsigned|size_t|float|double|char|bool|void|struct) / &&
        code !~ /^ *(u?int[0-9]+_t|gsi?_[a-z0-9_]+|[a-z]+_[a-z]+) \*?[a-z]/ &&
        code !~ /^ *(return|goto|break|continue|for|while|else|case|default)[ ;:(]/) {
        match($0, /[^ ]/)
        mutant(RSTART, length($0), ";")
    }
    complete = code ~ /[;{})][ \t]*$/ || code ~ /else[ \t]*$/
}
