"""Code images of the simulated driver, compiled from kernels written with kernel.h."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

# The same as make_image.py's own compilation: equal input gives equal bits, and one object depends on no other.
_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
]

def sim_image(name, srcs, hdrs = [], elf = ["80", "90"], ptx = [], bare = False, visibility = None):
    """Makes NAME.fatbin, or with `bare` NAME.elf, out of kernels.

    Args:
      name: name of the target.
      srcs: sources with FOUNDRY_SIM_KERNEL records.
      hdrs: headers of srcs in the same package.
      elf: architectures with machine code.
      ptx: architectures with the stand-in for PTX.
      bare: write the one architecture's ELF without a container.
      visibility: of the targets.
    """
    objects = {}
    for arch in depset(elf + ptx).to_list():
        objects[arch] = "{}_sm{}.so".format(name, arch)
        cc_binary(
            name = objects[arch],
            srcs = srcs + hdrs,
            copts = _COPTS,
            # An image's symbol table names its variables, as in a cubin.
            features = ["-strip_symbols"],
            linkopts = [
                "-Wl,-Bsymbolic",
                "-Wl,--as-needed",
                "-Wl,-z,defs",
                "-Wl,--build-id=none",
                "-static-libgcc",
                "-lm",
            ] + select({
                "//build/zig:in_use": ["-nostdlib++"],
                "//conditions:default": [],
            }),
            linkshared = True,
            linkstatic = True,
            local_defines = ["FOUNDRY_SIM_ARCH=" + arch],
            visibility = ["//visibility:private"],
            deps = ["//csrc/sim/image:kernel"],
        )
    inputs = ["--elf {0}=$(execpath {1})".format(arch, objects[arch]) for arch in elf]
    inputs += ["--ptx {0}=$(execpath {1})".format(arch, objects[arch]) for arch in ptx]
    native.genrule(
        name = name,
        srcs = objects.values(),
        outs = [name + (".elf" if bare else ".fatbin")],
        cmd = "$(execpath //csrc/sim/image:make_image) pack --output $@ {} {}".format(
            "--bare" if bare else "",
            " ".join(inputs),
        ),
        tools = ["//csrc/sim/image:make_image"],
        visibility = visibility,
    )
