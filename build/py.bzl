"""Python targets: the extension module, libraries and pytest tests."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("@rules_python//python:defs.bzl", "py_library", "py_test")
load(":cc.bzl", "FOUNDRY_COPTS", "gpu_attributes")
load(":pythons.bzl", "VERSIONS")

def extension_for(extension, version):
    """The label of an extension's file for a Python: "host", or "3.10" to "3.13".

    One target per Python, not a build flag: everything below the extension is then built once.
    """
    label = native.package_relative_label(extension)
    folder = "" if version == "host" else "cp{}/".format(version.replace(".", ""))
    return label.relative(":{}{}.so".format(folder, label.name))

def foundry_pybind_extension(name, srcs, deps = [], copts = [], linkopts = [], version_script = "//build:python_module.lds", visibility = None, **kwargs):
    """A pybind11 module for the Python that runs the build, and for 3.10 to 3.13.

    Exports PyInit_* only (or what version_script names). Everything but the C library (and, of the
    host's compiler, the C++ runtime) is linked statically, so there is no RPATH.

    Targets:
      NAME.so: the module for the Python that runs the build.
      NAME: the same, for `data` or `deps` of Python targets.
      cp310/NAME.so to cp313/NAME.so: for wheels; only built on demand.

    Args:
      name: name of the Python module, e.g. "_core".
      srcs: sources with PYBIND11_MODULE(NAME, m).
      deps: libraries; pybind11 and Python's headers are added.
      copts: further compiler options.
      linkopts: further linker options.
      version_script: linker version script.
      visibility: of the targets.
      **kwargs: passed to cc_binary.
    """
    for version in ["host"] + VERSIONS:
        cc_binary(
            name = extension_for(name, version).name,
            srcs = srcs,
            additional_linker_inputs = [version_script],
            copts = FOUNDRY_COPTS + copts,
            linkopts = linkopts + [
                "-Wl,--version-script=$(location {})".format(version_script),
                "-Wl,-soname,{}.so".format(name),
                "-Wl,--gc-sections",
            ],
            linkshared = True,
            linkstatic = True,
            tags = [] if version == "host" else ["manual"],
            visibility = visibility,
            deps = deps + [
                "@foundry_pythons//:{}_headers".format(version),
                "@pybind11",
            ],
            **kwargs
        )
    py_library(
        name = name,
        data = [name + ".so"],
        visibility = visibility,
    )

def foundry_py_test(name, srcs, deps = [], data = [], args = [], env = {}, size = "small", gpu = False, **kwargs):
    """Runs pytest over srcs with the pinned packages (pytest, hypothesis, typer, rich, cuda-bindings).

    Modules are imported by their path from the root of the workspace (`import foundry`,
    `from tests.support import x`). A conftest.py goes into srcs or deps. Every test case counts in
    the summary.

    Args:
      name: name of the target.
      srcs: test files (test_*.py or *_test.py) and conftest.py.
      deps: Python libraries.
      data: files; find them with the environment variable and `$(rootpath ...)` in env.
      args: further arguments of pytest.
      env: environment variables.
      size: Bazel's test size.
      gpu: needs a GPU; runs with --config=gpu only.
      **kwargs: passed to py_test.
    """
    py_test(
        name = name,
        srcs = srcs + ["//build:pytest_main.py"],
        main = "//build:pytest_main.py",
        args = ["$(rootpath {})".format(src) for src in srcs if src.split("/")[-1].split(":")[-1] != "conftest.py"] + args,
        data = data,
        env = env,
        size = size,
        deps = deps + ["@foundry_test_packages//:site"],
        **(kwargs | gpu_attributes(gpu))
    )
