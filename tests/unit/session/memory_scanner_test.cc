// The same answers wherever memory is looked at: on the device, or on the host where the simulated driver has no use
// for the device's code.
#include "csrc/session/memory_scanner.h"

#include <cstdlib>
#include <random>

#include "csrc/device/code.h"
#include "csrc/device/reference.h"
#include "tests/unit/session/device_fixture.h"

namespace foundry::session::testing {
namespace {

using device::AddressRange;
using device::BlockSummary;
using device::PointerHit;

constexpr uint64_t kBlock = device::kBlockBytes;
constexpr uint64_t kWindow = 0x113700000000, kWindowEnd = 0x113700400001;

std::vector<std::byte> noise(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& one : out) one = static_cast<std::byte>(random());
  return out;
}

class MemoryScannerTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (HasFatalFailure()) return;
    int major = 0, minor = 0;
    ASSERT_EQ(driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0), CUDA_SUCCESS);
    use(major == 9 && minor == 0 ? device::code_sm90() : device::code_sm80());
  }
  void TearDown() override {
    scanner.reset();
    DeviceTest::TearDown();
  }
  void use(const device::Code& code) {
    const auto bytes = [](const device::Fatbin& fatbin) { return std::as_bytes(std::span(fatbin.data, fatbin.bytes)); };
    auto made = MemoryScanner::create(driver, {bytes(code.block_summary), bytes(code.pointer_scan)});
    ASSERT_TRUE(made.ok()) << made.error().text;
    scanner = std::move(made).value();
    EXPECT_EQ(scanner->note(), "");
    EXPECT_EQ(scanner->on_device(), std::getenv("ON_DEVICE") != nullptr);
  }
  // Of [skip, skip + bytes) of what was uploaded.
  void expect_summaries(const std::vector<std::byte>& data, uint64_t address, size_t skip, size_t bytes) {
    auto found = scanner->summaries(address + skip, bytes);
    ASSERT_TRUE(found.ok()) << found.error().text;
    const std::vector<BlockSummary> expected = device::block_summaries(std::span(data).subspan(skip, bytes));
    ASSERT_EQ(found->size(), expected.size());
    EXPECT_EQ(std::memcmp(found->data(), expected.data(), expected.size() * sizeof(BlockSummary)), 0) << skip;
  }
  void expect_pointers(const std::vector<std::byte>& data, uint64_t address, size_t skip, size_t bytes,
                       std::span<const AddressRange> windows, size_t at_least) {
    auto found = scanner->pointers(address + skip, bytes, windows);
    ASSERT_TRUE(found.ok()) << found.error().text;
    const auto expected = device::pointer_scan(std::span(data).subspan(skip, bytes), address + skip, windows);
    EXPECT_GE(expected.size(), at_least);
    ASSERT_EQ(found->size(), expected.size());
    EXPECT_EQ(std::memcmp(found->data(), expected.data(), expected.size() * sizeof(PointerHit)), 0) << skip;
  }

  std::unique_ptr<MemoryScanner> scanner;
};

TEST_F(MemoryScannerTest, SummariesOfRandomZeroAndEqualBlocks) {
  std::vector<std::byte> data = noise(9 * 1024 * 1024 + 12345, 1);  // more than the host reads at once
  std::fill_n(data.begin() + 2 * kBlock, 3 * kBlock, std::byte{});
  std::fill_n(data.end() - 100, 100, std::byte{});
  std::copy_n(data.begin(), kBlock, data.begin() + 70 * kBlock);
  data[4 * kBlock - 1] = std::byte{1};  // the last byte of a block
  const uint64_t address = upload(data);
  for (const size_t skip : {size_t{0}, size_t{16}, size_t{4080}})
    expect_summaries(data, address, skip, data.size() - skip);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{7}, size_t{9}, size_t{65535}, size_t{65536}, size_t{65537}}) {
    expect_summaries(data, address, 0, bytes);
  }
  const auto blocks = scanner->summaries(address, data.size()).value();
  EXPECT_EQ(blocks[2].is_zero, 1u);
  EXPECT_EQ(blocks[3].is_zero, 0u);
  EXPECT_EQ(blocks[4].is_zero, 1u);
  EXPECT_EQ(blocks[70].fingerprint[0], blocks[0].fingerprint[0]);
  EXPECT_NE(blocks[71].fingerprint[0], blocks[1].fingerprint[0]);
  EXPECT_EQ(scanner->summaries(address + 8, 64).error().kind, ErrorKind::invalid);
}

TEST_F(MemoryScannerTest, PointersAtAnyOffset) {
  std::vector<std::byte> data = noise(5 * 1024 * 1024 + 3, 2);
  const auto put = [&](size_t at, uint64_t value) { std::memcpy(data.data() + at, &value, sizeof value); };
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) put(random() % (data.size() / 8) * 8, kWindow + random() % (kWindowEnd - kWindow));
  put(0, kWindow);
  put(4096, kWindowEnd - 1);  // the address just behind the window
  put(4104, kWindowEnd);
  put(4112, kWindow - 1);
  put(4 * 1024 * 1024 - 8, kWindow + 1);  // around a border of what the host reads at once
  put(4 * 1024 * 1024, kWindow + 2);
  put(8197, kWindow + 3);  // not aligned: no pointer
  put(data.size() / 8 * 8 - 8, kWindow + 4);
  const uint64_t address = upload(data);
  const AddressRange windows[] = {{0x10, 0x20}, {kWindow, kWindowEnd}, {0x7f0000000000, 0x7f0000001000}};
  for (const size_t skip : {0, 1, 4, 7, 8, 4095}) {
    expect_pointers(data, address, skip, data.size() - skip, windows, 900);
    expect_pointers(data, address, skip, data.size() - skip - 5, windows, 900);
  }
  for (const size_t bytes : {0, 7, 8, 15}) expect_pointers(data, address, 0, bytes, windows, bytes >= 8 ? 1 : 0);
  expect_pointers(data, address, 1, 14, windows, 0);
  expect_pointers(data, address, 0, data.size(), {}, 0);
}

// More than the device has room for.
TEST_F(MemoryScannerTest, EveryWordAPointer) {
  std::vector<std::byte> data(1 << 20);
  for (size_t at = 0; at < data.size(); at += 8) {
    const uint64_t value = kWindow + at;
    std::memcpy(data.data() + at, &value, sizeof value);
  }
  const AddressRange window[] = {{kWindow, kWindowEnd}};
  expect_pointers(data, upload(data), 0, data.size(), window, data.size() / 8);
}

TEST_F(MemoryScannerTest, AsManyWindowsAsAnArchiveHasZones) {
  const std::vector<uint64_t> words = {0x1000, 0x2000, 0x40000};
  const uint64_t address = upload(words);
  std::vector<AddressRange> windows;
  for (uint64_t i = 1; i <= MemoryScanner::kMostWindows; ++i) windows.push_back({0x1000 * i, 0x1000 * i + 8});
  EXPECT_EQ(scanner->pointers(address, 24, windows)->size(), 3u);
  windows.push_back({0, 1});
  EXPECT_EQ(scanner->pointers(address, 24, windows).error().kind, ErrorKind::invalid);
}

// PTX of sm_80 for everything newer.
TEST_F(MemoryScannerTest, TheBuildForOlderDevicesSaysTheSame) {
  use(device::code_sm80());
  const std::vector<std::byte> data = noise(3 * kBlock + 17, 4);
  expect_summaries(data, upload(data), 0, data.size());
}

TEST_F(MemoryScannerTest, WithoutCodeItIsTheHosts) {
  auto made = MemoryScanner::create(driver, {});
  ASSERT_TRUE(made.ok());
  scanner = std::move(made).value();
  EXPECT_FALSE(scanner->on_device());
  EXPECT_EQ(scanner->note(), "");
  const std::vector<std::byte> data = noise(5 * 1024 * 1024, 5);
  const uint64_t address = upload(data);
  expect_summaries(data, address, 0, data.size());
  const AddressRange all[] = {{0, UINT64_MAX}};
  expect_pointers(data, address, 3, data.size() - 3, all, data.size() / 8 - 1);
}

}  // namespace
}  // namespace foundry::session::testing
