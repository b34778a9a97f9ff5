"""py_library: the one built into Bazel 7."""

py_library = native.py_library
