environment_variables = {
    "VLLM_CACHE_ROOT": str,
    "VLLM_LOGGING_LEVEL": str,
    "VLLM_PORT": int,
    "VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS": int,
    "VLLM_USE_TRITON_AWQ": bool,
}
