#!/bin/sh
# The demo: demo.sh PROGRAM. Grows with the program.
set -e
program=$1
"$program" info
