"""C++ tests built with sanitizers, as targets of their own beside the plain ones."""

_FLAGS = {
    "asan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-sanitize=vptr"],
    "tsan": ["-fsanitize=thread"],
}
_COMPILE = ["-O1", "-g1", "-fno-omit-frame-pointer"]
_OUTPUTS = ["//command_line_option:" + name for name in ["compilation_mode", "copt", "linkopt", "strip"]]

def _transition_impl(settings, attr):
    flags = _FLAGS[attr.sanitizer]
    return {
        "//command_line_option:compilation_mode": "fastbuild",
        "//command_line_option:copt": settings["//command_line_option:copt"] + _COMPILE + flags,
        "//command_line_option:linkopt": settings["//command_line_option:linkopt"] + flags,
        "//command_line_option:strip": "never",
    }

_sanitize = transition(
    implementation = _transition_impl,
    inputs = ["//command_line_option:copt", "//command_line_option:linkopt"],
    outputs = _OUTPUTS,
)

def _sanitized_test_impl(ctx):
    test = ctx.attr.test[0]
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = program, target_file = ctx.executable.test, is_executable = True)
    environment = dict(test[RunEnvironmentInfo].environment) if RunEnvironmentInfo in test else {}
    environment["ASAN_OPTIONS"] = "detect_stack_use_after_return=1:check_initialization_order=1"
    environment["UBSAN_OPTIONS"] = "print_stacktrace=1"
    environment["TSAN_OPTIONS"] = "second_deadlock_stack=1"
    return [
        DefaultInfo(executable = program, runfiles = test[DefaultInfo].default_runfiles),
        RunEnvironmentInfo(environment = environment),
    ]

_sanitized_test = rule(
    implementation = _sanitized_test_impl,
    test = True,
    attrs = {
        "sanitizer": attr.string(values = _FLAGS.keys(), mandatory = True),
        "test": attr.label(cfg = _sanitize, executable = True, mandatory = True),
    },
)

def sanitized_tests(sanitizer, tests, tags = []):
    """PACKAGE_NAME_SANITIZER_test for each test: the same, with everything below it instrumented.

    Args:
      sanitizer: "asan" (address and undefined behaviour) or "tsan" (threads).
      tests: labels of foundry_cc_test targets.
      tags: "manual" leaves them out of `//...`.
    """
    for test in tests:
        label = native.package_relative_label(test)
        _sanitized_test(
            name = "{}_{}_{}_test".format(label.package.split("/")[-1], label.name.removesuffix("_test"), sanitizer),
            size = "medium",
            sanitizer = sanitizer,
            tags = tags,
            test = test,
        )
