// The archive's records: one table of sections, one struct per record. Code, tests and docs derive from this file.
//
// Rules (docs/archive-format.md): little endian, every section 8-byte aligned, records used in place. A released record
// never changes; a new layout is a new section number. Fields named `reserved` are zero and readers refuse others.
#pragma once

#include <cstdint>

namespace foundry::archive {

inline constexpr char kMagic[8] = {'F', 'O', 'U', 'N', 'D', 'R', 'Y', '\0'};
inline constexpr uint32_t kFormatVersion = 1;
inline constexpr uint32_t kNone = 0xffffffffu;

enum class FileKind : uint32_t { graphs = 1, memory = 2, journal = 3, golden = 4 };

struct Hash128 {
  uint8_t bytes[16];  // xxh3-128, canonical (big endian) representation
  bool operator==(const Hash128&) const = default;
};

struct FileHeader {
  char magic[8];
  uint32_t format_version;
  uint32_t file_kind;
  uint64_t file_bytes;
  uint64_t directory_offset;
  uint32_t section_count;
  uint32_t reserved;
  Hash128 directory_hash;
  Hash128 header_hash;  // over the bytes before this field
};

enum class Packing : uint32_t { none = 0, zstd = 1 };

struct SectionEntry {
  uint32_t type;
  uint32_t version;
  uint64_t offset;        // multiple of 8
  uint64_t bytes;         // in the file
  uint64_t count;         // records, however they are stored; blobs: their bytes
  uint32_t record_bytes;  // 1 for blobs
  uint32_t packing;       // Packing
  Hash128 hash;           // over the bytes in the file
};

struct StringRef {
  uint32_t offset;  // into the file's `strings` section
  uint32_t bytes;
};

// ---- graphs.fdry

struct ImageRecord {
  Hash128 hash;     // names the file images/<hex>
  uint64_t bytes;   // 0, and no hash: it is not stored, since only graphs that were left out use it
  uint32_t format;  // foundry_image_format
  uint32_t reserved;
  StringRef source;  // where the image came from; information only
};

struct FunctionRecord {
  StringRef name;  // mangled
  uint32_t image;
  uint32_t first_param, param_count;
  uint32_t first_attribute, attribute_count;
  uint32_t reserved;
};

struct ParamRecord {
  uint32_t offset, bytes;  // as cuFuncGetParamInfo reports
};

struct FunctionAttributeRecord {
  int32_t attribute;  // CUfunction_attribute; only values that must be set on LOAD
  int32_t value;
};

// A graph that the audit could not vouch for is left out: its records stay, nobody restores it.
enum GraphFlags : uint32_t { kGraphIsChild = 1, kGraphUsesGenerator = 2, kGraphLeftOut = 4 };
inline constexpr uint32_t kKnownGraphFlags = kGraphIsChild | kGraphUsesGenerator | kGraphLeftOut;

struct GraphRecord {
  StringRef name;     // empty for a child graph
  StringRef outputs;  // JSON: nesting of the outputs, leaves are indices into `tensors` (memory.fdry)
  uint32_t first_node, node_count;
  uint32_t first_edge, edge_count;
  uint32_t flags;  // GraphFlags
  uint32_t reserved;
  uint64_t generator_increment;  // philox offset a replay consumes; 0: draws no numbers
  uint64_t generator_seed;       // address of the device word that kernels read the seed from, 0 if none
  uint64_t generator_offset;     // address of the device word with the philox offset
};

struct NodeRecord {
  uint32_t type;     // CUgraphNodeType
  uint32_t payload;  // index into the section of that type, kNone for an empty node
};

enum class ArgumentForm : uint32_t { params = 1, extra = 2 };

struct KernelRecord {
  uint32_t function;
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared_bytes;
  uint32_t argument_form;  // ArgumentForm
  uint32_t argument_bytes;
  uint64_t arguments;  // offset into `arguments`: the parameter buffer, each parameter at its ParamRecord offset
  uint32_t first_attribute, attribute_count;
};

struct LaunchAttributeRecord {
  uint32_t id;  // CUlaunchAttributeID; only values that differ from the default
  uint32_t reserved;
  uint8_t value[64];  // CUlaunchAttributeValue
};

// CUDA_MEMCPY3D, device memory on both sides (or a registered host range, flags below).
enum MemcpyFlags : uint32_t { kSourceIsHost = 1, kDestinationIsHost = 2 };
inline constexpr uint32_t kKnownMemcpyFlags = kSourceIsHost | kDestinationIsHost;

struct MemcpyRecord {
  uint64_t source, destination;
  uint64_t source_x, source_y, source_z, source_pitch, source_height;
  uint64_t destination_x, destination_y, destination_z, destination_pitch, destination_height;
  uint64_t width_bytes, height, depth;
  uint32_t flags;  // MemcpyFlags
  uint32_t reserved;
};

struct MemsetRecord {
  uint64_t destination, pitch, width, height;
  uint32_t value;
  uint32_t element_bytes;
};

struct EventRecord {
  StringRef name;     // how LOAD hands the event back; may be empty
  uint32_t identity;  // events with one identity are one CUevent over all graphs of the archive
  uint32_t flags;     // CUevent_flags used to create it
};

struct EdgeRecord {
  uint32_t from, to;  // node indices within the graph
  uint8_t from_port, to_port, type;
  uint8_t reserved[5];
};

inline constexpr uint64_t kContentUnchanged = ~uint64_t{0};

struct ModuleGlobalRecord {
  StringRef symbol;
  uint32_t image;
  uint32_t reserved;
  uint64_t bytes;
  uint64_t content;  // offset into `global_content`, or kContentUnchanged: as in the image
  uint64_t address;  // at SAVE; argument words that point into it are rebound
};

// What the pointer audit found: one record per argument word that holds an address.
enum class PointerClass : uint32_t {
  anchor = 1,         // target: anchor index
  materialized = 2,   // target: kNone
  module_global = 3,  // target: module global index
  host = 4,           // target: host range, kNone in graphs that were left out
  relocatable = 5,    // target: relocatable range
  rebuilt = 6,        // rebuilt zone, no anchor covers it
  padding = 7,        // proved meaningless by poisoning
  dangling = 8,       // no live range covers it
};

// PointerRecord::param where the word is no kernel parameter.
inline constexpr uint32_t kPointerSource = 0xfffffff0u, kPointerDestination = 0xfffffff1u, kPointerWindow = 0xfffffff2u;

struct PointerRecord {
  uint64_t value;
  uint32_t graph, node;
  uint32_t param;   // kernel parameter index, or kPointerSource, kPointerDestination, kPointerWindow (access policy)
  uint32_t offset;  // bytes into the parameter
  uint32_t pointer_class;  // PointerClass
  uint32_t target;
};

// Pinned memory of the program that graphs copy from or to. LOAD's program registers its own under the same name, and
// the words of class `host` move with it.
struct HostRangeRecord {
  StringRef name;
  uint64_t address, bytes;  // at SAVE
};

// ---- memory.fdry

struct ZoneRecord {
  StringRef name;
  uint32_t kind;  // foundry_zone_kind
  uint32_t granularity;
  uint64_t base, size, used_end;
};

struct AllocationRecord {
  uint64_t address, bytes, ordinal;
  uint32_t zone;
  uint32_t reserved;
};

struct MappedRecord {       // materialized: LOAD maps it
  uint64_t address, bytes;  // multiples of the zone's granularity
  uint32_t zone;
  uint32_t reserved;
};

enum class Encoding : uint32_t { raw = 1, zstd = 2 };

struct ContentRecord {  // LOAD restores it; several records may share one stored unit
  uint64_t address, bytes;
  uint64_t stored, stored_bytes;  // the unit, in `content`
  uint32_t encoding;              // Encoding
  uint32_t decoded_offset;        // zstd: where in the decoded unit these bytes begin; raw: 0
};

struct StorageRecord {
  uint64_t address, bytes;
};

enum TensorFlags : uint32_t { kConstant = 1, kMutable = 2, kOutput = 4, kExport = 8 };
inline constexpr uint32_t kKnownTensorFlags = kConstant | kMutable | kOutput | kExport;

struct TensorRecord {
  StringRef name;                 // anchors and exports; empty for outputs
  StringRef dtype;                // the framework's name, e.g. "torch.bfloat16"
  uint64_t address, bytes;        // of the tensor's extent
  uint32_t storage;               // index into `storages`
  uint32_t first_dim, dim_count;  // into `dims`: sizes, then strides (elements)
  uint32_t flags;                 // TensorFlags
  uint32_t anchor;                // outputs: anchor whose storage this one shares, kNone if none
  uint32_t item_bytes;
};

// ---- golden.fdry

enum class Comparison : uint32_t {
  bitwise = 1,  // native replays were equal
  spread = 2,   // they differed by at most `spread`
  none = 3,     // they differed in a way that no number bounds, or the output is too large to keep
};

struct GoldenRunRecord {
  StringRef name;  // of the graph
  uint32_t graph;  // index into `graphs` (graphs.fdry)
  uint32_t first_output, output_count;
  uint32_t replays;       // native ones that were compared
  uint64_t seed, offset;  // of the generator before the replay; 0 where the graph draws no numbers
};

struct GoldenOutputRecord {
  Hash128 hash;         // xxh3-128 of the elements in order of their indices, without the gaps of strides
  uint64_t bytes;       // of the elements
  uint64_t spread;      // bits of a double: largest difference between native replays
  uint64_t values;      // comparison by spread: offset of the elements in `golden_values`, else 0
  uint32_t tensor;      // index into `tensors` (memory.fdry)
  uint32_t comparison;  // Comparison
};

// What mutable tensors hold before a golden run.
struct GoldenInputRecord {
  uint64_t address, bytes;
  uint32_t fill;  // byte to fill with, or kNone: content in `golden_blocks`, zero where they have none
  uint32_t reserved;
};

// What small ones of them held when the graph of a run was captured: written over the other inputs.
struct GoldenRunInputRecord {
  uint64_t address, bytes;
  uint64_t content;  // offset into `golden_run_content`
  uint32_t run;      // index into `golden_runs`, ascending
  uint32_t reserved;
};

// ---- journal.fdry

struct JournalRecord {
  uint64_t ordinal, address, bytes, stream;
  uint32_t kind;  // foundry_event_kind
  uint32_t zone;  // index into the journal's `zones`, kNone if none
  uint32_t thread;
  uint32_t stack;  // 1 + index into `journal_stacks`, 0 if none was taken
  StringRef entry_point;
};

struct StackRecord {                                // innermost frames first
  uint32_t first_frame, frame_count;                // into `journal_frames`
  uint32_t first_python_frame, python_frame_count;  // into `journal_python_frames`
};

struct FrameRecord {
  uint64_t offset;  // address of the call as the module's file has it, 0 without a module
  uint32_t module;  // index into `journal_modules`, kNone: code that no file holds
  uint32_t reserved;
};

struct ModuleRecord {
  StringRef name;      // base name of the file
  StringRef build_id;  // lower-case hexadecimal, empty if the file has none
};

struct PythonFrameRecord {
  StringRef function, file;  // base name of the file
  uint32_t line;
  uint32_t reserved;
};

}  // namespace foundry::archive

// X(enumerator, section number, version, file kind, record type or `blob`, most records)
// The limits bound what a hostile header can make a reader allocate or loop over.
#define FOUNDRY_ARCHIVE_SECTIONS(X)                                         \
  X(graphs_strings, 1, 1, graphs, blob, 1ull << 28)                         \
  X(images, 2, 1, graphs, ImageRecord, 1ull << 16)                          \
  X(functions, 3, 1, graphs, FunctionRecord, 1ull << 20)                    \
  X(params, 4, 1, graphs, ParamRecord, 1ull << 24)                          \
  X(function_attributes, 5, 1, graphs, FunctionAttributeRecord, 1ull << 22) \
  X(graphs, 6, 1, graphs, GraphRecord, 1ull << 20)                          \
  X(nodes, 7, 1, graphs, NodeRecord, 1ull << 26)                            \
  X(kernels, 8, 1, graphs, KernelRecord, 1ull << 26)                        \
  X(launch_attributes, 9, 1, graphs, LaunchAttributeRecord, 1ull << 26)     \
  X(arguments, 10, 1, graphs, blob, 1ull << 34)                             \
  X(memcpys, 11, 1, graphs, MemcpyRecord, 1ull << 24)                       \
  X(memsets, 12, 1, graphs, MemsetRecord, 1ull << 24)                       \
  X(graph_events, 13, 1, graphs, EventRecord, 1ull << 20)                   \
  X(edges, 14, 1, graphs, EdgeRecord, 1ull << 27)                           \
  X(module_globals, 15, 1, graphs, ModuleGlobalRecord, 1ull << 20)          \
  X(global_content, 16, 1, graphs, blob, 1ull << 34)                        \
  X(pointers, 17, 1, graphs, PointerRecord, 1ull << 27)                     \
  X(host_ranges, 18, 1, graphs, HostRangeRecord, 1ull << 16)                \
  X(memory_strings, 64, 1, memory, blob, 1ull << 28)                        \
  X(zones, 65, 1, memory, ZoneRecord, 64)                                   \
  X(allocations, 66, 1, memory, AllocationRecord, 1ull << 24)               \
  X(mapped, 67, 1, memory, MappedRecord, 1ull << 20)                        \
  X(content_blocks, 68, 1, memory, ContentRecord, 1ull << 24)               \
  X(content, 69, 1, memory, blob, 1ull << 38)                               \
  X(storages, 70, 1, memory, StorageRecord, 1ull << 22)                     \
  X(tensors, 71, 1, memory, TensorRecord, 1ull << 22)                       \
  X(dims, 72, 1, memory, int64_t, 1ull << 25)                               \
  X(golden_strings, 192, 1, golden, blob, 1ull << 28)                       \
  X(golden_runs, 193, 1, golden, GoldenRunRecord, 1ull << 20)               \
  X(golden_outputs, 194, 1, golden, GoldenOutputRecord, 1ull << 22)         \
  X(golden_values, 195, 1, golden, blob, 1ull << 34)                        \
  X(golden_inputs, 196, 1, golden, GoldenInputRecord, 1ull << 20)           \
  X(golden_blocks, 197, 1, golden, ContentRecord, 1ull << 20)               \
  X(golden_content, 198, 1, golden, blob, 1ull << 34)                       \
  X(golden_run_inputs, 199, 1, golden, GoldenRunInputRecord, 1ull << 22)    \
  X(golden_run_content, 200, 1, golden, blob, 1ull << 31)                   \
  X(journal_strings, 128, 1, journal, blob, 1ull << 28)                     \
  X(journal_zones, 129, 1, journal, ZoneRecord, 64)                         \
  X(journal, 130, 1, journal, JournalRecord, 1ull << 26)                    \
  X(journal_stacks, 131, 1, journal, StackRecord, 1ull << 20)               \
  X(journal_frames, 132, 1, journal, FrameRecord, 1ull << 26)               \
  X(journal_modules, 133, 1, journal, ModuleRecord, 1ull << 16)             \
  X(journal_python_frames, 134, 1, journal, PythonFrameRecord, 1ull << 26)
