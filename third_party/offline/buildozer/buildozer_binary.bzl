"""The extension that bazel_tools asks for; `bazel mod tidy` is not available offline."""

_empty_repository = repository_rule(implementation = lambda rctx: rctx.file("BUILD.bazel", ""))

buildozer_binary = module_extension(implementation = lambda mctx: _empty_repository(name = "buildozer_binary"))
