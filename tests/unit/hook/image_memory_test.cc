// Finding the file that memory belongs to, and reading memory that may not be there.
#include "csrc/hook/image_memory.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace foundry::hook {
namespace {

const char kConstant[64] = "in the read-only data of the program";
char g_writable[64] = "in its data";

TEST(MappedFile, ConstantsOfTheProgram) {
  const auto file = mapped_file(kConstant);
  ASSERT_TRUE(file.has_value());
  EXPECT_FALSE(file->writable);
  EXPECT_GE(file->bytes, sizeof kConstant);
}

TEST(MappedFile, WritableDataIsSaidToBeWritable) {
  const auto file = mapped_file(g_writable);
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->writable);
}

TEST(MappedFile, LibraryHasAPathThatKeepsItLoaded) {
  const auto file = mapped_file(reinterpret_cast<const void*>(&std::strtol));
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(keep_loaded(file->path));  // "" where libc is part of the program
  EXPECT_FALSE(keep_loaded("/no/such/library.so"));
  EXPECT_EQ(dlerror(), nullptr);  // the failed try is not the application's
}

TEST(MappedFile, HeapBelongsToNone) {
  const std::string heap(1000, 'h');
  EXPECT_FALSE(mapped_file(heap.data()).has_value());
}

TEST(CopyMemory, UnreadableMemoryIsNoFault) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* pages = static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
  pages[page - 1] = 'e';
  char out[2] = {};
  EXPECT_TRUE(copy_memory(pages + page - 1, out, 1));
  EXPECT_EQ(out[0], 'e');
  EXPECT_FALSE(copy_memory(pages + page - 1, out, 2));
  EXPECT_FALSE(copy_memory(pages + page, out, 1));
  munmap(pages, 2 * page);
}

TEST(ReadFile, WholeOrNot) {
  const std::string path = testing::TempDir() + "/image";
  std::ofstream(path) << "0123456789";
  EXPECT_EQ(read_file(path.c_str(), 10), "0123456789");
  EXPECT_FALSE(read_file(path.c_str(), 9).has_value());
  EXPECT_FALSE(read_file((path + ".none").c_str(), 10).has_value());
}

}  // namespace
}  // namespace foundry::hook
