"""Repositories made of hash-pinned files that only need a Python package index and a Debian mirror.

FOUNDRY_VENDOR names a folder that tools/vendor filled; with it nothing is asked of the network.
"""

_ENVIRON = ["FOUNDRY_DEBIAN_MIRROR", "FOUNDRY_PYTHON", "FOUNDRY_VENDOR"]

def host_python(rctx):
    """Returns the interpreter that runs the build: FOUNDRY_PYTHON, else python3 of PATH."""
    named = rctx.os.environ.get("FOUNDRY_PYTHON", "")
    python = rctx.path(named) if named.startswith("/") else rctx.which(named or "python3")
    if not python or not python.exists:
        fail("No Python: {} was not found. Install Python 3.10 or newer, or name one in FOUNDRY_PYTHON.".format(named or "python3"))
    return python

def pip(rctx, python, arguments):
    """Runs the interpreter's pip so that it accepts files with a pinned hash only.

    Args:
      rctx: the repository context.
      python: path of the interpreter.
      arguments: pip's subcommand and its arguments.
    """
    vendor = rctx.os.environ.get("FOUNDRY_VENDOR", "")
    source = ["--no-index", "--find-links", vendor + "/wheels"] if vendor else []
    result = rctx.execute(
        [python, "-m", "pip", "--disable-pip-version-check", arguments[0], "-q", "--require-hashes", "--only-binary=:all:", "--no-deps"] +
        source + arguments[1:],
        timeout = 1800,
        environment = {"PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if result.return_code:
        fail("pip {} failed with {} (Python packages come from {}):\n{}{}".format(
            arguments[0],
            python,
            vendor + "/wheels, because FOUNDRY_VENDOR is set" if vendor else "pip's configured index",
            result.stdout,
            result.stderr,
        ))

def _wheels_impl(rctx):
    python = host_python(rctx)
    pins = rctx.path(rctx.attr.pins)
    rctx.watch(pins)
    pip(rctx, python, ["download", "-r", str(pins), "-d", "whl"])
    for wheel in rctx.path("whl").readdir():
        rctx.symlink(wheel, "wheel.zip")  # extract() goes by the name
        rctx.extract("wheel.zip", ".")
        rctx.delete("wheel.zip")
        rctx.delete(wheel)
    for entry in rctx.path(".").readdir():  # what a wheel would install into the prefix
        data = entry.get_child("data")
        if entry.basename.endswith(".data") and data.exists:
            rctx.execute(["cp", "-a", "-n", str(data) + "/.", "."])
            rctx.delete(entry)
    for folder in rctx.attr.executables:  # wheels do not always carry modes
        rctx.execute(["chmod", "-R", "+x", folder])
    if rctx.attr.prepare:
        result = rctx.execute(["bash"] + [rctx.path(file) for file in rctx.attr.prepare], timeout = 1800)
        if result.return_code:
            fail("{} failed:\n{}{}".format(rctx.attr.prepare[0], result.stdout, result.stderr))
    rctx.file("BUILD.bazel", rctx.read(rctx.attr.build_file))

wheels_repository = repository_rule(
    implementation = _wheels_impl,
    doc = "The unpacked content of wheels. `pins` is a pip requirements file with hashes.",
    attrs = {
        "build_file": attr.label(mandatory = True),
        "executables": attr.string_list(doc = "folders whose files must be executable"),
        "pins": attr.label(mandatory = True),
        "prepare": attr.label_list(doc = "a script that is run where the wheels were unpacked, and files that are its arguments"),
    },
    environ = _ENVIRON,
)

def _site_impl(rctx):
    python = host_python(rctx)
    pins = rctx.path(rctx.attr.pins)
    rctx.watch(pins)
    pip(rctx, python, ["install", "-r", str(pins), "--target", "site", "--no-compile"])
    rctx.file("BUILD.bazel", rctx.read(rctx.attr.build_file))

site_repository = repository_rule(
    implementation = _site_impl,
    doc = "A folder `site` with Python packages for the interpreter that runs the build.",
    attrs = {"build_file": attr.label(mandatory = True), "pins": attr.label(mandatory = True)},
    environ = _ENVIRON + ["PATH"],
)

def _debian_source_impl(rctx):
    pins = rctx.path(Label("//pins:debian.txt"))
    rctx.watch(pins)
    pin = None
    for line in rctx.read(pins).splitlines():
        words = line.split(" ")
        if words[0] == rctx.attr.package:
            pin = words
    if not pin:
        fail("{} has no pin for {}".format(pins, rctx.attr.package))
    fetch = rctx.path(Label("//:debian_source.py"))
    rctx.watch(fetch)
    result = rctx.execute([host_python(rctx), fetch] + pin[:3] + ["."], timeout = 900)
    if result.return_code:
        fail(result.stdout + result.stderr)
    rctx.extract(pin[1], stripPrefix = pin[3])
    rctx.delete(pin[1])
    for name in ["BUILD", "MODULE.bazel", "WORKSPACE"]:  # of upstream: not ours to evaluate
        rctx.delete(name)
    rctx.file("BUILD.bazel", rctx.read(rctx.attr.build_file))

debian_source_repository = repository_rule(
    implementation = _debian_source_impl,
    doc = "The upstream archive of a Debian source package, pinned in pins/debian.txt.",
    attrs = {
        "build_file": attr.label(mandatory = True),
        "package": attr.string(mandatory = True),
    },
    environ = _ENVIRON,
)

def _fetch_impl(mctx):
    for module in mctx.modules:
        for tag in module.tags.wheels:
            wheels_repository(name = tag.name, pins = tag.pins, build_file = tag.build_file, executables = tag.executables, prepare = tag.prepare)
        for tag in module.tags.site:
            site_repository(name = tag.name, pins = tag.pins, build_file = tag.build_file)
        for tag in module.tags.debian_source:
            debian_source_repository(name = tag.name, package = tag.package, build_file = tag.build_file)

fetch = module_extension(
    implementation = _fetch_impl,
    tag_classes = {
        "debian_source": tag_class(attrs = {
            "build_file": attr.label(mandatory = True),
            "name": attr.string(mandatory = True),
            "package": attr.string(mandatory = True),
        }),
        "site": tag_class(attrs = {
            "build_file": attr.label(mandatory = True),
            "name": attr.string(mandatory = True),
            "pins": attr.label(mandatory = True),
        }),
        "wheels": tag_class(attrs = {
            "build_file": attr.label(mandatory = True),
            "executables": attr.string_list(),
            "name": attr.string(mandatory = True),
            "pins": attr.label(mandatory = True),
            "prepare": attr.label_list(),
        }),
    },
)
