#!/bin/bash
# Run once where the zig wheel was unpacked: builds zig's C++ runtime into ./cache.
# usage: prepare.sh CC_SH
set -euo pipefail

export ZIG=$PWD/ziglang/zig
chmod +x "$ZIG"
mkdir cache
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/unit.cc" <<'CC'
#include <stdexcept>
#include <string>
extern "C" int unit(int argc) try {
  if (argc > 1) throw std::runtime_error(std::to_string(argc));
  return 0;
} catch (const std::exception& error) {
  return static_cast<int>(std::string(error.what()).size());
}
int main(int argc, char**) { return unit(argc); }
CC
# The links a build makes; zig keys its runtime by their options, so keep them like those of toolchain.bzl.
export ZIG_GLOBAL_CACHE_DIR=$PWD/cache
for mode in -shared -pie; do
  bash "$1" -O2 -fPIC -s "$mode" "$work/unit.cc" -o "$work/out"
done
# Code images of the simulated driver keep their symbols, and have no C++ runtime.
echo 'extern "C" int unit(int argc) { return argc; }' >"$work/image.cc"
bash "$1" -O2 -fPIC -shared -nostdlib++ "$work/image.cc" -o "$work/out"
find cache -type l -delete  # dangling, of the linker
rm -rf cache/tmp
