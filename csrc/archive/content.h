// Content of materialized memory: 64 KiB blocks, zero ones dropped, equal ones once, neighbours compressed together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "csrc/archive/writer.h"
#include "csrc/base/result.h"

namespace foundry::archive {

inline constexpr uint64_t kContentBlockBytes = 64ull << 10;
// Blocks whose addresses follow each other are stored as one unit up to this size: large enough to compress well and
// to copy fast, small enough to restore units in parallel through a bounded buffer.
inline constexpr uint64_t kContentUnitBytes = 4ull << 20;

struct ContentOptions {
  bool compress = true;
  int level = 1;
  // A unit is stored raw unless compression saves at least this part of it: decompressing costs LOAD time.
  double least_saving = 0.10;
};

// Where content goes: a blob, and the records of its places.
struct ContentSections {
  Section content = Section::content;
  Section blocks = Section::content_blocks;
};

struct ContentStatistics {
  uint64_t bytes_seen = 0, zero_bytes = 0, equal_bytes = 0;
  uint64_t stored_bytes = 0;  // in the content section
  uint64_t records = 0, units = 0;
};

// Fills the sections `content` and `content_blocks` of a memory file, or another pair.
class ContentWriter {
 public:
  // Begins the writer's content section; nothing else can be written to the file until finish(). `file` must outlive
  // this.
  static Result<ContentWriter> create(FileWriter& file, const ContentOptions& options = {},
                                      const ContentSections& sections = {});
  ContentWriter(ContentWriter&&) noexcept;
  ContentWriter& operator=(ContentWriter&&) noexcept;
  ~ContentWriter();

  // Content of [address, address + bytes). Calls may come in any order of address and with any length; ranges of
  // different calls must not overlap (validate() refuses the file otherwise).
  Status add(uint64_t address, std::span<const std::byte> bytes);
  // Counts content that is known to be nothing but zeros: it is not stored.
  void add_zeros(uint64_t bytes);
  // Writes what is pending and the content_blocks section.
  Result<ContentStatistics> finish();

 private:
  struct State;
  explicit ContentWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// One stored unit and the places that its content goes to.
struct ContentUnit {
  struct Piece {
    uint64_t address = 0, bytes = 0;
    uint64_t offset = 0;  // within the decoded unit
  };
  uint64_t stored = 0, stored_bytes = 0;  // within the content section
  Encoding encoding = Encoding::raw;
  uint64_t decoded_bytes = 0;
  std::vector<Piece> pieces;
};

// Groups records by stored unit, in the order of first use, so that each unit is read and decoded once. Checks all
// bounds by itself: `corrupt` names the record.
Result<std::vector<ContentUnit>> content_units(std::span<const ContentRecord> records,
                                               std::span<const std::byte> content);

// Decodes a unit into `out`, which holds at least unit.decoded_bytes. May be called from several threads.
Status decode_unit(const ContentUnit& unit, std::span<const std::byte> content, std::span<std::byte> out);

// Raw units need no copy: their bytes within the content section; empty for an encoded unit.
std::span<const std::byte> raw_unit(const ContentUnit& unit, std::span<const std::byte> content);

}  // namespace foundry::archive
