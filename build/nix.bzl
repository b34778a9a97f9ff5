"""Nix from Debian's packages, for the test of flake.nix. Where it cannot be had, the folder says why."""

load("@foundry_fetch//:fetch.bzl", "host_python")

def _nix_impl(rctx):
    program = rctx.path(Label("@foundry_fetch//:debian_packages.py"))
    rctx.watch(program)
    result = rctx.execute([host_python(rctx), program, "root", "stable,oldstable", "nix-bin"], timeout = 900)

    # One input has to be a plain tree: without links into nothing, and without what Nix does not load.
    rctx.execute(["sh", "-c", "cd root && rm -rf bin etc lib lib64 sbin usr/sbin usr/share var && find . -xtype l -delete"])
    rctx.file("root/unavailable.txt", result.stdout + result.stderr if result.return_code else "")
    rctx.file("BUILD.bazel", """
# One input: a root file system.
filegroup(
    name = "tree",
    srcs = ["root"],
    visibility = ["//visibility:public"],
)
""")

_nix_repository = repository_rule(
    implementation = _nix_impl,
    environ = ["FOUNDRY_DEBIAN_MIRROR", "FOUNDRY_PYTHON", "FOUNDRY_VENDOR"],
)

nix = module_extension(implementation = lambda mctx: _nix_repository(name = "foundry_nix"))
