# For suites that let system calls fail: `fault OPTION... -- COMMAND...` (tests/fault/iofault.c).
case $BUILD in /*) iofault=$BUILD/tests/iofault ;; *) iofault=$PWD/$BUILD/tests/iofault ;; esac
fault() { ASAN_OPTIONS=detect_leaks=0 "$iofault" "$@"; } # leaks cannot be looked for in a traced program

# Whether this machine lets a program trace another.
can_fault()
{
    [ -x "$iofault" ] || return 1
    mkdir -p "$tmp/probe" && echo x >"$tmp/probe/file"
    ! fault --root "$tmp/probe" --fail open:1:EIO -- sh -c ": <'$tmp/probe/file'" 2>/dev/null &&
        fault --root "$tmp/probe" -- true
}
