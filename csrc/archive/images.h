// Content-addressed code images: images/<hash in hex>, written once, checked whenever they are read.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "csrc/archive/files.h"
#include "csrc/archive/hash.h"
#include "csrc/base/result.h"

namespace foundry::archive {

inline constexpr const char* kImagesDirectory = "images";
inline constexpr uint64_t kMostImageBytes = 1ull << 32;

struct StoredImage {
  Hash128 hash{};
  uint64_t bytes = 0;
  bool existed = false;  // an equal image was there already
};

// Stores the bytes as images/<hash> below the archive's (or staging) directory, which is made if it is missing.
// Safe against other processes that store the same image at the same time. fsynced.
Result<StoredImage> store_image(int archive, std::span<const std::byte> image);

// Reads images/<hash>; `bytes` is the size that its ImageRecord gives. Errors: `io`, or `corrupt` if size or content
// are other than they should be. A zero byte follows the end, as PTX text needs.
Result<PrivateMemory> read_image(int archive, const Hash128& hash, uint64_t bytes);

// "images/<hex>"
std::string image_file_name(const Hash128& hash);

}  // namespace foundry::archive
