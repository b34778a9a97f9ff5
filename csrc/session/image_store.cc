#include "csrc/session/image_store.h"

#include <algorithm>
#include <optional>
#include <span>

#include "csrc/archive/elf_globals.h"
#include "csrc/archive/fatbin.h"
#include "csrc/archive/images.h"
#include "csrc/base/text.h"

namespace foundry::session {
namespace {

// Largest module variable whose content is stored.
constexpr uint64_t kMostGlobalBytes = uint64_t{256} << 20;

std::span<const std::byte> bytes_of(const foundry_image& image) {
  return {static_cast<const std::byte*>(image.data), static_cast<size_t>(image.bytes)};
}

Result<const foundry_image*> find(const std::vector<foundry_image>& images, uint64_t id) {
  const auto found = std::find_if(images.begin(), images.end(), [&](const foundry_image& image) { return image.id == id; });
  if (found == images.end()) {
    return Error{ErrorKind::state, 0,
                 format("code image %llu is no longer known to the hook", static_cast<unsigned long long>(id))};
  }
  return &*found;
}

// The machine code of an image that `capability` runs, as ELF; empty where there is none to look into (PTX).
Result<std::vector<std::vector<std::byte>>> machine_code(const foundry_image& image, uint32_t capability) {
  std::vector<std::vector<std::byte>> codes;
  const std::span<const std::byte> bytes = bytes_of(image);
  if (image.format == FOUNDRY_IMAGE_ELF) {
    codes.emplace_back(bytes.begin(), bytes.end());
  } else if (image.format == FOUNDRY_IMAGE_FATBIN) {
    FOUNDRY_ASSIGN(const archive::SlimImage slim, archive::slim(bytes, capability));
    if (slim.kept != archive::SlimImage::Kept::elf) return codes;
    FOUNDRY_ASSIGN(const auto entries, archive::fatbin_entries(slim.image));
    for (const archive::FatbinEntry& entry : entries) {
      if (entry.kind != static_cast<uint16_t>(archive::FatbinKind::elf)) continue;
      FOUNDRY_ASSIGN(auto code, archive::fatbin_payload(slim.image, entry));
      codes.push_back(std::move(code));
    }
  }
  return codes;
}

// Address and size of a variable by name; nullopt where the driver does not find it (never loaded, or local).
std::optional<std::pair<uint64_t, uint64_t>> locate(const driver::Driver& driver, const foundry_image& image,
                                                    const std::string& symbol) {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const CUresult code =
      image.is_library != 0
          ? driver.cuLibraryGetGlobal(&address, &bytes, static_cast<CUlibrary>(image.handle), symbol.c_str())
          : driver.cuModuleGetGlobal(&address, &bytes, static_cast<CUmodule>(image.handle), symbol.c_str());
  if (code != CUDA_SUCCESS) return std::nullopt;
  return std::pair<uint64_t, uint64_t>{address, bytes};
}

bool as_initial(const archive::ElfGlobal& global, std::span<const std::byte> content) {
  if (global.initialized) {
    return std::equal(content.begin(), content.end(), global.initial.begin(), global.initial.end());
  }
  return std::all_of(content.begin(), content.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

Result<ImageStoreReport> store_images(int directory, const Process& process, uint32_t capability,
                                      const std::vector<uint64_t>& image_ids, graph::GraphTables& tables) {
  ImageStoreReport report;
  const std::vector<foundry_image> images = process.images();
  for (size_t index = 0; index < image_ids.size(); ++index) {
    FOUNDRY_ASSIGN(const foundry_image* image, find(images, image_ids[index]));
    std::span<const std::byte> bytes = bytes_of(*image);
    archive::SlimImage slim;
    if (image->format == FOUNDRY_IMAGE_FATBIN) {
      FOUNDRY_ASSIGN(slim, archive::slim(bytes, capability));
      bytes = slim.image;
      if (slim.kept == archive::SlimImage::Kept::whole) report.notes.push_back(slim.note);
    }
    FOUNDRY_ASSIGN(const archive::StoredImage stored, archive::store_image(directory, bytes));
    archive::ImageRecord& record = tables.images[index];
    record.hash = stored.hash;
    record.bytes = stored.bytes;
    record.format = image->format;
    record.source = tables.graphs_strings.add(image->source != nullptr ? image->source : "");
    report.images += 1;
    if (!stored.existed) report.bytes += stored.bytes;
  }
  return report;
}

Result<std::vector<std::string>> read_module_globals(const Process& process, uint32_t capability,
                                                     const std::vector<uint64_t>& image_ids, graph::GraphTables& tables) {
  std::vector<std::string> notes;
  const std::vector<foundry_image> images = process.images();
  for (uint32_t index = 0; index < image_ids.size(); ++index) {
    FOUNDRY_ASSIGN(const foundry_image* image, find(images, image_ids[index]));
    if (image->loaded == 0) continue;
    auto codes = machine_code(*image, capability);
    if (!codes.ok()) {
      notes.push_back("module variables of " + std::string(image->source) + " were not read: " + codes.error().text);
      continue;
    }
    for (const std::vector<std::byte>& code : codes.value()) {
      const auto globals = archive::elf_globals(code);
      if (!globals.ok()) {
        notes.push_back("module variables of " + std::string(image->source) + " were not read: " + globals.error().text);
        continue;
      }
      for (const archive::ElfGlobal& global : globals.value()) {
        if (global.bytes == 0) continue;
        const auto place = locate(process.driver(), *image, global.symbol);
        if (!place) continue;
        archive::ModuleGlobalRecord record{};
        record.symbol = tables.graphs_strings.add(global.symbol);
        record.image = index;
        record.bytes = place->second;
        record.address = place->first;
        record.content = ~uint64_t{0};
        if (record.bytes > kMostGlobalBytes) {
          return Error{ErrorKind::unsupported, 0,
                       format("module variable %s has %s; at most %s can be kept", global.symbol.c_str(),
                              bytes_text(record.bytes).c_str(), bytes_text(kMostGlobalBytes).c_str())};
        }
        std::vector<std::byte> content(record.bytes);
        FOUNDRY_CU(process.driver(), cuMemcpyDtoH, content.data(), record.address, content.size());
        if (!as_initial(global, content)) {
          record.content = tables.global_content.size();
          tables.global_content.insert(tables.global_content.end(), content.begin(), content.end());
        }
        tables.module_globals.push_back(record);
      }
    }
  }
  return notes;
}

}  // namespace foundry::session
