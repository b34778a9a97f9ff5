environment_variables = {
    name: None
    for name in (
        "VLLM_CACHE_ROOT",
        "VLLM_LOGGING_LEVEL",
        "VLLM_PORT",
        "VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS",
        "VLLM_USE_TRITON_AWQ",
    )
}
