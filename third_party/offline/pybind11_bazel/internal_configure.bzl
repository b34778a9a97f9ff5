"""The extension of pybind11_bazel that makes @pybind11, from the pinned wheel."""

load("@foundry_fetch//:fetch.bzl", "wheels_repository")

internal_configure_extension = module_extension(implementation = lambda mctx: wheels_repository(
    name = "pybind11",
    build_file = Label("//:pybind11.BUILD"),
    pins = "@foundry_fetch//pins:pybind11.txt",
))
