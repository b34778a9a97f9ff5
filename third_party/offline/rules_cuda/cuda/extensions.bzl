"""The `toolchain` extension of rules_cuda, serving the pinned wheels as @cuda."""

load("@foundry_fetch//:fetch.bzl", "wheels_repository")

def _toolchain_impl(_mctx):
    wheels_repository(
        name = "cuda",
        build_file = Label("//:cuda.BUILD"),
        executables = ["nvidia/cu13/bin", "nvidia/cu13/nvvm/bin"],
        pins = "@foundry_fetch//pins:cuda.txt",
    )

toolchain = module_extension(
    implementation = _toolchain_impl,
    tag_classes = {"toolkit": tag_class(attrs = {"name": attr.string(), "toolkit_path": attr.string()})},
)
