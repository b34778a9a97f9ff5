// Memory: reservations, mappings, plain and pooled and host memory, queries, out of memory.
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "tests/unit/sim/sim.h"

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGranule = 2 * kMiB;
#ifdef __SANITIZE_ADDRESS__
constexpr CUdeviceptr kBase = 0x200000000000;  // the sanitizer's shadow lies at the usual place
#else
constexpr CUdeviceptr kBase = 0x100000000000;
#endif

class Memory : public SimTest {
 protected:
  CUmemGenericAllocationHandle create(std::size_t bytes, int handle_types = 0) {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    prop.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(SIM(cuMemCreate)(&handle, bytes, &prop, 0), CUDA_SUCCESS) << sim_log();
    return handle;
  }
  CUdeviceptr reserve(std::size_t bytes, CUdeviceptr hint = 0) {
    CUdeviceptr at = 0;
    EXPECT_EQ(SIM(cuMemAddressReserve)(&at, bytes, 0, hint, 0), CUDA_SUCCESS) << sim_log();
    return at;
  }
  CUresult access(CUdeviceptr at, std::size_t bytes, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
    return SIM(cuMemSetAccess)(at, bytes, &desc, 1);
  }
};
using MemoryDeathTest = Memory;

TEST_F(Memory, FourTebibytesAtTheHint) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer leaves no such address space";
#endif
  CUdeviceptr at = reserve(std::size_t{4} << 40, kBase);
  EXPECT_EQ(at, kBase);
  CUdeviceptr other = reserve(kGranule, kBase);  // taken: a hint is a hint
  EXPECT_NE(other, 0u);
  EXPECT_NE(other, kBase);
  OK(SIM(cuMemAddressFree)(other, kGranule));
  EXPECT_EQ(SIM(cuMemAddressFree)(at, kGranule), CUDA_ERROR_INVALID_VALUE);
  OK(SIM(cuMemAddressFree)(at, std::size_t{4} << 40));
  EXPECT_EQ(SIM(cuMemAddressFree)(at, std::size_t{4} << 40), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, TwoMappingsOfOneHandleAreTheSameBytes) {
  CUdeviceptr at = reserve(4 * kGranule);
  CUmemGenericAllocationHandle handle = create(kGranule);
  OK(SIM(cuMemMap)(at, kGranule, 0, handle, 0));
  OK(SIM(cuMemMap)(at + 2 * kGranule, kGranule, 0, handle, 0));
  OK(access(at, kGranule));
  OK(access(at + 2 * kGranule, kGranule));
  write(at + 100 * 4, 4711);
  EXPECT_EQ(read(at + 2 * kGranule, 100), 4711);
  OK(SIM(cuMemRelease)(handle));
  EXPECT_EQ(SIM(cuMemRelease)(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(read(at, 100), 4711) << "mappings keep released memory";
  OK(SIM(cuMemUnmap)(at, kGranule));
  OK(SIM(cuMemUnmap)(at + 2 * kGranule, kGranule));
  OK(SIM(cuMemAddressFree)(at, 4 * kGranule));
}

TEST_F(Memory, MappingRules) {
  CUdeviceptr at = reserve(2 * kGranule);
  CUmemGenericAllocationHandle handle = create(kGranule);
  EXPECT_EQ(SIM(cuMemMap)(at + 4096, kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuMemMap)(at, 2 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuMemMap)(at + 2 * kGranule, kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE)
      << "no reservation there";
  OK(SIM(cuMemMap)(at, kGranule, 0, handle, 0));
  EXPECT_EQ(SIM(cuMemMap)(at, kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuMemsetD8_v2)(at, 1, 16), CUDA_ERROR_INVALID_VALUE) << "no access yet";
  EXPECT_EQ(SIM(cuMemAddressFree)(at, 2 * kGranule), CUDA_ERROR_INVALID_VALUE) << "still mapped";
  OK(access(at, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ));
  EXPECT_EQ(SIM(cuMemsetD8_v2)(at, 1, 16), CUDA_ERROR_INVALID_VALUE) << "read only";
  EXPECT_EQ(read(at), 0);
  EXPECT_EQ(SIM(cuMemUnmap)(at, kGranule / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuMemUnmap)(at, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  OK(SIM(cuMemUnmap)(at, kGranule));
  EXPECT_EQ(SIM(cuMemUnmap)(at, kGranule), CUDA_ERROR_INVALID_VALUE);
  char byte;
  EXPECT_EQ(SIM(cuMemcpyDtoH_v2)(&byte, at, 1), CUDA_ERROR_INVALID_VALUE) << "use after unmap";
  OK(SIM(cuMemRelease)(handle));
  OK(SIM(cuMemAddressFree)(at, 2 * kGranule));
}

TEST_F(MemoryDeathTest, UnmappedAndFreedMemoryFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  CUdeviceptr at = reserve(kGranule);
  CUmemGenericAllocationHandle handle = create(kGranule);
  OK(SIM(cuMemMap)(at, kGranule, 0, handle, 0));
  OK(access(at, kGranule));
  auto* mapped = reinterpret_cast<volatile int*>(at);
  *mapped = 1;
  OK(SIM(cuMemUnmap)(at, kGranule));
  EXPECT_EXIT(*mapped = 2, ::testing::KilledBySignal(SIGSEGV), "");
  CUdeviceptr plain = memory(4096);
  auto* beyond = reinterpret_cast<volatile char*>(plain + 4096);
  EXPECT_EXIT(*beyond = 1, ::testing::KilledBySignal(SIGSEGV), "") << "a page behind each allocation is unmapped";
  OK(SIM(cuMemFree_v2)(plain));
  auto* freed = reinterpret_cast<volatile char*>(plain);
  EXPECT_EXIT(*freed = 1, ::testing::KilledBySignal(SIGSEGV), "");
  OK(SIM(cuMemRelease)(handle));
}

TEST_F(Memory, GranularityAndPhysicalSizes) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  std::size_t granularity = 0;
  OK(SIM(cuMemGetAllocationGranularity)(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(granularity, kGranule);
  CUmemGenericAllocationHandle handle;
  EXPECT_EQ(SIM(cuMemCreate)(&handle, kMiB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, HandleOfAnAddress) {
  CUdeviceptr at = reserve(kGranule);
  CUmemGenericAllocationHandle handle = create(kGranule), found = 0;
  OK(SIM(cuMemMap)(at, kGranule, 0, handle, 0));
  OK(SIM(cuMemRetainAllocationHandle)(&found, reinterpret_cast<void*>(at + 5)));
  EXPECT_EQ(found, handle);
  OK(SIM(cuMemRelease)(handle));
  OK(SIM(cuMemRelease)(handle));
  OK(SIM(cuMemRetainAllocationHandle)(&found, reinterpret_cast<void*>(at)));
  EXPECT_NE(found, handle) << "a handle is never handed out twice";
  OK(SIM(cuMemRelease)(found));
  OK(SIM(cuMemUnmap)(at, kGranule));
  EXPECT_EQ(SIM(foundry_sim_live)("physical"), 0u);
}

TEST_F(Memory, ShareableHandles) {
  CUmemGenericAllocationHandle plain = create(kGranule),
                               shared = create(kGranule, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  int file = -1;
  EXPECT_EQ(SIM(cuMemExportToShareableHandle)(&file, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  OK(SIM(cuMemExportToShareableHandle)(&file, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemGenericAllocationHandle imported;
  OK(SIM(cuMemImportFromShareableHandle)(&imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(file);
  CUdeviceptr at = reserve(2 * kGranule);
  OK(SIM(cuMemMap)(at, kGranule, 0, shared, 0));
  OK(SIM(cuMemMap)(at + kGranule, kGranule, 0, imported, 0));
  OK(access(at, 2 * kGranule));
  write(at, 99);
  EXPECT_EQ(read(at + kGranule), 99);
  OK(SIM(cuMemUnmap)(at, 2 * kGranule));
  for (auto handle : {plain, shared, imported}) OK(SIM(cuMemRelease)(handle));
}

TEST_F(Memory, PlainAllocations) {
  EXPECT_EQ(memory(2 * kMiB) % kGranule, 0u);
  CUdeviceptr small = memory(8);
  EXPECT_EQ(small % 512, 0u);
  CUdeviceptr base;
  std::size_t bytes;
  OK(SIM(cuMemGetAddressRange_v2)(&base, &bytes, small + 7));
  EXPECT_EQ(base, small);
  EXPECT_EQ(bytes, 8u);
  EXPECT_EQ(SIM(cuMemFree_v2)(small + 1), CUDA_ERROR_INVALID_VALUE);
  OK(SIM(cuMemFree_v2)(small));
  EXPECT_EQ(SIM(cuMemFree_v2)(small), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(logged("freed already"));
  EXPECT_EQ(SIM(cuMemFree_v2)(0), CUDA_SUCCESS);
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&base, 0), CUDA_ERROR_INVALID_VALUE);
  std::size_t pitch;
  OK(SIM(cuMemAllocPitch_v2)(&base, &pitch, 700, 3, 4));
  EXPECT_EQ(pitch, 1024u);
}

TEST_F(Memory, OutOfMemoryAtTheDevicesSize) {
  std::size_t available, total;
  OK(SIM(cuMemGetInfo_v2)(&available, &total));
  EXPECT_EQ(total, std::size_t{85029158912});
  CUdeviceptr big, more;
  OK(SIM(cuMemAlloc_v2)(&big, available - 4 * kMiB));
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&more, 8 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  std::size_t left;
  OK(SIM(cuMemGetInfo_v2)(&left, nullptr));
  EXPECT_EQ(left, 4 * kMiB);
  OK(SIM(cuMemFree_v2)(big));
  OK(SIM(cuMemAlloc_v2)(&more, 8 * kMiB));
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&more, SIZE_MAX - 100), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Memory, StreamOrdered) {
  CUdeviceptr at;
  OK(SIM(cuMemAllocAsync)(&at, 4096, stream));
  OK(SIM(cuMemsetD8Async)(at, 5, 4096, stream));
  OK(SIM(cuMemFreeAsync)(at, stream));
  EXPECT_EQ(SIM(cuMemFreeAsync)(at, stream), CUDA_ERROR_INVALID_VALUE);
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(SIM(foundry_sim_live)("pooled"), 0u);
  CUmemoryPool pool;
  OK(SIM(cuDeviceGetDefaultMemPool)(&pool, 0));
  cuuint64_t used = 1;
  OK(SIM(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(used, 0u);
}

TEST_F(Memory, HostMemory) {
  void* pinned;
  OK(SIM(cuMemHostAlloc)(&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE));
  CUdeviceptr device;
  OK(SIM(cuMemHostGetDevicePointer_v2)(&device, pinned, 0));
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(pinned));
  unsigned type = 0;
  OK(SIM(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 9));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  OK(SIM(cuMemFreeHost)(pinned));
  EXPECT_EQ(SIM(cuMemFreeHost)(pinned), CUDA_ERROR_INVALID_VALUE);

  std::vector<char> mine(10000);
  OK(SIM(cuMemHostRegister_v2)(mine.data(), mine.size(), 0));
  EXPECT_EQ(SIM(cuMemHostRegister_v2)(mine.data() + 5, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  OK(SIM(cuMemHostUnregister)(mine.data()));
  EXPECT_EQ(SIM(cuMemHostUnregister)(mine.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(Memory, PointerAttributes) {
  CUdeviceptr at = memory(1000);
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_HOST_POINTER};
  unsigned type = 7;
  CUdeviceptr start = 7;
  std::size_t size = 7;
  void* host = &type;
  void* out[] = {&type, &start, &size, &host};
  OK(SIM(cuPointerGetAttributes)(4, which, out, at + 999));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(start, at);
  EXPECT_EQ(size, 1000u);
  EXPECT_EQ(host, nullptr);
  OK(SIM(cuPointerGetAttributes)(4, which, out, 0x1234));
  EXPECT_EQ(type, 0u) << "the driver does not know the address";
  EXPECT_EQ(SIM(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 1000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuPointerGetAttribute)(&type, static_cast<CUpointer_attribute>(99), at), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(logged("unknown pointer attribute 99"));
}

TEST_F(Memory, LegacyIpcIsNotSupported) {
  CUipcMemHandle handle;
  EXPECT_EQ(SIM(cuIpcGetMemHandle)(&handle, memory(4096)), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(Memory, CopiesOfEveryShape) {
  CUdeviceptr a = memory(4096), b = memory(4096);
  std::vector<int> host(1024);
  for (int i = 0; i < 1024; ++i) host[i] = i;
  OK(SIM(cuMemcpyHtoD_v2)(a, host.data(), 4096));
  OK(SIM(cuMemcpyDtoD_v2)(b, a, 4096));
  EXPECT_EQ(read(b, 1023), 1023);
  OK(SIM(cuMemcpy)(reinterpret_cast<CUdeviceptr>(host.data()), b + 4, 4));
  EXPECT_EQ(host[0], 1) << "the kind follows from the addresses";

  CUDA_MEMCPY2D part = {};
  part.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  part.srcDevice = a;
  part.srcPitch = 256;
  part.srcXInBytes = 8;
  part.srcY = 1;
  part.dstMemoryType = CU_MEMORYTYPE_HOST;
  part.dstHost = host.data();
  part.dstPitch = 16;
  part.WidthInBytes = 8;
  part.Height = 3;
  OK(SIM(cuMemcpy2D_v2)(&part));
  EXPECT_EQ(host[0], 64 + 2);
  EXPECT_EQ(host[4], 128 + 2);
  EXPECT_EQ(host[9], 192 + 3);
  part.srcPitch = 8;
  EXPECT_EQ(SIM(cuMemcpy2D_v2)(&part), CUDA_ERROR_INVALID_VALUE);

  OK(SIM(cuMemsetD2D32_v2)(a, 64, 7, 2, 3));
  EXPECT_EQ(read(a, 0), 7);
  EXPECT_EQ(read(a, 1), 7);
  EXPECT_EQ(read(a, 2), 2);
  EXPECT_EQ(read(a, 33), 7);
  OK(SIM(cuMemsetD16_v2)(a, 0x1234, 3));
  EXPECT_EQ(read(a, 0), 0x12341234);
}

TEST_F(Memory, BadAddressesAreErrorsNotCrashes) {
  CUdeviceptr at = memory(4096);
  char byte = 0;
  EXPECT_EQ(SIM(cuMemcpyDtoH_v2)(&byte, 0x1234, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuMemcpyHtoD_v2)(at, reinterpret_cast<void*>(0x1234), 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuMemcpyDtoH_v2)(reinterpret_cast<void*>(0x1234), at, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuMemcpyHtoDAsync_v2)(at, reinterpret_cast<void*>(0x1234), 16, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuMemsetD8_v2)(at, 0, 4097), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuMemcpyDtoD_v2)(at, at + 4000, 200), CUDA_ERROR_INVALID_VALUE);
  void* read_only = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(SIM(cuMemcpyDtoH_v2)(read_only, at, 16), CUDA_ERROR_INVALID_VALUE);
  munmap(read_only, 4096);
  OK(SIM(cuCtxSynchronize)());
}

TEST_F(Memory, QueuedCopyFromMemoryThatIsGoneBreaksTheContext) {
  CUdeviceptr at = reserve(kGranule), to = memory(64);
  CUmemGenericAllocationHandle handle = create(kGranule);
  OK(SIM(cuMemMap)(at, kGranule, 0, handle, 0));
  OK(access(at, kGranule));
  OK(SIM(cuLaunchHostFunc)(stream, [](void*) { usleep(50000); }, nullptr));
  OK(SIM(cuMemcpyDtoDAsync_v2)(to, at, 64, stream));
  OK(SIM(cuMemUnmap)(at, kGranule));
  EXPECT_EQ(SIM(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&to, 64), CUDA_ERROR_ILLEGAL_ADDRESS) << "the context stays broken";
  OK(SIM(cuMemRelease)(handle));
}

TEST_F(Memory, PageableSourceIsReadAtTheCall) {
  CUdeviceptr at = memory(64);
  int value = 1;
  OK(SIM(cuLaunchHostFunc)(stream, [](void*) { usleep(20000); }, nullptr));
  OK(SIM(cuMemcpyHtoDAsync_v2)(at, &value, 4, stream));
  value = 2;
  OK(SIM(cuStreamSynchronize)(stream));
  EXPECT_EQ(read(at), 1);
}

TEST_F(Memory, TextureObjectsOverLinearMemory) {
  CUDA_RESOURCE_DESC resource = {}, shown;
  CUDA_TEXTURE_DESC texture = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear = {memory(4096), CU_AD_FORMAT_FLOAT, 1, 4096};
  CUtexObject object;
  OK(SIM(cuTexObjectCreate)(&object, &resource, &texture, nullptr));
  OK(SIM(cuTexObjectGetResourceDesc)(&shown, object));
  EXPECT_EQ(shown.res.linear.devPtr, resource.res.linear.devPtr);
  OK(SIM(cuTexObjectDestroy)(object));
  EXPECT_EQ(SIM(cuTexObjectDestroy)(object), CUDA_ERROR_INVALID_VALUE);
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  EXPECT_EQ(SIM(cuTexObjectCreate)(&object, &resource, &texture, nullptr), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
