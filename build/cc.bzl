"""C++ targets of this project: one set of compiler options, GoogleTest, and shared libraries with an exact face."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

# Symbols are hidden unless exported on purpose: two copies of a library may live in one process.
FOUNDRY_COPTS = [
    "-Wall",
    "-Wextra",
] + select({
    # Another compiler's opinions are shown; they must not stop a release.
    "//build/zig:in_use": [],
    "//conditions:default": ["-Werror"],
}) + [
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-ffunction-sections",
    "-fdata-sections",
]

def gpu_attributes(gpu):
    """Attributes of a test that needs a GPU: without --config=gpu Bazel lists it as skipped."""
    if not gpu:
        return {}
    return {
        "tags": ["exclusive", "gpu", "local"],
        "target_compatible_with": select({
            "//build:has_gpu": [],
            "//conditions:default": ["@platforms//:incompatible"],
        }),
    }

def foundry_cc_library(name, copts = [], **kwargs):
    """cc_library with the project's options (C++20, warnings are errors, hidden visibility), always static."""
    cc_library(
        name = name,
        copts = FOUNDRY_COPTS + copts,
        linkstatic = True,
        **kwargs
    )

def foundry_cc_binary(name, copts = [], **kwargs):
    """cc_binary with the project's options."""
    cc_binary(
        name = name,
        copts = FOUNDRY_COPTS + copts,
        **kwargs
    )

def foundry_cc_test(name, srcs, deps = [], copts = [], size = "small", main = True, gpu = False, **kwargs):
    """A GoogleTest (and GoogleMock) test.

    Args:
      name: name of the target.
      srcs: sources with the test cases.
      deps: what is tested.
      copts: further compiler options.
      size: Bazel's test size.
      main: False if srcs bring their own main().
      gpu: needs a GPU; runs with --config=gpu only.
      **kwargs: passed to cc_test.
    """
    cc_test(
        name = name,
        srcs = srcs,
        copts = FOUNDRY_COPTS + copts,
        linkstatic = True,
        size = size,
        deps = deps + ["@googletest//:gtest"] + (["@googletest//:gtest_main"] if main else []),
        **({"visibility": ["//tests/sanitizers:__pkg__"]} | kwargs | gpu_attributes(gpu))
    )

def foundry_shared_library(
        name,
        out,
        version_script,
        soname = None,
        srcs = [],
        copts = [],
        linkopts = [],
        deps = [],
        static_runtime = True,
        visibility = None,
        **kwargs):
    """A shared library that exports exactly what its version script names and needs no C++ runtime.

    Objects of `srcs` are always linked. Of `deps` only those that something refers to, unless they
    are alwayslink: put functions that are only exported into srcs.

    Args:
      name: name of the target.
      out: path of the file below the package, e.g. "sm_80/libcuda_hook.so".
      version_script: linker version script; end it with `local: *;`.
      soname: DT_SONAME, by default the last part of `out`.
      srcs: sources.
      copts: further compiler options.
      linkopts: further linker options.
      deps: libraries.
      static_runtime: link libstdc++ and libgcc statically.
      visibility: of the file and the target.
      **kwargs: passed to cc_binary.
    """
    cc_binary(
        name = out,
        srcs = srcs,
        additional_linker_inputs = [version_script],
        copts = FOUNDRY_COPTS + copts,
        linkopts = linkopts + [
            "-Wl,--version-script=$(location {})".format(version_script),
            "-Wl,-soname,{}".format(soname or out.split("/")[-1]),
            "-Wl,-z,defs",
            "-Wl,--gc-sections",
        ] + (_static_runtime() if static_runtime else []),
        linkshared = True,
        linkstatic = True,
        visibility = visibility,
        deps = deps,
        **kwargs
    )
    native.filegroup(
        name = name,
        srcs = [out],
        visibility = visibility,
        testonly = kwargs.get("testonly", False),
    )

def _static_runtime():
    # Bazel links with the C driver and adds -lstdc++ at the end, where -static-libstdc++ has no
    # say: after the archive and --as-needed nothing is left for it. zig's runtime is static anyway.
    return select({
        "//build/zig:in_use": [],
        "//conditions:default": [
            "-static-libgcc",
            "-l:libstdc++.a",
            "-Wl,--as-needed",
        ],
    })
