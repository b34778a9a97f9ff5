"""Runs a recipe of the package: `bazel run //recipes:quickstart` is `python -m foundry.recipes.quickstart`."""

import os
import runpy
import sys

if __name__ == "__main__":
    # Paths on the command line are relative to where the user called, not to Bazel's folder.
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    recipe = sys.argv.pop(1)
    sys.argv[0] = recipe
    runpy.run_module(f"foundry.recipes.{recipe}", run_name="__main__", alter_sys=True)
