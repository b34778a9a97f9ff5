from vllm.platforms.interface import Platform


class NvmlCudaPlatform(Platform): ...


current_platform = NvmlCudaPlatform()
