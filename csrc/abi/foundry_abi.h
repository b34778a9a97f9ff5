/* The C ABI between the one owner of a process's zones and its users.
 *
 * The owner is libcuda_hook.so where it is preloaded, else foundry._core itself. The hook exports
 *     const foundry_abi* foundry_abi_v1(void);
 * and foundry._core looks it up with dlsym(RTLD_DEFAULT, "foundry_abi_v1"). Both sides are built from this file;
 * `version` and `bytes` are compared before any other field is touched.
 *
 * Conventions: functions that can fail return 0 or a nonzero status (1 + error->kind) and fill `error` (never null)
 * with a sentence. Enumerating functions write at most `capacity` records and return how many there are. No function
 * throws, prints or ends the process. All functions may be called from any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FOUNDRY_ABI_VERSION 1u
#define FOUNDRY_ABI_SYMBOL "foundry_abi_v1"
#define FOUNDRY_ZONE_NAME_BYTES 64
#define FOUNDRY_ERROR_BYTES 1024
/* Zones one process can have: 16 windows of 4 TiB from 0x1137_0000_0000 on (csrc/layout/zones.h). */
#define FOUNDRY_MAX_ZONES 16u
#define FOUNDRY_NO_ZONE 0xffffffffu

typedef struct foundry_error {
  int32_t kind; /* foundry::ErrorKind */
  int32_t code; /* CUresult or errno, 0 where there is none */
  char text[FOUNDRY_ERROR_BYTES];
} foundry_error;

/* What a zone is for; recorded in the archive (archive/records.h uses the same numbers). */
typedef enum foundry_zone_kind {
  FOUNDRY_ZONE_REBUILT = 1, /* LOAD runs the engine code again: weights, kv_cache, inputs */
  FOUNDRY_ZONE_AMBIENT = 2, /* allocations outside phases, seen by the hook on SAVE */
  FOUNDRY_ZONE_GRAPHS = 3,  /* graph-private memory of captures */
  FOUNDRY_ZONE_PRIVATE = 4  /* warm-up and profiling pools: materialized where graphs reach it */
} foundry_zone_kind;

typedef struct foundry_zone_info {
  char name[FOUNDRY_ZONE_NAME_BYTES];
  uint32_t slot;
  uint32_t kind;                          /* foundry_zone_kind */
  int32_t device;                         /* CUDA ordinal in this process */
  uint32_t granularity;                   /* bytes; what the driver asked for, 2 MiB or more */
  uint64_t base, size;                    /* reserved window */
  uint64_t used_end;                      /* first address never handed out */
  uint64_t live_bytes, quarantined_bytes; /* as asked for */
  uint64_t mapped_bytes;                  /* physical memory */
  uint64_t allocations, frees;
} foundry_zone_info;

typedef enum foundry_range_state {
  FOUNDRY_RANGE_LIVE = 1,
  FOUNDRY_RANGE_QUARANTINED = 2, /* freed by the application, still mapped, address not reused */
  FOUNDRY_RANGE_RELEASED = 3,    /* freed and unmapped, address not reused */
  FOUNDRY_RANGE_MATERIALIZED = 4 /* mapped by LOAD at its recorded address */
} foundry_range_state;

typedef struct foundry_range {
  uint64_t address;
  uint64_t bytes;        /* as asked for */
  uint64_t mapped_bytes; /* rounded to granularity; 0 for a part of a shared small chunk */
  uint64_t ordinal;      /* order of allocation in the process, over all zones; from 1, with gaps */
  uint64_t stream;       /* CUstream that the allocation was made for, 0 if none */
  uint32_t slot;
  uint32_t state;  /* foundry_range_state */
  uint32_t thread; /* kernel thread id */
  uint32_t pinned; /* how often; nonzero: stays mapped after free until unpinned as often */
} foundry_range;

/* One recorded allocation that LOAD expects to see again in a rebuilt zone. */
typedef struct foundry_expectation {
  uint64_t address;
  uint64_t bytes;
} foundry_expectation;

typedef enum foundry_image_format {
  FOUNDRY_IMAGE_FATBIN = 1,
  FOUNDRY_IMAGE_ELF = 2,
  FOUNDRY_IMAGE_PTX = 3
} foundry_image_format;

typedef struct foundry_image {
  uint64_t id;         /* order of loading, from 0 */
  void* handle;        /* CUmodule or CUlibrary */
  uint32_t is_library; /* 1: CUlibrary, 0: CUmodule */
  uint32_t format;     /* foundry_image_format */
  uint32_t loaded;     /* 0 after it was unloaded */
  uint32_t reserved;
  const void* data; /* owned by the hook until the process ends */
  uint64_t bytes;
  const char* entry_point; /* which driver call loaded it */
  const char* source;      /* file or library it came from, "" if unknown */
} foundry_image;

typedef enum foundry_event_kind {
  FOUNDRY_EVENT_ALLOC = 1,
  FOUNDRY_EVENT_FREE = 2,
  FOUNDRY_EVENT_MAP = 3, /* VMM mapping made by somebody else: passed through, journaled */
  FOUNDRY_EVENT_UNMAP = 4,
  FOUNDRY_EVENT_HOST_ALLOC = 5,
  FOUNDRY_EVENT_HOST_FREE = 6,
  FOUNDRY_EVENT_IMAGE_LOAD = 7,
  FOUNDRY_EVENT_IMAGE_UNLOAD = 8,
  FOUNDRY_EVENT_STATE = 9 /* cuFuncSetAttribute, cuCtxSetLimit, texture objects, ...: SAVE may warn */
} foundry_event_kind;

typedef struct foundry_event {
  uint64_t ordinal; /* ALLOC and FREE of a range carry foundry_range.ordinal; other events one of their own */
  uint64_t address, bytes, stream;
  uint32_t kind; /* foundry_event_kind */
  uint32_t slot; /* zone, FOUNDRY_NO_ZONE if none */
  uint32_t thread;
  uint32_t stack;          /* 1 + index into stacks, 0 = none taken */
  const char* entry_point; /* static string, never null */
} foundry_event;

/* Call stacks of events: equal ones stand in the list once. Innermost frames first. */
typedef struct foundry_stack {
  uint32_t first_frame, frame_count;               /* into frames */
  uint32_t first_python_frame, python_frame_count; /* into python_frames */
} foundry_stack;

#define FOUNDRY_NO_MODULE 0xffffffffu

typedef struct foundry_frame {
  uint64_t offset; /* address of the call as the module's file has it; 0 without a module */
  uint32_t module; /* index into modules, FOUNDRY_NO_MODULE: code that no file holds */
  uint32_t reserved;
} foundry_frame;

/* A file with code. Base name only: a directory may tell whose process this was; build_id finds the file again. */
typedef struct foundry_module {
  const char* name;
  const char* build_id; /* lower-case hexadecimal, "" if the file has none */
} foundry_module;

typedef struct foundry_python_frame {
  const char* function;
  const char* file; /* base name */
  uint32_t line;
  uint32_t reserved;
} foundry_python_frame;

/* Writes the calling thread's Python frames, innermost first, and returns how many; 0 where they cannot be had without
 * waiting. The strings are copied before the thread runs any Python code again. */
typedef size_t (*foundry_python_walker)(foundry_python_frame* out, size_t capacity);

/* What FOUNDRY_JOURNAL asks for, as bits. */
#define FOUNDRY_JOURNAL_EVENTS 1u
#define FOUNDRY_JOURNAL_STACKS 2u
#define FOUNDRY_JOURNAL_PYTHON 4u

/* Device code that an owner may carry: fatbins with one kernel each (csrc/device). */
typedef enum foundry_device_code { FOUNDRY_CODE_BLOCK_SUMMARY = 1, FOUNDRY_CODE_POINTER_SCAN = 2 } foundry_device_code;

typedef struct foundry_abi {
  uint32_t version;  /* FOUNDRY_ABI_VERSION */
  uint32_t bytes;    /* sizeof(foundry_abi) */
  const char* owner; /* "hook" or "core" */
  const char* build; /* "0.1.0" plus what tells builds apart */
  int32_t sm_target; /* 80, 90; 0 where the owner has no device code of its own */
  int32_t reserved;

  /* The real driver function behind `symbol` (exact spelling, e.g. "cuMemFree_v2"); null if the driver lacks it. */
  void* (*driver_symbol)(const char* symbol);

  /* Zones. `base` 0 lets the owner choose the next free window (SAVE); LOAD passes the recorded one. `size` 0 is a
   * whole window. Opening a name again returns its slot; kind, base and size (where given) must agree. */
  int (*zone_open)(int device, const char* name, uint32_t kind, uint64_t base, uint64_t size, uint32_t* slot,
                   foundry_error* error);
  /* LOAD, once per rebuilt zone: allocations of this zone take these addresses, first in first out per size (exact size
   * first, then the same number of pages); others go behind `used_end`. The list is every recorded allocation in order,
   * those that SAVE freed again included. */
  int (*zone_expect)(uint32_t slot, const foundry_expectation* list, size_t count, uint64_t used_end,
                     foundry_error* error);
  /* Once sealed: plain driver memory, outside the zones, which zone_free takes back. */
  int (*zone_alloc)(uint32_t slot, uint64_t bytes, uint64_t alignment, uint64_t stream, uint64_t* address,
                    foundry_error* error);
  /* Frees what zone_alloc gave out; anything else is `invalid`. */
  int (*zone_free)(uint64_t address, uint64_t stream, foundry_error* error);
  /* Maps exactly [address, address+bytes) of the zone, whole pages of its granularity, in one physical allocation;
   * overlaps with existing mappings are an error. */
  int (*zone_map)(uint32_t slot, uint64_t address, uint64_t bytes, foundry_error* error);
  /* Unmaps what zone_map mapped there. */
  int (*zone_unmap)(uint64_t address, foundry_error* error);
  /* Ranges that intersect [address, address+bytes) survive their free until unpinned as often as pinned. */
  int (*pin)(uint64_t address, uint64_t bytes, int pinned, foundry_error* error);
  /* Quarantined memory of all zones (or of one) is unmapped now. */
  int (*release_quarantine)(uint32_t slot_or_no_zone, foundry_error* error);
  size_t (*zones)(foundry_zone_info* out, size_t capacity);
  size_t (*ranges)(uint32_t slot, foundry_range* out, size_t capacity);
  /* Expected allocations of a zone that nobody has claimed. */
  size_t (*unclaimed)(uint32_t slot, foundry_expectation* out, size_t capacity);
  /* Nonzero: `address` lies in a zone's window. */
  int (*in_zone)(uint64_t address, uint32_t* slot);

  /* Ambient routing (hook only): plain allocations of `device` go to `slot`; FOUNDRY_NO_ZONE: to the driver. */
  int (*set_ambient)(int device, uint32_t slot, foundry_error* error);
  /* A stream capture of ours begins (+1) or ends (-1): frees are deferred while any capture runs. */
  void (*capture_delta)(int delta);
  /* After this, new plain and pool allocations of the process go to the plain driver. */
  void (*seal)(int sealed);
  /* Gives a zone back: everything unmapped, the window released; a closed slot is no error. Used when SAVE or LOAD
   * fails, so it goes on after a failure and reports the first. */
  int (*zone_close)(uint32_t slot, foundry_error* error);

  /* Code images; the owner in _core has none and returns 0. */
  size_t (*images)(foundry_image* out, size_t capacity);
  /* The journal and what its events refer to. These lists only grow: read in this order, every index is in the list. */
  size_t (*events)(uint64_t first, foundry_event* out, size_t capacity);
  size_t (*stacks)(foundry_stack* out, size_t capacity);
  size_t (*frames)(foundry_frame* out, size_t capacity);
  size_t (*python_frames)(foundry_python_frame* out, size_t capacity);
  size_t (*modules)(foundry_module* out, size_t capacity);
  uint32_t (*journal_level)(void); /* FOUNDRY_JOURNAL_* bits in force */
  void (*set_python_walker)(foundry_python_walker walker);
  /* Diagnoses recorded so far, one sentence each, joined by newlines; returns the length without terminator. */
  size_t (*diagnoses)(char* out, size_t capacity);
  /* The bytes of a fatbin for devices of `sm_target`, which live as long as the process; 0 if the owner has none. */
  size_t (*device_code)(uint32_t which, const void** data);
} foundry_abi;

typedef const foundry_abi* (*foundry_abi_getter)(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
