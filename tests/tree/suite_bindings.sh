#!/bin/sh
# Generators of bindings can read the public headers: all constants are there without macros, and the
# rules of base.h hold.
. tests/support/shell.sh

# PYTHONPATH may name a folder that has it.
if ! python3 -c 'import cffi' 2>/dev/null; then
    skip cffi "it is not installed (pip install cffi)"
elif [ -n "${SAN:-}" ]; then
    skip cffi "a sanitizer's runtime is not in Python"
else
    check "cffi reads and uses the library" python3 tests/support/bindings.py "${CC:-gcc}" include \
        "$BUILD/libgradscale.so"
fi

# GS_API is the user's if they have defined it.
cat >"$tmp/own.c" <<'END'
#define GS_API extern __attribute__((weak))
#include "gradscale/gradscale.h"
int main(void)
{
    return gs_context_create != 0;
}
END
check "GS_API can be another one" ${CC:-gcc} -std=c11 -Wall -Wextra -Werror -Iinclude -o "$tmp/own" "$tmp/own.c"
check "and is used" "$tmp/own"
finish
