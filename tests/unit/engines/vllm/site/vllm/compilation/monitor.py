enabled_now = True


def set_cudagraph_capturing_enabled(enabled: bool) -> None:
    global enabled_now
    enabled_now = enabled
