#include "csrc/archive/content.h"

#include <boost/unordered/unordered_flat_map.hpp>

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/archive/hash.h"
#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

// The hash is good already; only the table's index must be made of it.
struct HashBytes {
  size_t operator()(const Hash128& hash) const {
    size_t out;
    std::memcpy(&out, hash.bytes, sizeof out);
    return out;
  }
};

bool all_zero(std::span<const std::byte> bytes) {
  return bytes.empty() ||
         (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

struct Unit {
  uint64_t stored = 0, stored_bytes = 0;
  Encoding encoding = Encoding::raw;
  uint64_t decoded_bytes = 0;
};

struct Place {
  size_t unit;
  uint64_t offset, bytes;
};

struct Placed {
  uint64_t address, bytes;
  size_t unit;
  uint64_t offset;
};

struct FreeCompressor {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

Error compression_failed(size_t code) {
  return {ErrorKind::io, 0, std::string("zstd cannot compress memory content: ") + ZSTD_getErrorName(code) + "."};
}

Error damaged(size_t record, const std::string& why) {
  return {
      ErrorKind::corrupt, 0,
      format("section content_blocks, record %zu: ", record) + why + ". The file is damaged; write the archive again."};
}

}  // namespace

struct ContentWriter::State {
  FileWriter* file;
  ContentOptions options;
  ContentSections sections;
  ContentStatistics statistics;
  std::vector<Placed> placed;
  std::vector<Unit> units;         // written ones; the pending unit has the index units.size()
  std::vector<std::byte> pending;  // new blocks of the unit being filled
  std::vector<std::byte> scratch;
  boost::unordered_flat_map<Hash128, Place, HashBytes> known;
  std::unique_ptr<ZSTD_CCtx, FreeCompressor> compressor{ZSTD_createCCtx()};

  // Decoded units that equal blocks are compared with, most recently used first.
  struct Decoded {
    size_t unit;
    std::vector<std::byte> bytes;
  };
  static constexpr size_t kMostDecoded = 8;
  std::vector<Decoded> decoded;

  Status add_block(uint64_t address, std::span<const std::byte> block);
  Result<bool> is_at(const Place& place, std::span<const std::byte> block);
  Result<std::span<const std::byte>> decoded_unit(size_t unit);
  void place(uint64_t address, const Place& at);
  Status flush();
};

Status ContentWriter::State::add_block(uint64_t address, std::span<const std::byte> block) {
  statistics.bytes_seen += block.size();
  if (all_zero(block)) {
    statistics.zero_bytes += block.size();
    return success();
  }
  const Hash128 key = hash(block);
  const auto found = known.find(key);
  if (found != known.end()) {
    FOUNDRY_ASSIGN(const bool equal, is_at(found->second, block));
    if (equal) {
      statistics.equal_bytes += block.size();
      place(address, found->second);
      return success();
    }
  }
  if (pending.size() + block.size() > kContentUnitBytes) FOUNDRY_TRY(flush());
  const Place at{units.size(), pending.size(), block.size()};
  pending.insert(pending.end(), block.begin(), block.end());
  known.insert_or_assign(key, at);
  place(address, at);
  return success();
}

// Equal hashes are not taken for equal content.
Result<bool> ContentWriter::State::is_at(const Place& place, std::span<const std::byte> block) {
  if (place.bytes != block.size()) return false;
  std::span<const std::byte> stored;
  if (place.unit == units.size()) {
    stored = pending;
  } else if (units[place.unit].encoding == Encoding::raw) {
    scratch.resize(block.size());
    FOUNDRY_TRY(file->read_back(units[place.unit].stored + place.offset, scratch));
    return std::equal(block.begin(), block.end(), scratch.begin());
  } else {
    FOUNDRY_ASSIGN(stored, decoded_unit(place.unit));
  }
  return std::memcmp(stored.data() + place.offset, block.data(), block.size()) == 0;
}

Result<std::span<const std::byte>> ContentWriter::State::decoded_unit(size_t unit) {
  auto at = std::find_if(decoded.begin(), decoded.end(), [unit](const Decoded& d) { return d.unit == unit; });
  if (at == decoded.end()) {
    const Unit& source = units[unit];
    scratch.resize(source.stored_bytes);
    FOUNDRY_TRY(file->read_back(source.stored, scratch));
    Decoded fresh{unit, std::vector<std::byte>(source.decoded_bytes)};
    const size_t size = ZSTD_decompress(fresh.bytes.data(), fresh.bytes.size(), scratch.data(), scratch.size());
    if (size != source.decoded_bytes) {
      return Error{ErrorKind::io, 0,
                   "Content that was just written cannot be read back; the disk or memory is faulty."};
    }
    if (decoded.size() == kMostDecoded) decoded.pop_back();
    at = decoded.insert(decoded.end(), std::move(fresh));
  }
  std::rotate(decoded.begin(), at, at + 1);
  return std::span<const std::byte>(decoded.front().bytes);
}

void ContentWriter::State::place(uint64_t address, const Place& at) {
  if (!placed.empty()) {
    Placed& last = placed.back();
    if (last.unit == at.unit && last.address + last.bytes == address && last.offset + last.bytes == at.offset) {
      last.bytes += at.bytes;
      return;
    }
  }
  placed.push_back({address, at.bytes, at.unit, at.offset});
}

Status ContentWriter::State::flush() {
  if (pending.empty()) return success();
  Unit unit;
  unit.decoded_bytes = pending.size();
  std::span<const std::byte> bytes = pending;
  if (options.compress) {
    scratch.resize(ZSTD_compressBound(pending.size()));
    const size_t size = ZSTD_compressCCtx(compressor.get(), scratch.data(), scratch.size(), pending.data(),
                                          pending.size(), options.level);
    if (ZSTD_isError(size)) return compression_failed(size);
    if (static_cast<double>(size) <= (1.0 - options.least_saving) * static_cast<double>(pending.size())) {
      unit.encoding = Encoding::zstd;
      bytes = std::span(scratch).first(size);
    }
  }
  unit.stored_bytes = bytes.size();
  FOUNDRY_ASSIGN(unit.stored, file->append(bytes));
  units.push_back(unit);
  pending.clear();
  return success();
}

ContentWriter::ContentWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ContentWriter::ContentWriter(ContentWriter&&) noexcept = default;
ContentWriter& ContentWriter::operator=(ContentWriter&&) noexcept = default;
ContentWriter::~ContentWriter() = default;

Result<ContentWriter> ContentWriter::create(FileWriter& file, const ContentOptions& options,
                                            const ContentSections& sections) {
  auto state = std::make_unique<State>();
  state->file = &file;
  state->options = options;
  state->sections = sections;
  if (!state->compressor) return Error{ErrorKind::out_of_memory, 0, "There is no host memory for compressing."};
  state->pending.reserve(kContentUnitBytes);
  FOUNDRY_TRY(file.begin(sections.content));
  return ContentWriter(std::move(state));
}

Status ContentWriter::add(uint64_t address, std::span<const std::byte> bytes) {
  if (address + bytes.size() < address) {
    return Error{ErrorKind::invalid, 0, "Content at " + foundry::hex(address) + " reaches beyond the address space."};
  }
  while (!bytes.empty()) {
    const size_t take = std::min<uint64_t>(bytes.size(), kContentBlockBytes - address % kContentBlockBytes);
    FOUNDRY_TRY(state_->add_block(address, bytes.first(take)));
    address += take;
    bytes = bytes.subspan(take);
  }
  return success();
}

void ContentWriter::add_zeros(uint64_t bytes) {
  state_->statistics.bytes_seen += bytes;
  state_->statistics.zero_bytes += bytes;
}

Result<ContentStatistics> ContentWriter::finish() {
  State& state = *state_;
  FOUNDRY_TRY(state.flush());
  FOUNDRY_TRY(state.file->end());
  std::vector<ContentRecord> records;
  records.reserve(state.placed.size());
  for (const Placed& placed : state.placed) {
    const Unit& unit = state.units[placed.unit];
    ContentRecord record{};
    record.address = placed.address;
    record.bytes = placed.bytes;
    record.encoding = static_cast<uint32_t>(unit.encoding);
    if (unit.encoding == Encoding::raw) {
      record.stored = unit.stored + placed.offset;
      record.stored_bytes = placed.bytes;
    } else {
      record.stored = unit.stored;
      record.stored_bytes = unit.stored_bytes;
      record.decoded_offset = static_cast<uint32_t>(placed.offset);
    }
    records.push_back(record);
  }
  for (const Unit& unit : state.units) state.statistics.stored_bytes += unit.stored_bytes;
  state.statistics.records = records.size();
  state.statistics.units = state.units.size();
  FOUNDRY_TRY(state.file->put_raw(state.sections.blocks, std::as_bytes(std::span(records))));
  return state.statistics;
}

Result<std::vector<ContentUnit>> content_units(std::span<const ContentRecord> records,
                                               std::span<const std::byte> content) {
  std::vector<ContentUnit> units;
  boost::unordered_flat_map<std::pair<uint64_t, uint64_t>, size_t> index;
  for (size_t i = 0; i < records.size(); ++i) {
    const ContentRecord& record = records[i];
    if (record.bytes == 0 || record.bytes > kContentUnitBytes || record.address + record.bytes < record.address) {
      return damaged(i, "its size or address is impossible");
    }
    if (record.stored > content.size() || record.stored_bytes > content.size() - record.stored) {
      return damaged(i, "its bytes lie outside section content");
    }
    const auto encoding = static_cast<Encoding>(record.encoding);
    if (encoding != Encoding::raw && encoding != Encoding::zstd) {
      return damaged(i, format("its encoding %u is unknown", record.encoding));
    }
    const auto [at, fresh] = index.try_emplace({record.stored, record.stored_bytes}, units.size());
    if (fresh) {
      ContentUnit unit;
      unit.stored = record.stored;
      unit.stored_bytes = record.stored_bytes;
      unit.encoding = encoding;
      unit.decoded_bytes = record.stored_bytes;
      if (encoding == Encoding::zstd) {
        unit.decoded_bytes = ZSTD_getFrameContentSize(content.data() + record.stored, record.stored_bytes);
        if (unit.decoded_bytes > kContentUnitBytes) {  // also ZSTD_CONTENTSIZE_UNKNOWN and _ERROR
          return damaged(i, "its zstd frame does not state a size within the limit");
        }
      }
      units.push_back(std::move(unit));
    }
    ContentUnit& unit = units[at->second];
    if (unit.encoding != encoding) return damaged(i, "another record reads the same bytes in another encoding");
    if (encoding == Encoding::raw && (record.decoded_offset != 0 || record.bytes != record.stored_bytes)) {
      return damaged(i, "its sizes do not agree");
    }
    if (record.decoded_offset > unit.decoded_bytes || record.bytes > unit.decoded_bytes - record.decoded_offset) {
      return damaged(i, "it lies outside its decoded unit");
    }
    unit.pieces.push_back({record.address, record.bytes, record.decoded_offset});
  }
  return units;
}

Status decode_unit(const ContentUnit& unit, std::span<const std::byte> content, std::span<std::byte> out) {
  if (out.size() < unit.decoded_bytes || unit.stored > content.size() ||
      unit.stored_bytes > content.size() - unit.stored) {
    return Error{ErrorKind::invalid, 0, "A unit of memory content does not fit its buffer or its section."};
  }
  const std::span<const std::byte> stored = content.subspan(unit.stored, unit.stored_bytes);
  if (unit.encoding == Encoding::raw) {
    std::copy(stored.begin(), stored.end(), out.begin());
    return success();
  }
  const size_t size = ZSTD_decompress(out.data(), unit.decoded_bytes, stored.data(), stored.size());
  if (size == unit.decoded_bytes) return success();  // an error code is no size that a unit can have
  return Error{ErrorKind::corrupt, 0,
               format("section content, unit at %llu: ", static_cast<unsigned long long>(unit.stored)) +
                   (ZSTD_isError(size) ? ZSTD_getErrorName(size) : "it decodes to another size") +
                   ". The file is damaged; write the archive again."};
}

std::span<const std::byte> raw_unit(const ContentUnit& unit, std::span<const std::byte> content) {
  if (unit.encoding != Encoding::raw || unit.stored > content.size() ||
      unit.stored_bytes > content.size() - unit.stored)
    return {};
  return content.subspan(unit.stored, unit.stored_bytes);
}

}  // namespace foundry::archive
