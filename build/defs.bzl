"""The macros of this workspace; README.md beside this file says what each is for."""

load(":cc.bzl", _foundry_cc_binary = "foundry_cc_binary", _foundry_cc_library = "foundry_cc_library", _foundry_cc_test = "foundry_cc_test", _foundry_shared_library = "foundry_shared_library")
load(":cuda.bzl", _cuda_fatbin = "cuda_fatbin", _cuda_fatbin_embed = "cuda_fatbin_embed")
load(":embed.bzl", _embed_file = "embed_file")
load(":py.bzl", _foundry_py_test = "foundry_py_test", _foundry_pybind_extension = "foundry_pybind_extension")
load(":sanitize.bzl", _sanitized_tests = "sanitized_tests")
load(":wheel.bzl", _foundry_wheels = "foundry_wheels")

cuda_fatbin = _cuda_fatbin
cuda_fatbin_embed = _cuda_fatbin_embed
embed_file = _embed_file
foundry_cc_binary = _foundry_cc_binary
foundry_cc_library = _foundry_cc_library
foundry_cc_test = _foundry_cc_test
foundry_py_test = _foundry_py_test
foundry_pybind_extension = _foundry_pybind_extension
foundry_shared_library = _foundry_shared_library
foundry_wheels = _foundry_wheels
sanitized_tests = _sanitized_tests
