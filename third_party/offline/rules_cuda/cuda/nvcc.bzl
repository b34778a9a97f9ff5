"""The toolchain of the pinned nvcc, with the fields of rules_cuda's that we use."""

def _nvcc_toolchain_impl(ctx):
    return [platform_common.ToolchainInfo(
        compiler_executable = ctx.file.nvcc.path,
        all_files = depset(ctx.files.files),
    )]

nvcc_toolchain = rule(
    implementation = _nvcc_toolchain_impl,
    attrs = {
        "files": attr.label_list(allow_files = True),
        "nvcc": attr.label(allow_single_file = True, mandatory = True),
    },
)
