#!/bin/sh
# device_text.sh KERNELS [PTX]: both files as C arrays, for libgradscale_device. Without PTX its array is "".
bytes() { od -An -v -tu1 "$@" | sed 's/  */,/g; s/^,//; s/$/,/'; }
echo 'extern const char gsi_device_source[], gsi_device_ptx[];'
echo 'const char gsi_device_source[] = {'
bytes "$1"
echo '0};'
echo 'const char gsi_device_ptx[] = {'
[ -z "$2" ] || bytes "$2"
echo '0};'
