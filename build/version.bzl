"""The version of this source tree for Starlark, read from csrc/base/version.h."""

def _version_impl(rctx):
    header = rctx.path(Label("//csrc/base:version.h"))
    rctx.watch(header)
    version = None
    for line in rctx.read(header).splitlines():
        if line.startswith("#define FOUNDRY_VERSION "):
            version = line.split('"')[1]
    if not version:
        fail("{} defines no FOUNDRY_VERSION".format(header))
    rctx.file("BUILD.bazel", "")
    rctx.file("defs.bzl", "VERSION = {}\n".format(repr(version)))

_version_repository = repository_rule(implementation = _version_impl)

version = module_extension(implementation = lambda mctx: _version_repository(name = "foundry_version"))
