#include "csrc/archive/writer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "csrc/archive/packing.h"
#include "csrc/base/text.h"

namespace foundry::archive {
namespace {

Error refused(const std::string& file, const std::string& why) {
  return {ErrorKind::invalid, 0, "Writing " + file + ": " + why + "."};
}

}  // namespace

Result<FileWriter> FileWriter::create(int directory, const std::string& name, FileKind kind) {
  FileWriter out;
  FOUNDRY_ASSIGN(out.fd_, create_file_below(directory, name));
  out.name_ = name;
  out.kind_ = kind;
  out.position_ = sizeof(FileHeader);
  return out;
}

Status FileWriter::usable(Section section) const {
  const SectionInfo& info = section_info(section);
  if (finished_) return refused(name_, "it is finished");
  if (streaming_)
    return refused(name_, std::string("section ") + section_info(Section{current_.type}).name + " is still open");
  if (info.kind != kind_)
    return refused(name_,
                   std::string("section ") + info.name + " does not belong into a " + kind_name(kind_) + " file");
  for (const SectionEntry& entry : directory_) {
    if (entry.type == info.number())
      return refused(name_, std::string("section ") + info.name + " was written already");
  }
  return success();
}

Status FileWriter::write(std::span<const std::byte> bytes) {
  FOUNDRY_TRY(write_all_at(fd_.get(), position_, bytes, name_));
  position_ += bytes.size();
  return success();
}

Status FileWriter::pad() {
  static constexpr std::byte kZeros[8] = {};
  return write(std::span(kZeros, (8 - position_ % 8) % 8));
}

Status FileWriter::begin(Section section) {
  FOUNDRY_TRY(usable(section));
  FOUNDRY_TRY(pad());
  const SectionInfo& info = section_info(section);
  current_ = {};
  current_.type = info.number();
  current_.version = info.version;
  current_.offset = position_;
  current_.record_bytes = info.record_bytes;
  hasher_ = {};
  streaming_ = true;
  return success();
}

Result<uint64_t> FileWriter::append(std::span<const std::byte> bytes) {
  if (!streaming_) return refused(name_, "no section is open");
  const uint64_t at = current_.bytes;
  FOUNDRY_TRY(write(bytes));
  hasher_.add(bytes);
  current_.bytes += bytes.size();
  return at;
}

Status FileWriter::read_back(uint64_t offset, std::span<std::byte> out) const {
  if (offset > current_.bytes || out.size() > current_.bytes - offset) {
    return refused(name_, "bytes are read back that were not written");
  }
  return read_exactly(fd_.get(), current_.offset + offset, out, name_);
}

Status FileWriter::end() {
  if (!streaming_) return refused(name_, "no section is open");
  const SectionInfo& info = section_info(Section{current_.type});
  if (current_.packing == static_cast<uint32_t>(Packing::none)) current_.count = current_.bytes / info.record_bytes;
  if (current_.packing == static_cast<uint32_t>(Packing::none) && current_.bytes % info.record_bytes != 0) {
    return refused(name_, std::string("section ") + info.name + " does not hold whole records");
  }
  if (current_.count > info.most_records) {
    return Error{
        ErrorKind::unsupported, 0,
        format("Writing %s: section %s has %llu records, the format allows %llu.", name_.c_str(), info.name,
               static_cast<unsigned long long>(current_.count), static_cast<unsigned long long>(info.most_records))};
  }
  current_.hash = hasher_.finish();
  directory_.push_back(current_);
  streaming_ = false;
  return success();
}

Status FileWriter::put_raw(Section section, std::span<const std::byte> bytes) {
  FOUNDRY_TRY(begin(section));
  // What is not whole records is left to end(), what is more than readers take to be stored as it is.
  const uint32_t record_bytes = section_info(section).record_bytes;
  if (compact_ && bytes.size() % record_bytes == 0 && bytes.size() <= kMostUnpackedBytes - unpacked_bytes_) {
    FOUNDRY_ASSIGN(const auto packed, pack(bytes));
    if (packed) {
      current_.packing = static_cast<uint32_t>(Packing::zstd);
      current_.count = bytes.size() / record_bytes;
      unpacked_bytes_ += bytes.size();
      FOUNDRY_TRY(append(*packed));
      return end();
    }
  }
  FOUNDRY_TRY(append(bytes));
  return end();
}

Result<WrittenFile> FileWriter::finish() {
  const SectionInfo* strings = strings_section(kind_);
  if (!strings_.problem().empty()) return refused(name_, strings_.problem());
  if (strings == nullptr && !strings_.bytes().empty()) {
    return refused(name_, std::string("a ") + kind_name(kind_) + " file holds no strings");
  }
  if (strings != nullptr) FOUNDRY_TRY(put_raw(strings->section, strings_.bytes()));
  for (const SectionInfo& info : kSections) {
    auto same = [&info](const SectionEntry& entry) { return entry.type == info.number(); };
    if (info.kind == kind_ && std::none_of(directory_.begin(), directory_.end(), same))
      FOUNDRY_TRY(put_raw(info.section, {}));
  }
  if (finished_ || streaming_) return refused(name_, finished_ ? "it is finished" : "a section is still open");
  FOUNDRY_TRY(pad());

  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.format_version = kFormatVersion;
  header.file_kind = static_cast<uint32_t>(kind_);
  header.directory_offset = position_;
  header.section_count = static_cast<uint32_t>(directory_.size());
  header.directory_hash = hash(std::as_bytes(std::span(directory_)));
  FOUNDRY_TRY(write(std::as_bytes(std::span(directory_))));
  header.file_bytes = position_;
  const std::span<const std::byte> raw = std::as_bytes(std::span(&header, 1));
  header.header_hash = hash(raw.first(offsetof(FileHeader, header_hash)));
  FOUNDRY_TRY(write_all_at(fd_.get(), 0, raw, name_));
  FOUNDRY_TRY(sync(fd_.get(), name_));
  finished_ = true;
  fd_.reset();
  return WrittenFile{name_, position_, header.header_hash};
}

}  // namespace foundry::archive
