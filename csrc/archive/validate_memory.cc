// Semantic checks of memory.fdry: zones, ranges, content, tensors.
#include <boost/unordered/unordered_flat_set.hpp>

#include <algorithm>
#include <string_view>
#include <vector>

#include "csrc/archive/checker.h"
#include "csrc/archive/content.h"
#include "csrc/archive/validate.h"

namespace foundry::archive {
namespace {

class MemoryValidator {
 public:
  explicit MemoryValidator(const File& file)
      : file_(file),
        check_(file),
        zones_(file.section<Section::zones>()),
        mapped_(file.section<Section::mapped>()),
        storages_(file.section<Section::storages>()),
        tensors_(file.section<Section::tensors>()),
        dims_(file.section<Section::dims>()) {}

  void run() {
    check_.strings();
    check_.zones<Section::zones>();
    allocations();
    mapped();
    content();
    storages();
    tensors();
  }

 private:
  struct Range {
    uint64_t begin, end;
    size_t record;
    uint32_t zone;
  };

  // [address, address + bytes) within the used part of its zone.
  Range in_zone(uint64_t address, uint64_t bytes, uint32_t zone, size_t record) {
    check_.index("zone", zone, Section::zones, zones_.size());
    const ZoneRecord& z = zones_[zone];
    uint64_t end = 0;
    check_.require(bytes > 0 && address >= z.base && add(address, bytes, &end) && end <= z.base + z.size,
                   "the range does not lie inside its zone");
    return {address, end, record, zone};
  }

  void no_overlap(Section section, std::vector<Range>& ranges) {
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].begin >= ranges[i - 1].end) continue;
      check_.at(section, ranges[i].record);
      check_.fail("it overlaps record " + std::to_string(ranges[i - 1].record));
    }
  }

  void allocations() {
    const auto records = file_.section<Section::allocations>();
    std::vector<Range> ranges;
    ranges.reserve(records.size());
    for (size_t i = 0; i < records.size(); ++i) {
      check_.at(Section::allocations, i);
      check_.reserved(records[i].reserved);
      ranges.push_back(in_zone(records[i].address, records[i].bytes, records[i].zone, i));
      check_.require(ranges.back().end <= zones_[records[i].zone].used_end, "it lies behind the used part of its zone");
    }
    no_overlap(Section::allocations, ranges);  // addresses are never handed out again during SAVE
  }

  void mapped() {
    ranges_.reserve(mapped_.size());
    for (size_t i = 0; i < mapped_.size(); ++i) {
      check_.at(Section::mapped, i);
      check_.reserved(mapped_[i].reserved);
      ranges_.push_back(in_zone(mapped_[i].address, mapped_[i].bytes, mapped_[i].zone, i));
      const uint32_t granularity = zones_[mapped_[i].zone].granularity;
      check_.require(mapped_[i].address % granularity == 0 && mapped_[i].bytes % granularity == 0,
                     "address or size is no multiple of the zone's granularity");
    }
    no_overlap(Section::mapped, ranges_);
    // Neighbours of one zone count as one range for what lies in them.
    std::vector<Range> merged;
    for (const Range& range : ranges_) {
      if (!merged.empty() && merged.back().end == range.begin && merged.back().zone == range.zone) {
        merged.back().end = range.end;
      } else {
        merged.push_back(range);
      }
    }
    ranges_ = std::move(merged);
  }

  bool is_mapped(uint64_t begin, uint64_t end) const {
    const auto next = std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                       [](uint64_t address, const Range& range) { return address < range.begin; });
    return next != ranges_.begin() && end <= std::prev(next)->end;
  }

  void content() {
    const auto records = file_.section<Section::content_blocks>();
    // Bounds within the content section, encodings, sizes.
    const auto units = content_units(records, file_.raw_section(Section::content));
    if (!units.ok()) throw Damage{{units.error().kind, 0, file_.name() + ", " + units.error().text}};
    std::vector<Range> ranges;
    ranges.reserve(records.size());
    for (size_t i = 0; i < records.size(); ++i) {
      const uint64_t end = records[i].address + records[i].bytes;  // checked by content_units()
      check_.at(Section::content_blocks, i);
      check_.require(is_mapped(records[i].address, end), "its memory is not mapped by any record of section mapped");
      ranges.push_back({records[i].address, end, i, 0});
    }
    no_overlap(Section::content_blocks, ranges);
  }

  void storages() {
    for (size_t i = 0; i < storages_.size(); ++i) {
      check_.at(Section::storages, i);
      check_.addresses("address and bytes", storages_[i].address, storages_[i].bytes);
    }
  }

  // Bytes from the first to behind the last element; fails where sizes or strides are impossible.
  uint64_t extent(const TensorRecord& tensor) {
    const auto dims = dims_.subspan(tensor.first_dim, 2 * size_t{tensor.dim_count});
    uint64_t elements = 1, last = 0;
    bool empty = false;
    for (size_t d = 0; d < tensor.dim_count; ++d) {
      const int64_t size = dims[d], stride = dims[tensor.dim_count + d];
      check_.require(size >= 0 && stride >= 0, "a size or stride is negative");
      empty = empty || size == 0;
      if (size == 0) continue;
      uint64_t step;
      check_.require(multiply(elements, static_cast<uint64_t>(size), &elements) && elements <= kHighestAddress &&
                         multiply(static_cast<uint64_t>(size) - 1, static_cast<uint64_t>(stride), &step) &&
                         add(last, step, &last) && last <= kHighestAddress,
                     "its sizes and strides are larger than any memory");
    }
    if (empty) return 0;
    uint64_t bytes;
    check_.require(multiply(last + 1, tensor.item_bytes, &bytes), "its sizes and strides are larger than any memory");
    return bytes;
  }

  void tensors() {
    boost::unordered_flat_set<std::string_view> anchors, exports;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const TensorRecord& tensor = tensors_[i];
      check_.at(Section::tensors, i);
      check_.text("name", tensor.name);
      check_.name("dtype", tensor.dtype);
      check_.require((tensor.flags & ~kKnownTensorFlags) == 0 && tensor.flags != 0, "its flags are unknown");
      const uint32_t anchor = tensor.flags & (kConstant | kMutable);
      check_.require(anchor != (kConstant | kMutable), "it is constant and mutable");
      if (anchor != 0) {
        check_.name("name", tensor.name);
        check_.require(anchors.insert(file_.view(tensor.name)).second, "another anchor has the same name");
      }
      if ((tensor.flags & kExport) != 0) {
        check_.name("name", tensor.name);
        check_.require(exports.insert(file_.view(tensor.name)).second, "another export has the same name");
      }
      check_.index("storage", tensor.storage, Section::storages, storages_.size());
      const StorageRecord& storage = storages_[tensor.storage];
      uint64_t end;
      check_.require(tensor.address >= storage.address && add(tensor.address, tensor.bytes, &end) &&
                         end <= storage.address + storage.bytes,
                     "it does not lie inside its storage");
      check_.require(tensor.dim_count <= kMostDims, "it has too many dimensions");
      check_.require(tensor.item_bytes >= 1 && tensor.item_bytes <= kMostItemBytes,
                     "its items have an impossible size");
      check_.range("dims", tensor.first_dim, 2 * uint64_t{tensor.dim_count}, Section::dims, dims_.size());
      check_.require(extent(tensor) <= tensor.bytes, "its sizes and strides reach beyond its bytes");
      if (tensor.anchor != kNone) {
        check_.index("anchor", tensor.anchor, Section::tensors, tensors_.size());
        check_.require((tensors_[tensor.anchor].flags & (kConstant | kMutable)) != 0, "its anchor is no anchor tensor");
      }
    }
  }

  const File& file_;
  Checker check_;
  std::span<const ZoneRecord> zones_;
  std::span<const MappedRecord> mapped_;
  std::span<const StorageRecord> storages_;
  std::span<const TensorRecord> tensors_;
  std::span<const int64_t> dims_;
  std::vector<Range> ranges_;  // mapped memory, sorted and merged
};

}  // namespace

void validate_memory(const File& file) { MemoryValidator(file).run(); }

}  // namespace foundry::archive
