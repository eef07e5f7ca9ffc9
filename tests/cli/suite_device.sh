#!/bin/sh
# gradscale device and bench device; what the compilers make of the kernels; the examples for devices.
. tests/support/shell.sh
gs=$1
says() { pattern=$1; shift; "$@" >"$tmp/out" 2>&1; grep -E "$pattern" "$tmp/out" || { cat "$tmp/out"; return 1; }; }
code() { want=$1; shift; "$@" >"$tmp/out" 2>&1; [ $? -eq "$want" ] || { cat "$tmp/out"; return 1; }; }
export XDG_CACHE_HOME="$tmp/cache"
mkdir "$XDG_CACHE_HOME"

check "it lists the host" says '^host +0 +host loops' "$gs" device
check "equal bits on the host" says '^equal bits with libgradscale: 7 of 7' "$gs" device --test --kind host
check "a library that is not there" code 2 "$gs" device --test --kind cuda --library libno_such.so.1
check "which is named" grep -q '^gradscale: libno_such.so.1 cannot be opened' "$tmp/out"
check "a device that is not there" code 2 "$gs" device --test --kind cuda --library "$BUILD/tests/ptx/libcuda.so.1" --index 9
check "nor on the host" code 2 "$gs" device --test --kind host --index 9
check "which is said" grep -qx 'gradscale: there is no host device 9: there is 1' "$tmp/out"
check "a library of no kind" code 2 "$gs" device --library libno_such.so.1
check "needs one" grep -qx 'gradscale: --library needs --kind: cuda or opencl' "$tmp/out"
check "one kind" sh -c "'$gs' device --kind host >'$tmp/out' 2>&1 && [ \$(wc -l <'$tmp/out') -eq 2 ] && grep -q '^host ' '$tmp/out'"
check "a kind of which there is none" code 1 "$gs" device --kind cuda --library libno_such.so.1
check "says why" grep -q '^cuda: libno_such.so.1 cannot be opened' "$tmp/out"
check "and lists no other" not grep -q '^host' "$tmp/out"
check "in 80 columns, read by a program, too" sh -c "! '$gs' device | grep '.\\{81\\}'"
check "in 80 columns" sh -c "! COLUMNS=80 '$gs' device | grep '.\\{81\\}'"
check "with --test, too" sh -c "'$gs' device | awk '/^(host|opencl) / { print \$1 }' | sort -u | while read -r kind; do
    ! '$gs' device --test --kind \$kind | grep '.\\{81\\}' || exit 1; done"
check "bench device" says '^scan +[0-9.]+ +[0-9.]+ +[0-9]+%' "$gs" bench device --kind host --size 256K --rounds 1
check "bench device --json" code 0 "$gs" bench device --kind host --size 256K --rounds 1 --json
check "is JSON" awk -f tests/support/json.awk "$tmp/out"
check "with a share of the copy for each pass" test "$(grep -c '"of_copy": [0-9.e+-]*$' "$tmp/out")" -eq 4
check "rounds beyond ten thousand act, too" sh -c "'$gs' bench device --kind host --size 64K --rounds 10001 --json |
    awk '/\"name\": \"act\"/ { act = 1 } act && /of_copy/ { n = \$2 + 0 < 1 } END { exit !n }'"
check "and where the kernels are from" grep -qx '  "kernels": "loops",' "$tmp/out"

# ---- OpenCL, by the program's cache ----

if "$gs" device 2>/dev/null | grep -q '^opencl  *0' && [ -z "$SAN" ]; then
    "$gs" device 2>/dev/null | grep -q '^cuda  *0' ||
        check "a device comes before the host" says '^gradscale [^,]*, opencl: ' "$gs" device --test
    if echo '#include <CL/cl.h>' | ${CC:-gcc} -E - >/dev/null 2>&1; then
        check "06_opencl.c compiles" ${CC:-gcc} -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -o "$tmp/opencl" \
            examples/06_opencl.c "$BUILD/libgradscale_device.a" "$BUILD/libgradscale.a" -lOpenCL -lm -ldl -pthread
        check "and trains" says '^[0-9]+ steps applied, [1-9][0-9]* skipped' "$tmp/opencl"
    else
        skip 06_opencl.c "there is no CL/cl.h (scripts/deps.sh device)"
    fi
else
    skip 06_opencl.c "there is no OpenCL device, or this is a sanitizer's build"
fi

# ---- a device without room ----

if command -v nvcc >/dev/null; then
    check "weights that do not fit" code 1 env STAND_IN_IMAGE="$tmp/image.ptx" "$gs" bench device --kind cuda --library "$BUILD/tests/ptx/libcuda.so.1" --size 900G
    check "which is said of the device" grep -q '^gradscale: .*no device memory for 966367641600 bytes' "$tmp/out"
fi

# ---- what the compilers make of the kernels, which are the same in every build ----

if [ -n "$SAN" ]; then
    skip "CUDA and HIP" "a sanitizer's build has the same kernels"
    finish
    exit
fi

# ---- CUDA: registers, spills, PTX ----

if command -v nvcc >/dev/null && command -v ptxas >/dev/null; then
    registers() # architecture, PTX
    {
        ptxas -arch=sm_$1 -v "$2" -o /dev/null >"$tmp/ptxas" 2>&1 || { head -n 3 "$tmp/ptxas"; return 1; }
        awk '/Compiling entry function/ { split($0, part, "\047"); name = part[2] }
             /spill stores/ { if ($5 + 0 > 0 || $9 + 0 > 0) { print name ": spills"; bad = 1 } kernels++ }
             /Used [0-9]+ registers/ { n = $0; sub(/.*Used /, "", n); if (n + 0 > 64) { print name ": " n + 0; bad = 1 } }
             END { if (kernels != 8) { print kernels " kernels"; bad = 1 } exit bad }' "$tmp/ptxas"
    }
    for sm in 75 121; do
        check "sm_$sm: at most 64 registers, no spills" registers $sm "$BUILD/device/sm_$sm.ptx"
        check "sm_$sm: no fma, nothing flushed, nothing approximate" not grep -nE '\.ftz|\.approx|\.full|^[[:space:]]*fma\.|\.sat' \
            "$BUILD/device/sm_$sm.ptx"
    done
    # what the compiler of the driver gets to see, on the first architecture of every generation
    embedded()
    {
        for sm in sm_75 $(nvcc --list-gpu-code | grep "0$"); do
            registers "${sm#sm_}" "$tmp/image.ptx" || { echo "$sm"; return 1; }
        done
    }
    check "the PTX that is loaded says version 6.3" grep -qx '.version 6.3' "$tmp/image.ptx"
    check "and is: at most 64 registers on all generations, no spills" embedded
    nvcc -O3 -arch=compute_75 -ptx -o "$tmp/contracted.ptx" "$BUILD/device/kernels_75.cu" 2>"$tmp/out"
    check "without -fmad=false there would be fma" grep -q 'fma\.rn\.f32' "$tmp/contracted.ptx"
    check "05_cuda_loop.cu compiles and links" nvcc -arch=sm_75 -Iinclude -o "$tmp/loop" examples/05_cuda_loop.cu \
        "$BUILD/libgradscale_device.a" "$BUILD/libgradscale.a" -lm -ldl -lpthread
else
    skip CUDA "there is no nvcc"
fi

# ---- HIP ----

if command -v clang >/dev/null && command -v ld.lld >/dev/null; then
    for gpu in gfx90a gfx1030; do
        check "HIP, $gpu" clang -x hip --cuda-device-only --offload-arch=$gpu -nogpulib -nogpuinc -O2 -ffp-contract=off \
            -Werror -include tests/device/bare_hip.h -c -o "$tmp/$gpu.o" "$BUILD/device/kernels.txt"
        check "HIP, $gpu: a code object" test -s "$tmp/$gpu.o"
    done
else
    skip HIP "there is no clang with lld (scripts/deps.sh ci device)"
fi

finish
