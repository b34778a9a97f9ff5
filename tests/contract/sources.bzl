"""The repository of engines' sources that the contract tests read."""

load("@foundry_fetch//:fetch.bzl", "host_python")

_FILES = ["fetch_sources.py", "pins.py"]

def _engine_sources_impl(rctx):
    files = [rctx.path(Label("//tests/contract:" + name)) for name in _FILES]
    for file in files:
        rctx.watch(file)
    result = rctx.execute([host_python(rctx), files[0], "sources"], timeout = 1200)
    if result.return_code:
        fail("{} failed:\n{}{}".format(files[0], result.stdout, result.stderr))
    rctx.file("BUILD.bazel", """
filegroup(
    name = "sources",
    srcs = glob(["sources/*"]),
    visibility = ["//visibility:public"],
)
exports_files(["sources/unavailable.txt"])
""")

# Local: what could not be fetched is tried again when Bazel starts anew; what was fetched is in the script's cache.
engine_sources_repository = repository_rule(
    implementation = _engine_sources_impl,
    doc = "Sources of the releases in pins.py. Without network it has fewer, and says so in sources/unavailable.txt.",
    environ = ["FOUNDRY_CACHE", "FOUNDRY_PYTHON", "FOUNDRY_VENDOR", "XDG_CACHE_HOME"],
    local = True,
)

def _engine_sources_extension_impl(_mctx):
    engine_sources_repository(name = "engine_sources")

engine_sources = module_extension(implementation = _engine_sources_extension_impl)
