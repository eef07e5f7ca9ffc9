#!/bin/sh
# Writes the library as one pair of files, to drop into a build: amalgamate.sh [FOLDER].
#
#   gradscale.h    the public headers of base, num, kernel (all but gemm.h), scaler and optim
#   gradscale.c    their sources and private headers; needs libc, libm and threads. Matrix products
#                  and row kernels, which only the engine uses, stay out.
#   README.md      how to use them: doc/amalgamation.md
#
# What is private to a file gets the file's name as a suffix where another file uses the same word.
# Strings, comments and members (after . or ->) are left alone.
#
# gradscale.c compiles as C++, too (C++17 with gcc and clang): an #ifdef at its top maps the words that differ,
# and the conversions from void * that C writes without a cast get one here, so that the sources need none.
out=${1:-dist}
cd "$(dirname "$0")/.." || exit 2
mkdir -p "$out" || exit 1
version=$(sed -n 's/^#define GS_VERSION_M[AI][JN]OR *//p; s/^#define GS_VERSION_PATCH *//p' include/gradscale/base.h |
    paste -sd.)
layers="base num kernel scaler optim"
public="base num context tensor exponents scaler optim"
cp doc/amalgamation.md "$out/README.md" || exit 1

{
    echo "/* gradscale $version in one pair of files, made by \`make amalgamation\`: compile gradscale.c"
    echo " * with your own, and link with -lm -pthread. */"
    for header in $public; do
        sed '/^#include "gradscale\//d' "include/gradscale/$header.h"
    done
} >"$out/gradscale.h"

engine='^src/kernel/(rows/|gemm/|int8/|simd/(vec|math|tally)\.h)'
files= headers=$(printf 'include/gradscale/%s.h ' $public)
for layer in $layers; do
    files="$files $(find src/$layer -name '*.c' | grep -vE "$engine" | LC_ALL=C sort)"
    headers="$headers $(find src/$layer -name '*.h' | grep -vE "$engine" | LC_ALL=C sort)"
done

# Atomics by another name, and intrinsics that take a void *.
as_cxx='#ifdef __cplusplus
#include <atomic>
using std::atomic_bool;
using std::atomic_flag;
using std::atomic_size_t;
using std::atomic_uint;
using std::atomic_ullong;
using std::memory_order_relaxed;
#define _Static_assert static_assert
#define _Alignas alignas
#define restrict __restrict
#if defined(__x86_64__)
#include <immintrin.h>
#define _mm_loadu_si128(p) _mm_loadu_si128((const __m128i *)(p))
#define _mm256_loadu_si256(p) _mm256_loadu_si256((const __m256i *)(p))
#define _mm256_storeu_si256(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define _mm256_stream_si256(p, v) _mm256_stream_si256((__m256i *)(p), v)
#define _mm512_stream_si512(p, v) _mm512_stream_si512((__m512i *)(p), v)
#endif
/* Designated initializers, compound literals and zero for the members that are not named are C; both compilers
 * take them as extensions of C++. */
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Wmissing-braces"
#pragma GCC diagnostic ignored "-Wc99-designator"
#else /* the intrinsics of g++ 12 begin with values that are not set (GCC bug 105593) */
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#if __cplusplus < 202002L && __GNUC__ >= 12
#pragma GCC diagnostic ignored "-Wc++20-extensions"
#endif
#endif
#else
#include <stdatomic.h>
#endif'

awk -v version="$version" -v as_cxx="$as_cxx" -v headers="$headers" -v engine="$engine" '
# ---- names of a file: what stands in its first column ----

function note(file, name) {
    if (name ~ /^gsi_|^gs_|^GSI_|^GS_|^X$/ || (file, name) in owned)
        return
    owned[file, name] = 1
    names[file] = names[file] " " name
}

function note_words(file, line,    word) {
    while (match(line, /[A-Za-z_][A-Za-z0-9_]*/)) {
        word = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (!((file, word) in said)) {
            said[file, word] = 1
            users[word]++
        }
    }
}

function note_enumerators(file, text,    parts, n, i) {
    sub(/^[^{]*\{/, "", text)
    sub(/\}.*/, "", text)
    gsub(/\/\*[^*]*\*\//, "", text)
    n = split(text, parts, ",")
    for (i = 1; i <= n; i++)
        if (match(parts[i], /[A-Za-z_][A-Za-z0-9_]*/))
            note(file, substr(parts[i], RSTART, RLENGTH))
}

function collect(file,    line, text, inside) {
    inside = ""
    while ((getline line <file) > 0) {
        lines[file]++
        note_words(file, line)
        gsub(/ __attribute__\(\([a-z_]*(\([^)]*\))?\)\)/, "", line)
        if (inside != "") { # an enum over several lines
            inside = inside " " line
            if (line ~ /\}/) {
                note_enumerators(file, inside)
                inside = ""
            }
        }
        text = line
        if (line ~ /^#define /) {
            sub(/^#define /, "", text)
            sub(/[^A-Za-z0-9_].*/, "", text)
            note(file, text)
        } else if (line ~ /^(typedef )?enum/ && line ~ /\{/) {
            if (line ~ /\}/)
                note_enumerators(file, line)
            else
                inside = line
        }
        if (line ~ /^typedef (struct|enum|union) [a-z_0-9]+/ || line ~ /^(struct|enum) [a-z_0-9]+ \{/) {
            sub(/^typedef /, "", text)
            split(text, word, " ")
            note(file, word[2])
        } else if (line ~ /^\} *[a-z_0-9]+(\[[^]]*\])*( =|;)/) {
            sub(/^\} */, "", text)
            sub(/[^a-z_0-9].*/, "", text)
            note(file, text)
        } else if (line ~ /^typedef [^({]*;/) {
            sub(/;.*/, "", text)
            sub(/.* /, "", text)
            note(file, text)
        } else if (line ~ /^typedef [^(]*\(/ || line ~ /^(static|INLINE|TARGET static|LOOP)[^=;(]*\(/) {
            if (line ~ /^static .*\(\*const [a-z_]+\[/) {
                sub(/.*\(\*const /, "", text)
                sub(/\[.*/, "", text)
            } else {
                sub(/\(.*/, "", text)
                sub(/.*[ *]/, "", text)
            }
            note(file, text)
        } else if (line ~ /^static [^(]*(=|;|\{|,)/) {
            sub(/ *(=|;|\[).*/, "", text)
            sub(/.*[ *]/, "", text)
            if (text ~ /^[A-Za-z_]/)
                note(file, text)
        }
    }
    close(file)
}

# ---- renaming ----

function suffix(file) {
    sub(/^src\//, "", file)
    sub(/\.[ch]$/, "", file)
    gsub(/[^A-Za-z0-9]/, "_", file)
    return file
}

# Words outside of strings and comments; `comment` and `members` live on from line to line. Of the
# lines of a struct only the types are renamed, and the lengths of arrays.
function rename(line,    result, before, word) {
    if (line ~ /^#include/)
        return line
    result = ""
    while (line != "") {
        if (comment) {
            if (!match(line, /\*\//))
                return result line
            result = result substr(line, 1, RSTART + 1)
            line = substr(line, RSTART + 2)
            comment = 0
        } else if (match(line, /^\/\*/)) {
            comment = 1
            result = result "/*"
            line = substr(line, 3)
        } else if (match(line, /^"([^"\\]|\\.)*"/) || match(line, /^\047([^\047\\]|\\.)*\047/) ||
                   match(line, /^[0-9][A-Za-z0-9_.]*/)) {
            result = result substr(line, 1, RLENGTH)
            line = substr(line, RLENGTH + 1)
        } else if (match(line, /^[A-Za-z_][A-Za-z0-9_]*/)) {
            word = substr(line, 1, RLENGTH)
            before = result
            sub(/ *$/, "", before)
            line = substr(line, RLENGTH + 1)
            if (word in renamed && before !~ /(\.|->)$/ &&
                (!members || line ~ /^ *[A-Za-z_*]/ || before ~ /\[$/))
                word = renamed[word]
            result = result word
        } else {
            result = result substr(line, 1, 1)
            line = substr(line, 2)
        }
    }
    return result
}

# A pointer that begins or becomes what a void * holds: C++ wants the cast. On another pointer it changes
# nothing. Not before a condition, whose first operand is none.
function cast(line,    type, at) {
    if (line ~ /[?]|&&|\|\|/)
        return line
    if (match(line, /^ *(const |struct |unsigned )*[A-Za-z_0-9]+ \*+(const )?[a-z_]+ = ([a-z_]|\(void \*\))/)) {
        at = index(line, " = ")
        type = substr(line, 1, at - 1)
        sub(/^ */, "", type)
        sub(/[a-z_]+$/, "", type)
        sub(/const $/, "", type)
        return substr(line, 1, at + 2) "(" type ")" substr(line, at + 3)
    }
    if (match(line, /^ +[a-z_][a-z_.>-]* = (gsi_new|gsi_arena_new|memchr)\(/)) {
        at = index(line, " = ")
        type = substr(line, 1, at - 1)
        sub(/^ */, "", type)
        return substr(line, 1, at + 2) "(__typeof__(" type "))" substr(line, at + 3)
    }
    return line
}

# The names of a template become those of the file that includes it.
function take_names(file, for_file,    list, n, i) {
    n = split(names[file], list, " ")
    for (i = 1; i <= n; i++)
        if (users[list[i]] > 1 || file in templates)
            renamed[list[i]] = list[i] "_" suffix(file in templates ? for_file : file)
}

# The names of its own private headers hold in a file, too, and those of what they include.
function take_all_names(file, for_file,    line, header) {
    take_names(file, for_file)
    while ((getline line <file) > 0)
        if (line ~ /^#include "/ && line !~ /"gradscale\//) {
            header = line
            sub(/^#include "/, "src/", header)
            sub(/".*/, "", header)
            if (header in lines)
                take_all_names(header, for_file)
        }
    close(file)
}

# Headers that are shared keep their names. Templates are written wherever they are included.
function emit(file,    line, header) {
    if (file in done && !(file in templates))
        return
    done[file] = 1
    printf "\n/* ---- %s ---- */\n\n", file
    comment = members = 0
    while ((getline line <file) > 0) {
        if (line ~ /^#include "gradscale\//)
            continue
        if (line ~ /^#include "/) {
            header = line
            sub(/^#include "/, "src/", header)
            sub(/".*/, "", header)
            if (header !~ engine)
                emit(header)
            continue
        }
        if (line ~ /^#include <stdatomic\.h>/)
            continue
        if (line ~ /^}/)
            members = 0
        print cast(file in lines ? rename(line) : line)
        if (line ~ /^[a-z].*struct.*\{$/ && line !~ /\(/)
            members = 1
    }
    close(file)
}

BEGIN {
    for (i = 1; i < ARGC; i++)
        collect(ARGV[i])
    n = split(headers, list, " ")
    for (i = 1; i <= n; i++) {
        if (list[i] ~ /tmpl.*\.h$/)
            templates[list[i]]
        if (list[i] ~ /avx|neon|tmpl.*\.h$/) { # of one instruction set: private to its files
            collect(list[i])
        } else {
            while ((getline line <list[i]) > 0)
                note_words(list[i], line)
            close(list[i])
        }
    }
    printf "/* gradscale %s: see gradscale.h. */\n", version
    print "#if !defined(_GNU_SOURCE) && defined(__linux__)\n#define _GNU_SOURCE\n#endif"
    print "#if !defined(_DARWIN_C_SOURCE) && defined(__APPLE__)\n#define _DARWIN_C_SOURCE\n#endif"
    print "#if !defined(__BSD_VISIBLE) && defined(__FreeBSD__)\n#define __BSD_VISIBLE 1\n#endif"
    print "#ifndef _POSIX_C_SOURCE\n#define _POSIX_C_SOURCE 200809L\n#endif"
    print "/* One rounding per operation, whatever the rest of the program is built with. */"
    print "#if defined(__clang__) && defined(__FAST_MATH__)"
    print "#error clang fuses operations under -ffast-math: add -fno-fast-math -ffp-contract=off"
    print "#elif defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n#elif defined(__GNUC__)"
    print "#pragma GCC optimize(\"no-fast-math\", \"fp-contract=off\")\n#endif"
    print "#define GSI_WITHOUT_ENGINE\n#include \"gradscale.h\""
    print as_cxx
    for (i = 1; i < ARGC; i++) {
        split("", renamed)
        take_all_names(ARGV[i], ARGV[i])
        emit(ARGV[i])
    }
    exit 0
}' $files >"$out/gradscale.c"
