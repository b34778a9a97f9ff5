"""Shared libraries that a module brings along: copies beside it, linked without Bazel's own RPATHs."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")

def _only_shared(library):
    return bool(library.dynamic_library) and not (library.static_library or library.pic_static_library)

def _bundled_libraries_impl(ctx):
    copies = {}
    linker_inputs = []
    for dep in ctx.attr.deps:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            shared = [library for library in linker_input.libraries if _only_shared(library)]
            if not shared:
                linker_inputs.append(linker_input)
                continue
            for library in shared:
                source = library.resolved_symlink_dynamic_library or library.dynamic_library
                if source.basename not in copies:
                    copy = ctx.actions.declare_file(source.basename)
                    ctx.actions.run_shell(
                        inputs = [source],
                        outputs = [copy],
                        command = 'cp -L "$1" "$2"',
                        arguments = [source.path, copy.path],
                        mnemonic = "CopyLibrary",
                    )
                    copies[source.basename] = copy
            linker_inputs.append(cc_common.create_linker_input(
                owner = linker_input.owner,
                libraries = depset([library for library in linker_input.libraries if not _only_shared(library)]),
                user_link_flags = linker_input.user_link_flags,
                additional_inputs = depset(linker_input.additional_inputs),
            ))

    # As plain inputs of the linker the copies leave NEEDED entries and nothing else.
    linker_inputs.append(cc_common.create_linker_input(
        owner = ctx.label,
        user_link_flags = [copy.path for copy in copies.values()],
        additional_inputs = depset(copies.values()),
    ))
    return [
        DefaultInfo(files = depset(copies.values()), runfiles = ctx.runfiles(copies.values())),
        CcInfo(
            compilation_context = cc_common.merge_compilation_contexts(
                compilation_contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps],
            ),
            linking_context = cc_common.create_linking_context(linker_inputs = depset(linker_inputs, order = "topological")),
        ),
    ]

bundled_libraries = rule(
    implementation = _bundled_libraries_impl,
    doc = "deps as one C++ library whose shared libraries (those that have no static form) are copied into this package.",
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
    provides = [CcInfo],
)
