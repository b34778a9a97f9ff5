"""py_test: the one built into Bazel 7."""

py_test = native.py_test
