// The owner's records as JSON, for tests: probe_json() after foundry_abi_v1.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/abi/foundry_abi.h"

static uint64_t sum(const unsigned char* bytes, uint64_t count) {
  uint64_t total = 14695981039346656037u;
  for (uint64_t i = 0; i < count; ++i) total = (total ^ bytes[i]) * 1099511628211u;
  return total;
}

static void quoted(FILE* out, const char* text) {
  fputc('"', out);
  for (; *text != '\0'; ++text) {
    if (*text == '\n') {
      fputs("\\n", out);
    } else {
      if (*text == '"' || *text == '\\') fputc('\\', out);
      fputc(*text, out);
    }
  }
  fputc('"', out);
}

__attribute__((visibility("default"))) const foundry_abi* probe_abi(void) {
  const foundry_abi_getter getter = (foundry_abi_getter)dlsym(RTLD_DEFAULT, FOUNDRY_ABI_SYMBOL);
  const foundry_abi* abi = getter == NULL ? NULL : getter();
  if (abi == NULL || (abi->version == FOUNDRY_ABI_VERSION && abi->bytes == sizeof *abi)) return abi;
  fprintf(stderr, "the hook was built from another foundry_abi.h\n");
  return NULL;
}

__attribute__((visibility("default"))) int probe_set_ambient(int device, uint32_t slot) {
  foundry_error error;
  return probe_abi()->set_ambient(device, slot, &error);
}
__attribute__((visibility("default"))) uint32_t probe_open(int device, const char* name, uint32_t kind) {
  foundry_error error;
  uint32_t slot = FOUNDRY_NO_ZONE;
  return probe_abi()->zone_open(device, name, kind, 0, 0, &slot, &error) == 0 ? slot : FOUNDRY_NO_ZONE;
}
__attribute__((visibility("default"))) void probe_seal(int sealed) { probe_abi()->seal(sealed); }
__attribute__((visibility("default"))) int probe_release(void) {
  foundry_error error;
  return probe_abi()->release_quarantine(FOUNDRY_NO_ZONE, &error);
}
__attribute__((visibility("default"))) void* probe_driver_symbol(const char* name) {
  return probe_abi()->driver_symbol(name);
}

// The caller frees it. "null" where there is no owner.
__attribute__((visibility("default"))) char* probe_json(void) {
  const foundry_abi* abi = probe_abi();
  if (abi == NULL) return strdup("null");
  char* text = NULL;
  size_t length = 0;
  FILE* out = open_memstream(&text, &length);
  fprintf(out, "{\"owner\": \"%s\", \"build\": \"%s\", \"sm_target\": %d", abi->owner, abi->build, abi->sm_target);

  size_t count = abi->images(NULL, 0);
  foundry_image* images = calloc(count + 1, sizeof *images);
  count = abi->images(images, count);
  fprintf(out, ", \"images\": [");
  for (size_t i = 0; i < count; ++i) {
    fprintf(out,
            "%s{\"id\": %" PRIu64 ", \"is_library\": %u, \"format\": %u, \"loaded\": %u, \"bytes\": %" PRIu64
            ", \"sum\": %" PRIu64 ", \"data\": %" PRIu64 ", \"entry_point\": \"%s\", \"source\": ",
            i == 0 ? "" : ", ", images[i].id, images[i].is_library, images[i].format, images[i].loaded, images[i].bytes,
            sum(images[i].data, images[i].bytes), (uint64_t)images[i].data, images[i].entry_point);
    quoted(out, images[i].source);
    fputc('}', out);
  }

  fprintf(out, "], \"zones\": [");
  foundry_zone_info zones[FOUNDRY_MAX_ZONES];
  count = abi->zones(zones, FOUNDRY_MAX_ZONES);
  for (size_t i = 0; i < count; ++i) {
    fprintf(out,
            "%s{\"name\": \"%s\", \"slot\": %u, \"kind\": %u, \"device\": %d, \"base\": %" PRIu64 ", \"size\": %" PRIu64
            ", \"live\": %" PRIu64 ", \"quarantined\": %" PRIu64 ", \"mapped\": %" PRIu64 ", \"ranges\": [",
            i == 0 ? "" : ", ", zones[i].name, zones[i].slot, zones[i].kind, zones[i].device, zones[i].base,
            zones[i].size, zones[i].live_bytes, zones[i].quarantined_bytes, zones[i].mapped_bytes);
    size_t many = abi->ranges(zones[i].slot, NULL, 0);
    foundry_range* ranges = calloc(many + 1, sizeof *ranges);
    many = abi->ranges(zones[i].slot, ranges, many);
    for (size_t j = 0; j < many; ++j) {
      fprintf(out, "%s{\"address\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"state\": %u, \"stream\": %" PRIu64 "}",
              j == 0 ? "" : ", ", ranges[j].address, ranges[j].bytes, ranges[j].state, ranges[j].stream);
    }
    free(ranges);
    fprintf(out, "]}");
  }

  fprintf(out, "], \"events\": [");
  count = abi->events(0, NULL, 0);
  foundry_event* events = calloc(count + 1, sizeof *events);
  count = abi->events(0, events, count);
  for (size_t i = 0; i < count; ++i) {
    fprintf(out,
            "%s{\"kind\": %u, \"address\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"slot\": %u, \"entry_point\": \"%s\"}",
            i == 0 ? "" : ", ", events[i].kind, events[i].address, events[i].bytes, events[i].slot,
            events[i].entry_point);
  }

  fprintf(out, "], \"diagnoses\": ");
  const size_t needed = abi->diagnoses(NULL, 0);
  char* sentences = calloc(needed + 1, 1);
  abi->diagnoses(sentences, needed + 1);
  quoted(out, sentences);
  fputc('}', out);
  fclose(out);
  free(images);
  free(events);
  free(sentences);
  return text;
}
