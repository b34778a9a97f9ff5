"""Instructions that parse, audit and placement take, counted by callgrind: a trend that a machine's load does not change.

    bazel build //benchmarks:instructions_test
    python -m benchmarks.instructions bazel-bin/benchmarks/instructions_test --json instructions.json

Needs valgrind. Compare figures of one compiler and one set of options with each other only.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# Part -> what the program handles of it (benchmarks/instructions_test.cc).
PARTS: Mapping[str, int] = {"parse": 2000, "audit": 500, "placement": 1000}


def count(program: str, part: str) -> int:
    """Instructions inside foundry_measured_PART and what it calls. Raises RuntimeError where that cannot be counted."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect=foundry_measured_{part}"]
        done = subprocess.run(
            [*command, f"--callgrind-out-file={out}", program, f"--gtest_filter=*.{part.capitalize()}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{part}: {(done.stdout + done.stderr).strip()[-2000:]}")
        return total(out.read_text(encoding="utf-8", errors="replace"), part)


def total(text: str, part: str) -> int:
    """The sum that a callgrind file states. Raises RuntimeError where it has none, or nothing was collected."""
    found = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
    if found is None or int(found[1]) == 0:
        raise RuntimeError(f"{part}: callgrind counted nothing; is the program stripped?")
    return int(found[1])


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a line per part; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instructions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", help="instructions_test as built")
    parser.add_argument("--json", metavar="FILE", help="the same figures as JSON")
    options = parser.parse_args(argv)
    try:
        found = {part: count(options.program, part) for part in PARTS}
    except (RuntimeError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1
    for part, instructions in found.items():
        print(
            f"{part:10} {instructions:>13,} instructions, {instructions / PARTS[part]:,.0f} for each of {PARTS[part]}"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
