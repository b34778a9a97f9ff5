"""Files as C++ objects: data that a library carries."""

load("@rules_cc//cc:defs.bzl", "cc_library")

_ASSEMBLY = """\
    .section .rodata.{symbol}, "a", %progbits
    .balign 64
    .hidden {symbol}_begin
    .globl {symbol}_begin
    .type {symbol}_begin, %object
{symbol}_begin:
    .incbin "{path}"
    .hidden {symbol}_end
    .globl {symbol}_end
{symbol}_end:
    .size {symbol}_begin, . - {symbol}_begin
    .balign 8
    .hidden {symbol}_size
    .globl {symbol}_size
    .type {symbol}_size, %object
    .size {symbol}_size, 8
{symbol}_size:
    .quad {symbol}_end - {symbol}_begin
    .section .note.GNU-stack, "", %progbits
"""

_HEADER = """\
// The content of {base} ({label}).
#pragma once

#include <cstddef>

extern "C" {{
__attribute__((visibility("hidden"))) extern const unsigned char {symbol}_begin[];
__attribute__((visibility("hidden"))) extern const std::size_t {symbol}_size;  // bytes
}}
"""

def _embed_sources_impl(ctx):
    assembly = ctx.actions.declare_file(ctx.label.name + ".S")
    ctx.actions.write(assembly, _ASSEMBLY.format(symbol = ctx.attr.symbol, path = ctx.file.src.path))
    ctx.actions.write(ctx.outputs.header, _HEADER.format(
        symbol = ctx.attr.symbol,
        base = ctx.file.src.basename,
        label = str(ctx.label).lstrip("@"),
    ))
    return [DefaultInfo(files = depset([assembly]))]

_embed_sources = rule(
    implementation = _embed_sources_impl,
    attrs = {
        "header": attr.output(mandatory = True),
        "src": attr.label(allow_single_file = True, mandatory = True),
        "symbol": attr.string(mandatory = True),
    },
)

def embed_file(name, src, symbol = None, testonly = False, visibility = None):
    """A cc_library with the bytes of a file and a header NAME.h that declares them.

    The header declares `const unsigned char SYMBOL_begin[]` (aligned to 64 bytes) and
    `const std::size_t SYMBOL_size`; both are hidden outside the library that links them.

    Args:
      name: name of the library; the header is "PACKAGE/NAME.h".
      src: one file.
      symbol: prefix of the symbols, by default the name.
      testonly: as in every rule.
      visibility: of the library.
    """
    _embed_sources(
        name = name + "_sources",
        src = src,
        header = name + ".h",
        symbol = symbol or name,
        testonly = testonly,
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = [name + "_sources"],
        hdrs = [name + ".h"],
        linkstatic = True,
        testonly = testonly,
        textual_hdrs = [src],  # an input of the assembler
        visibility = visibility,
    )
