// The table against the library: exports, cuGetProcAddress, versions, counters.
#include <cstring>
#include <set>

#include "tests/unit/sim/sim.h"

namespace {

struct Row {
  const char *base, *symbol;
  int since;
  const char* suffix;
};
const Row kRows[] = {
#define F(base, symbol, since) {#base, #symbol, since, nullptr},
#define P(base, symbol, since, suffix) {#base, #symbol, since, #suffix},
#include "csrc/sim/api_table.inc"
#undef F
#undef P
};

void* look_up(const char* name, int version, cuuint64_t flags = 0, CUdriverProcAddressQueryResult* status = nullptr) {
  void* found = nullptr;
  EXPECT_EQ(SIM(cuGetProcAddress_v2)(name, &found, version, flags, status), CUDA_SUCCESS);
  return found;
}

TEST(Table, EveryRowIsExportedAndIsWhatProcAddressHandsOut) {
  for (const Row& row : kRows) {
    void* exported = sim_symbol(row.symbol);
    ASSERT_NE(exported, nullptr) << row.symbol;
    EXPECT_EQ(look_up(row.base, row.since), exported) << row.symbol;
    if (row.suffix == nullptr) continue;
    void* per_thread = sim_symbol((std::string(row.symbol) + "_" + row.suffix).c_str());
    ASSERT_NE(per_thread, nullptr) << row.symbol;
    int version = row.since < 7000 ? 7000 : row.since;
    EXPECT_EQ(look_up(row.base, version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM), per_thread) << row.symbol;
    EXPECT_EQ(look_up(row.base, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM), exported) << row.symbol;
  }
}

TEST(Table, RowsOfOneBaseStandInTheOrderOfVersions) {
  for (const Row& row : kRows) {
    for (const Row& later : kRows) {
      if (&later <= &row || std::strcmp(later.base, row.base) != 0) continue;
      EXPECT_GT(later.since, row.since) << later.symbol;
    }
  }
}

TEST(Table, SymbolListIsComplete) {
  std::set<std::string> listed;
  for (std::size_t i = 0; i < SIM(foundry_sim_symbol_count)(); ++i) listed.insert(SIM(foundry_sim_symbol)(i));
  for (const Row& row : kRows) EXPECT_TRUE(listed.count(row.symbol)) << row.symbol;
  EXPECT_EQ(SIM(foundry_sim_symbol)(listed.size()), nullptr);
}

TEST(ProcAddress, VersionChoosesTheAbi) {
  EXPECT_EQ(look_up("cuGraphAddKernelNode", 11080), sim_symbol("cuGraphAddKernelNode"));
  EXPECT_EQ(look_up("cuGraphAddKernelNode", 12000), sim_symbol("cuGraphAddKernelNode_v2"));
  EXPECT_EQ(look_up("cuGraphInstantiate", 11020), sim_symbol("cuGraphInstantiate_v2"));
  EXPECT_EQ(look_up("cuGraphInstantiate", 12000), sim_symbol("cuGraphInstantiateWithFlags"));
  EXPECT_EQ(look_up("cuGraphInstantiateWithFlags", 11040), sim_symbol("cuGraphInstantiateWithFlags"));
  EXPECT_EQ(look_up("cuStreamGetCaptureInfo", 12030), sim_symbol("cuStreamGetCaptureInfo_v3"));
}

TEST(ProcAddress, StatusSaysWhyNot) {
  CUdriverProcAddressQueryResult status;
  EXPECT_EQ(look_up("cuNoSuchThing", 13000, 0, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(look_up("cuLibraryLoadData", 11080, 0, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_NE(look_up("cuLibraryLoadData", 12000, 0, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(look_up("cuMemAlloc_v2", 13000, 0, &status), nullptr) << "names are base names";

  void* found = nullptr;
  EXPECT_EQ(SIM(cuGetProcAddress_v2)("cuInit", &found, 99000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuGetProcAddress_v2)("cuInit", &found, 13000, 4, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SIM(cuGetProcAddress)("cuNoSuchThing", &found, 13000, 0), CUDA_ERROR_NOT_FOUND);
}

TEST(Errors, NamesAndTexts) {
  const char* text = nullptr;
  EXPECT_EQ(SIM(cuGetErrorName)(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED");
  EXPECT_EQ(SIM(cuGetErrorString)(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(SIM(cuGetErrorName)(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

TEST(Init, NothingWorksBefore) {
  int count = 0;
  EXPECT_EQ(SIM(cuDeviceGetCount)(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(SIM(cuDriverGetVersion)(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 13000);
  const void* table = &count;
  CUuuid id = {};
  EXPECT_EQ(SIM(cuGetExportTable)(&table, &id), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(table, nullptr);
}

using Counters = SimTest;

TEST_F(Counters, CountBySpellingAndByBase) {
  SIM(foundry_sim_calls_clear)();
  CUdeviceptr at = memory(64);
  OK(SIM(cuMemsetD8Async)(at, 1, 64, stream));
  OK(SIM(cuMemsetD8Async_ptsz)(at, 1, 64, stream));
  EXPECT_EQ(SIM(foundry_sim_calls)("cuMemAlloc_v2"), 1u);
  EXPECT_EQ(SIM(foundry_sim_calls)("cuMemAlloc"), 1u);
  EXPECT_EQ(SIM(foundry_sim_calls)("cuMemsetD8Async"), 2u) << "a base name counts all spellings";
  EXPECT_EQ(SIM(foundry_sim_calls)("cuMemsetD8Async_ptsz"), 1u);
  EXPECT_EQ(SIM(foundry_sim_calls)("cuNoSuchThing"), UINT64_MAX);
}

using Faults = SimTest;

TEST_F(Faults, TheNthCallFails) {
  ASSERT_EQ(SIM(foundry_sim_set_faults)("cuMemAlloc:2:2;cuStreamCreate:2+:CUDA_ERROR_NOT_PERMITTED"), 0);
  CUdeviceptr a, b, c;
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&a, 64), CUDA_SUCCESS);
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&b, 64), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&c, 64), CUDA_SUCCESS);
  CUstream s;
  EXPECT_EQ(SIM(cuStreamCreate)(&s, 0), CUDA_SUCCESS);
  EXPECT_EQ(SIM(cuStreamCreate)(&s, 0), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(SIM(cuStreamCreate)(&s, 0), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_TRUE(logged("cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY: fault on demand"));
}

TEST_F(Faults, AllocationsPastASizeFail) {
  ASSERT_EQ(SIM(foundry_sim_set_faults)("alloc>1000000"), 0);
  CUdeviceptr at;
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&at, 1000000), CUDA_SUCCESS);
  EXPECT_EQ(SIM(cuMemAlloc_v2)(&at, 1000001), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Faults, DelaysDelay) {
  ASSERT_EQ(SIM(foundry_sim_set_faults)("cuCtxGetFlags:1:delay=30"), 0);
  auto start = std::chrono::steady_clock::now();
  unsigned flags;
  OK(SIM(cuCtxGetFlags)(&flags));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
}

TEST_F(Faults, NonsenseIsRefused) {
  for (const char* spec :
       {"cuNoSuchThing:1:2", "cuMemAlloc:0:2", "cuMemAlloc:1", "cuMemAlloc:1:CUDA_ERROR_X", "alloc>x"}) {
    EXPECT_EQ(SIM(foundry_sim_set_faults)(spec), -1) << spec;
  }
  EXPECT_EQ(SIM(foundry_sim_set_traps)("edge-data,other"), -1);
}

}  // namespace
