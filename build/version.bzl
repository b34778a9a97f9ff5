"""The version of this source tree for Starlark, as tools/version.py reads it from git's tags."""

load("@foundry_fetch//:fetch.bzl", "host_python")

def _version_impl(rctx):
    program = rctx.path(Label("//tools:version.py"))
    root = program.dirname.dirname
    for file in [program, root.get_child(".git_archival.txt")]:
        rctx.watch(file)
    result = rctx.execute([host_python(rctx), program, "--json"], timeout = 60)
    if result.return_code:
        fail(result.stderr)
    source = json.decode(result.stdout)
    for path in source["watch"]:
        path = rctx.path(path)
        if path.is_dir:
            rctx.watch_tree(path)
        else:
            rctx.watch(path)
    rctx.file("BUILD.bazel", "")

    # Apart, since every commit changes one and only tags change the other.
    rctx.file("defs.bzl", "VERSION = {}\n".format(repr(source["version"])))
    rctx.file("commit.bzl", "COMMIT = {}\n".format(repr(source["commit"])))

_version_repository = repository_rule(implementation = _version_impl, environ = ["FOUNDRY_PYTHON"])

version = module_extension(implementation = lambda mctx: _version_repository(name = "foundry_version"))
