"""py_runtime: the one built into Bazel 7."""

py_runtime = native.py_runtime
