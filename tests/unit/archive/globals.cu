// Module variables of every kind, for the tests of fatbins and cubins.
__device__ unsigned counter;
__device__ unsigned long long table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__constant__ float scale = 1.5f;
static __device__ int hidden = 7;

extern "C" __global__ void use_globals(float* out) {
  out[threadIdx.x] = scale * static_cast<float>(atomicAdd(&counter, 1u) + table[threadIdx.x % 8] + hidden++);
}
