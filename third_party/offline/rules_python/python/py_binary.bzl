"""py_binary: the one built into Bazel 7."""

py_binary = native.py_binary
