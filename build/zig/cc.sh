#!/bin/bash
# The C and C++ compiler of release builds: zig for a C library of 2018 (glibc 2.28, manylinux_2_28).
#   ZIG            the program (relative to the working directory)
#   ZIG_PREPARED   zig's cache with its built C++ runtime, made by prepare.sh; read only
# zig builds its C++ runtime on first use into a cache that it writes to at every use, so every link gets
# a copy of the prepared one; compiling needs none. prepare.sh itself sets ZIG_GLOBAL_CACHE_DIR.
set -euo pipefail

compile=
language=c++
for argument in "$@"; do
  case $argument in
    -c | -E) compile=1 ;;
    -nostdlib++) language=cc ;; # zig's cc links no C++ runtime
    -*) ;;
    *.c | *.S) language=cc ;;
  esac
done
if [[ -z ${ZIG_GLOBAL_CACHE_DIR:-} ]]; then
  ZIG_GLOBAL_CACHE_DIR=$(mktemp -d)
  trap 'rm -rf "$ZIG_GLOBAL_CACHE_DIR"' EXIT
  if [[ -z $compile ]]; then
    cp -RL "$ZIG_PREPARED"/. "$ZIG_GLOBAL_CACHE_DIR"
    chmod -R u+w "$ZIG_GLOBAL_CACHE_DIR"
  fi
fi
export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR=$ZIG_GLOBAL_CACHE_DIR ZIG_LIB_DIR=${ZIG%/*}/lib
"$ZIG" "$language" -target x86_64-linux-gnu.2.28 -fno-sanitize=undefined "$@"
