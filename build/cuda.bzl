"""Device code: CUDA sources to fatbins with the pinned nvcc, embedded as data. Nothing links a CUDA library."""

load(":embed.bzl", "embed_file")

_TOOLCHAIN = "@rules_cuda//cuda:toolchain_type"

def _gencode(arch):
    """nvcc's option for one target: sm_90 is machine code, compute_80 is PTX."""
    if arch.startswith("sm_"):
        return "-gencode=arch=compute_{0},code=sm_{0}".format(arch[3:])
    if arch.startswith("compute_"):
        return "-gencode=arch={0},code={0}".format(arch)
    fail("arch must look like sm_80 (machine code) or compute_80 (PTX), not " + arch)

def _cuda_fatbin_impl(ctx):
    nvcc = ctx.toolchains[_TOOLCHAIN]
    out = ctx.actions.declare_file(ctx.label.name + ".fatbin")
    ctx.actions.run_shell(
        mnemonic = "CudaFatbin",
        progress_message = "Compiling device code " + ctx.file.src.short_path,
        inputs = depset(ctx.files.src + ctx.files.hdrs, transitive = [nvcc.all_files]),
        outputs = [out],
        # nvcc names its temporary files by process number, which sandboxes reuse: it gets a folder of its own.
        command = 'export TMPDIR=$(mktemp -d) && trap \'rm -rf "$TMPDIR"\' EXIT && "$@"',
        arguments = [nvcc.compiler_executable, "--fatbin", "-std=c++17", "-I.", "-o", out.path] +
                    [_gencode(arch) for arch in ctx.attr.archs] + ctx.attr.copts + [ctx.file.src.path],
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]))]

cuda_fatbin = rule(
    implementation = _cuda_fatbin_impl,
    doc = "One .cu file to NAME.fatbin.",
    attrs = {
        "archs": attr.string_list(mandatory = True, doc = 'targets: "sm_80" is machine code, "compute_80" is PTX'),
        "copts": attr.string_list(doc = "further options of nvcc"),
        "hdrs": attr.label_list(allow_files = True, doc = "headers that the source includes by their path from the root"),
        "src": attr.label(allow_single_file = [".cu"], mandatory = True),
    },
    toolchains = [_TOOLCHAIN],
)

def cuda_fatbin_embed(name, src, archs, symbol = None, hdrs = [], copts = [], testonly = False, visibility = None):
    """Compiles a .cu file for the given targets and embeds the fatbin.

    Args:
      name: name of the cc_library; its header is "PACKAGE/NAME.h" (see embed_file).
      src: the .cu file. Name kernels extern "C" to find them by name.
      archs: e.g. ["sm_80", "compute_80"].
      symbol: prefix of SYMBOL_begin and SYMBOL_size, by default the name.
      hdrs: headers that src includes.
      copts: further options of nvcc.
      testonly: as in every rule.
      visibility: of the library.
    """
    cuda_fatbin(
        name = name + "_fatbin",
        src = src,
        archs = archs,
        copts = copts,
        hdrs = hdrs,
        testonly = testonly,
        visibility = visibility,
    )
    embed_file(
        name = name,
        src = name + "_fatbin",
        symbol = symbol,
        testonly = testonly,
        visibility = visibility,
    )
