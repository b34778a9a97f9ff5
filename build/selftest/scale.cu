// A kernel to test cuda_fatbin_embed with.
extern "C" __global__ void scale(float* values, float factor, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= factor;
}
