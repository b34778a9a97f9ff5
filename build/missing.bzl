"""A target that stands for something this machine lacks."""

load("@rules_cc//cc:defs.bzl", "CcInfo")

def _missing_impl(ctx):
    fail(ctx.attr.reason)

missing = rule(
    implementation = _missing_impl,
    doc = "Fails with `reason` as soon as something depends on it; harmless otherwise.",
    attrs = {"reason": attr.string(mandatory = True)},
    provides = [CcInfo],
)
