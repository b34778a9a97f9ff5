"""A C++ toolchain made of zig's compiler, for release builds (--config=release)."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:cc_toolchain_config_lib.bzl", "env_entry", "env_set", "feature", "flag_group", "flag_set", "tool_path")

_COMPILE = [
    ACTION_NAMES.assemble,
    ACTION_NAMES.c_compile,
    ACTION_NAMES.cpp_compile,
    ACTION_NAMES.preprocess_assemble,
]
_LINK = [
    ACTION_NAMES.cpp_link_dynamic_library,
    ACTION_NAMES.cpp_link_executable,
    ACTION_NAMES.cpp_link_nodeps_dynamic_library,
]

def _flags(name, actions, flags):
    return feature(
        name = name,
        enabled = True,
        flag_sets = [flag_set(actions = actions, flag_groups = [flag_group(flags = flags)])],
    )

def _zig_toolchain_config_impl(ctx):
    root = ctx.file.zig.dirname  # .../ziglang
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        toolchain_identifier = "zig-x86_64-linux-gnu.2.28",
        compiler = "zig",
        host_system_name = "local",
        target_cpu = "k8",
        target_libc = "glibc_2.28",
        target_system_name = "x86_64-linux-gnu",
        abi_libc_version = "glibc_2.28",
        abi_version = "libc++",
        cxx_builtin_include_directories = ["%package(@@{}//)%/ziglang/lib".format(ctx.file.zig.owner.workspace_name)],
        tool_paths = [tool_path(name = "gcc", path = "cc.sh"), tool_path(name = "ar", path = "ar.sh")] +
                     [tool_path(name = name, path = "/bin/false") for name in ["cpp", "gcov", "ld", "nm", "objdump", "strip"]],
        features = [
            feature(name = "supports_pic", enabled = True),
            feature(
                name = "zig",
                enabled = True,
                env_sets = [env_set(
                    actions = _COMPILE + _LINK + [ACTION_NAMES.cpp_link_static_library],
                    env_entries = [
                        env_entry(key = "ZIG", value = ctx.file.zig.path),
                        env_entry(key = "ZIG_PREPARED", value = root[:-len("ziglang")] + "cache"),
                    ],
                )],
            ),
            _flags("default_compile_flags", _COMPILE, [
                "-O2",
                "-DNDEBUG",
                "-fPIC",
                "-fstack-protector",
                "-fno-omit-frame-pointer",
                "-U_FORTIFY_SOURCE",
                "-D_FORTIFY_SOURCE=1",
                # Same bytes in every folder and at every time.
                "-no-canonical-prefixes",
                "-ffile-prefix-map=.=",
                "-Wno-builtin-macro-redefined",
                "-D__DATE__=\"redacted\"",
                "-D__TIME__=\"redacted\"",
                "-D__TIMESTAMP__=\"redacted\"",
            ]),
            _flags("default_link_flags", _LINK, [
                "-O2",
                "-fPIC",
                "-Wl,-z,relro",
                "-Wl,-z,now",
            ]),
            _flags("strip_symbols", _LINK, ["-s"]),
        ],
    )

zig_toolchain_config = rule(
    implementation = _zig_toolchain_config_impl,
    attrs = {"zig": attr.label(allow_single_file = True, mandatory = True)},
    provides = [CcToolchainConfigInfo],
)
