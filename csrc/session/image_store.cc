#include "csrc/session/image_store.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "csrc/archive/elf_globals.h"
#include "csrc/archive/fatbin.h"
#include "csrc/archive/images.h"
#include "csrc/archive/ptx_variables.h"
#include "csrc/base/text.h"
#include "csrc/graph/restore.h"

namespace foundry::session {
namespace {

// Largest module variable whose content is stored.
constexpr uint64_t kMostGlobalBytes = uint64_t{256} << 20;

std::span<const std::byte> bytes_of(const foundry_image& image) {
  return {static_cast<const std::byte*>(image.data), static_cast<size_t>(image.bytes)};
}

Result<const foundry_image*> find(const std::vector<foundry_image>& images, uint64_t id) {
  const auto found =
      std::find_if(images.begin(), images.end(), [&](const foundry_image& image) { return image.id == id; });
  if (found == images.end()) {
    return Error{ErrorKind::state, 0,
                 format("code image %llu is no longer known to the hook", static_cast<unsigned long long>(id))};
  }
  return &*found;
}

// What the device runs of an image: its ELF entries, or the PTX that the driver compiles.
Result<std::vector<std::vector<std::byte>>> codes_of(const foundry_image& image, uint32_t capability) {
  std::vector<std::vector<std::byte>> codes;
  const std::span<const std::byte> bytes = bytes_of(image);
  if (image.format != FOUNDRY_IMAGE_FATBIN) {
    codes.emplace_back(bytes.begin(), bytes.end());
    return codes;
  }
  FOUNDRY_ASSIGN(const archive::SlimImage slim, archive::slim(bytes, capability));
  FOUNDRY_ASSIGN(const auto entries, archive::fatbin_entries(slim.image));
  for (const archive::FatbinEntry& entry : entries) {
    const auto wanted =
        slim.kept == archive::SlimImage::Kept::elf ? archive::FatbinKind::elf : archive::FatbinKind::ptx;
    if (entry.kind != static_cast<uint16_t>(wanted)) continue;
    FOUNDRY_ASSIGN(auto code, archive::fatbin_payload(slim.image, entry));
    codes.push_back(std::move(code));
  }
  return codes;
}

struct Variable {
  std::string symbol;
  // What it is before anybody writes it; nullopt where only the driver knows.
  std::optional<std::span<const std::byte>> initial;  // empty: zeros
};

// Variables of one code, ELF or PTX text.
Result<std::vector<Variable>> variables_of(std::span<const std::byte> code) {
  std::vector<Variable> variables;
  const std::string_view text(reinterpret_cast<const char*>(code.data()), code.size());
  if (!text.starts_with("\x7f"
                        "ELF")) {
    for (std::string& name : archive::ptx_variables(text)) variables.push_back({std::move(name), std::nullopt});
    return variables;
  }
  FOUNDRY_ASSIGN(const auto globals, archive::elf_globals(code));
  for (const archive::ElfGlobal& global : globals) {
    if (global.bytes != 0) variables.push_back({global.symbol, global.initial});
  }
  return variables;
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

bool as_initial(const Variable& variable, std::span<const std::byte> content) {
  if (!variable.initial) return false;
  if (!variable.initial->empty()) {
    return std::equal(content.begin(), content.end(), variable.initial->begin(), variable.initial->end());
  }
  return std::all_of(content.begin(), content.end(), [](std::byte b) { return b == std::byte{0}; });
}

std::string image_name(const foundry_image& image) {
  if (image.source != nullptr && image.source[0] != '\0') return image.source;
  return format("image %llu (%s)", static_cast<unsigned long long>(image.id), image.entry_point);
}

// An address of a zone among the words of a variable; 0 if there is none.
uint64_t zone_address(const std::vector<foundry_zone_info>& zones, std::span<const std::byte> content) {
  for (size_t at = 0; at + sizeof(uint64_t) <= content.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, content.data() + at, sizeof word);
    for (const foundry_zone_info& zone : zones) {
      if (word >= zone.base && word < zone.used_end) return word;
    }
  }
  return 0;
}

// Records one variable, with its content where a kernel or the host has changed it.
Status keep_global(const driver::Driver& driver, const std::vector<foundry_zone_info>& zones,
                   const foundry_image& image, uint32_t index, const Variable& variable, graph::GraphTables& tables,
                   ModuleGlobalsReport& report) {
  const auto place = locate(driver, image, variable.symbol);
  if (!place) return success();
  archive::ModuleGlobalRecord record{};
  record.symbol = tables.graphs_strings.add(variable.symbol);
  record.image = index;
  record.bytes = place->second;
  record.address = place->first;
  record.content = ~uint64_t{0};
  if (record.bytes > kMostGlobalBytes) {
    return Error{ErrorKind::unsupported, 0,
                 format("module variable %s has %s; at most %s can be kept", variable.symbol.c_str(),
                        bytes_text(record.bytes).c_str(), bytes_text(kMostGlobalBytes).c_str())};
  }
  std::vector<std::byte> content(record.bytes);
  FOUNDRY_CU(driver, cuMemcpyDtoH, content.data(), record.address, content.size());
  if (!as_initial(variable, content)) {
    if (const uint64_t address = zone_address(zones, content); address != 0) {
      report.unreadable[index] = format(
          "module variable %s of %s holds the device address %s; memory that module variables "
          "point to is not kept",
          variable.symbol.c_str(), image_name(image).c_str(), hex(address).c_str());
    }
    record.content = tables.global_content.size();
    tables.global_content.insert(tables.global_content.end(), content.begin(), content.end());
  }
  tables.module_globals.push_back(record);
  return success();
}

std::vector<uint32_t> published(const graph::GraphTables& tables) {
  std::vector<uint32_t> graphs;
  for (uint32_t index = 0; index < tables.graphs.size(); ++index) {
    if ((tables.graphs[index].flags & (archive::kGraphIsChild | archive::kGraphLeftOut)) == 0) graphs.push_back(index);
  }
  return graphs;
}

}  // namespace

Result<ImageStoreReport> store_images(int directory, const Process& process, uint32_t capability,
                                      const std::vector<uint64_t>& image_ids, graph::GraphTables& tables) {
  ImageStoreReport report;
  const std::vector<foundry_image> images = process.images();
  const std::vector<uint32_t> used = graph::images_of(tables.view(), published(tables));
  for (uint32_t index = 0; index < image_ids.size(); ++index) {
    FOUNDRY_ASSIGN(const foundry_image* image, find(images, image_ids[index]));
    tables.images[index].format = image->format;
    if (std::find(used.begin(), used.end(), index) == used.end()) continue;
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
    record.source = tables.graphs_strings.add(image->source != nullptr ? image->source : "");
    report.images += 1;
    if (!stored.existed) report.bytes += stored.bytes;
  }
  return report;
}

Result<ModuleGlobalsReport> read_module_globals(const Process& process, uint32_t capability,
                                                const std::vector<uint64_t>& image_ids, graph::GraphTables& tables) {
  ModuleGlobalsReport report;
  const std::vector<foundry_zone_info> zones = process.zones();
  const std::vector<foundry_image> images = process.images();
  for (uint32_t index = 0; index < image_ids.size(); ++index) {
    FOUNDRY_ASSIGN(const foundry_image* image, find(images, image_ids[index]));
    const std::string name = image_name(*image);
    if (image->loaded == 0) {
      report.notes.push_back(name + " was unloaded before the end of SAVE; its variables start as the image has them");
      continue;
    }
    const auto codes = codes_of(*image, capability);
    if (!codes.ok()) {
      report.unreadable[index] = "variables of " + name + " cannot be read: " + codes.error().text;
      continue;
    }
    for (const std::vector<std::byte>& code : codes.value()) {
      const auto variables = variables_of(code);
      if (!variables.ok()) {
        report.unreadable[index] = "variables of " + name + " cannot be read: " + variables.error().text;
        continue;
      }
      for (const Variable& variable : variables.value()) {
        FOUNDRY_TRY(keep_global(process.driver(), zones, *image, index, variable, tables, report));
      }
    }
  }
  return report;
}

}  // namespace foundry::session
