"""The interpreters of this machine: the one that runs the build, and 3.10 to 3.13 for wheels.

An extension module needs headers only; they come from the interpreter itself (sysconfig). A version
that is not on the machine, or has no headers, is a target that says so when something needs it.
"""

load("@foundry_fetch//:fetch.bzl", "host_python")

VERSIONS = ["3.10", "3.11", "3.12", "3.13"]

# What a target has to know about an interpreter, one value per line.
_DESCRIBE = """
import sys, sysconfig
print("%d.%d" % sys.version_info[:2])
print(sys.executable)
print(sysconfig.get_path("include"))
print(sysconfig.get_config_var("EXT_SUFFIX"))
print(sys.implementation.name)
"""

def _describe(rctx, program):
    result = rctx.execute([program, "-IS", "-c", _DESCRIBE], timeout = 60)
    lines = result.stdout.strip().split("\n")
    if result.return_code or len(lines) != 5 or lines[4] != "cpython":
        return None
    return struct(version = lines[0], executable = lines[1], include = lines[2], suffix = lines[3])

def _search(rctx, version):
    """The interpreter of a version: on PATH, or where pyenv and uv keep theirs; one with headers is preferred."""
    candidates = []
    on_path = rctx.which("python" + version)
    if on_path:
        candidates.append(str(on_path))
    home = rctx.os.environ.get("HOME", "")
    pyenv = rctx.os.environ.get("PYENV_ROOT", "") or home + "/.pyenv"
    for folder in [pyenv + "/versions", home + "/.local/share/uv/python"]:
        if folder.startswith("/") and rctx.path(folder).exists:
            for entry in sorted([str(entry) for entry in rctx.path(folder).readdir()]):
                candidates.append(entry + "/bin/python" + version)
    candidates.extend(["{}/bin/python{}".format(folder, version) for folder in ["/usr", "/usr/local", "/opt/python" + version]])
    found = None
    for candidate in candidates:
        if not rctx.path(candidate).exists:
            continue
        python = _describe(rctx, candidate)
        if python and python.version == version:
            if _headers(rctx, python):
                return python
            found = found or python
    return found

def _headers(rctx, python):
    return rctx.path(python.include + "/Python.h").exists and rctx.path(python.include + "/pyconfig.h").exists

def _headers_target(rctx, name, python, missing):
    if python and _headers(rctx, python):
        rctx.symlink(python.include, name + "/include")
        return """
cc_library(
    name = "{name}_headers",
    hdrs = glob(["{name}/include/**/*.h"]),
    includes = ["{name}/include"],
)
""".format(name = name)
    if python:
        missing = ("{executable} (Python {version}) has no headers: {include}/Python.h is missing. " +
                   "Install them (Debian: python{version}-dev, RHEL: python{version}-devel), or name another " +
                   "interpreter in FOUNDRY_PYTHON.").format(executable = python.executable, version = python.version, include = python.include)
    return """
missing(
    name = "{name}_headers",
    reason = {reason},
)
""".format(name = name, reason = repr(missing))

def _pythons_impl(rctx):
    host = _describe(rctx, host_python(rctx))
    if not host:
        fail("{} is no CPython.".format(host_python(rctx)))
    if host.version not in VERSIONS:
        fail("{} is Python {}; one of {} is needed: name one in FOUNDRY_PYTHON.".format(host.executable, host.version, ", ".join(VERSIONS)))
    build = [
        'load("@foundry//build:missing.bzl", "missing")',
        'load("@rules_cc//cc:defs.bzl", "cc_library")',
        'load("@rules_python//python:py_runtime.bzl", "py_runtime")',
        'load("@rules_python//python:py_runtime_pair.bzl", "py_runtime_pair")',
        'package(default_visibility = ["//visibility:public"])',
    ]
    pythons = {"host": host}
    for version in VERSIONS:
        pythons[version] = host if version == host.version else _search(rctx, version)
    for name, python in pythons.items():
        build.append(_headers_target(
            rctx,
            name,
            python,
            "Python {} was not found on PATH, below ~/.pyenv/versions, /usr or /usr/local: install it with its headers.".format(name),
        ))
    build.append("""
py_runtime(
    name = "runtime",
    interpreter_path = {executable},
    python_version = "PY3",
)

py_runtime_pair(
    name = "runtime_pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
""".format(executable = repr(host.executable)))
    rctx.file("BUILD.bazel", "\n".join(build))
    rctx.file("defs.bzl", "# What was found, by version; `host` is the interpreter that runs the build.\nPYTHONS = {}\n".format(repr({
        name: {"executable": python.executable, "suffix": python.suffix, "version": python.version}
        for name, python in pythons.items()
        if python
    })))

_pythons_repository = repository_rule(
    implementation = _pythons_impl,
    environ = ["FOUNDRY_PYTHON", "HOME", "PATH", "PYENV_ROOT"],
    local = True,
)

pythons = module_extension(implementation = lambda mctx: _pythons_repository(name = "foundry_pythons"))
