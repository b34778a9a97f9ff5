"""Wheels for the Python that runs the build and for 3.10 to 3.13."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@foundry_pythons//:defs.bzl", "PYTHONS")
load(":py.bzl", "extension_for")
load(":pythons.bzl", "VERSIONS")

# Wheels are always made by the release compiler (as with --config=release), whatever the tests use.
_RELEASE = {
    "//build:platform_tag": "manylinux_2_28_x86_64",
    "//command_line_option:extra_toolchains": ["//build/zig:toolchain"],
}

_release = transition(
    implementation = lambda settings, attr: _RELEASE,
    inputs = [],
    outputs = _RELEASE.keys(),
)

def _wheel_impl(ctx):
    python = PYTHONS.get(ctx.attr.python)
    if not python:
        fail("Python {} was not found on this machine: a wheel for it needs its headers.".format(ctx.attr.python))
    files = {}
    for target in ctx.attr.packages:
        for file in target[DefaultInfo].default_runfiles.files.to_list():
            path = file.short_path
            if path.startswith(ctx.attr.root + "/") and path.split(".")[-1] in ["py", "pyi", "typed"]:
                files[path] = file
    for target, place in ctx.attr.files.items():
        for file in target[DefaultInfo].files.to_list():
            files[place + file.basename if place.endswith("/") else place] = file
    for target, stem in ctx.attr.extensions.items():
        files[stem + python["suffix"]] = target[DefaultInfo].files.to_list()[0]

    tag = "cp{0}-cp{0}-{1}".format(python["version"].replace(".", ""), ctx.attr._platform_tag[BuildSettingInfo].value)
    out = ctx.actions.declare_file("{}/{}-{}-{}.whl".format(ctx.label.name, ctx.attr.distribution, ctx.attr.version, tag))
    plan = ctx.actions.declare_file(ctx.label.name + ".json")
    ctx.actions.write(plan, json.encode_indent({
        "build_info": [file.path for file in ctx.files.build_info],
        "commit": ctx.attr.commit,
        "description": ctx.file.description.path,
        "distribution": ctx.attr.distribution,
        "entry_points": ctx.file.entry_points.path,
        "files": {name: file.path for name, file in files.items()},
        "licenses": [file.path for file in ctx.files.licenses],
        "metadata": ctx.file.metadata.path,
        "tag": tag,
        "version": ctx.attr.version,
    }))
    ctx.actions.run(
        mnemonic = "Wheel",
        progress_message = "Writing wheel " + out.basename,
        executable = ctx.executable._build_wheel,
        arguments = [plan.path, out.path],
        inputs = [plan, ctx.file.description, ctx.file.entry_points, ctx.file.metadata] +
                 ctx.files.licenses + ctx.files.build_info + files.values(),
        outputs = [out],
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles([out]))]

_wheel = rule(
    implementation = _wheel_impl,
    cfg = _release,
    attrs = {
        "build_info": attr.label_list(allow_files = True, doc = "files with pins whose content is recorded"),
        "commit": attr.string(doc = "of the source tree; recorded"),
        "description": attr.label(allow_single_file = True, mandatory = True),
        "distribution": attr.string(mandatory = True),
        "entry_points": attr.label(allow_single_file = True, mandatory = True),
        "extensions": attr.label_keyed_string_dict(doc = "extension module -> path without suffix"),
        "files": attr.label_keyed_string_dict(allow_files = True, doc = "file -> path in the wheel, a folder if it ends in /"),
        "licenses": attr.label_list(allow_files = True, mandatory = True),
        "metadata": attr.label(allow_single_file = True, mandatory = True),
        "packages": attr.label_list(doc = "Python libraries whose files below `root` go in"),
        "python": attr.string(mandatory = True),
        "root": attr.string(mandatory = True, doc = "the import package"),
        "version": attr.string(mandatory = True),
        "_build_wheel": attr.label(default = "//tools:build_wheel", executable = True, cfg = "exec"),
        "_platform_tag": attr.label(default = "//build:platform_tag"),
    },
)

def foundry_wheels(name, extension, extension_path, **kwargs):
    """The wheel NAME (Python that runs the build), NAME_cp310 to NAME_cp313, and NAMEs: those four.

    Args:
      name: name of the host's wheel.
      extension: label of a foundry_pybind_extension.
      extension_path: its path in the wheel without suffix, e.g. "foundry/_core".
      **kwargs: attributes of the wheel: distribution, version, root, packages, files (file -> path),
        metadata, entry_points, description, licenses, build_info, commit.
    """
    for version in ["host"] + VERSIONS:
        _wheel(
            name = name if version == "host" else "{}_cp{}".format(name, version.replace(".", "")),
            extensions = {extension_for(extension, version): extension_path},
            python = version,
            # Asked for by name: the release compiler builds everything a second time.
            tags = ["manual"],
            **kwargs
        )
    native.filegroup(
        name = name + "s",
        srcs = ["{}_cp{}".format(name, version.replace(".", "")) for version in VERSIONS],
        tags = ["manual"],
    )
