#include "csrc/graph/node_attributes.h"

namespace foundry::graph {
namespace {

CUlaunchAttributeValue value_of(uint32_t first_word) {
  CUlaunchAttributeValue value;
  std::memset(&value, 0, sizeof value);
  std::memcpy(&value, &first_word, sizeof first_word);
  return value;
}

}  // namespace

std::span<const LaunchAttributeInfo> launch_attributes() {
  static const LaunchAttributeInfo kTable[] = {
#define FOUNDRY_LAUNCH_ATTRIBUTE_ROW(suffix, words, handling, bytes, initial) \
  {CU_LAUNCH_ATTRIBUTE_##suffix, words, AttributeHandling::handling, bytes, value_of(initial)},
      FOUNDRY_LAUNCH_ATTRIBUTES(FOUNDRY_LAUNCH_ATTRIBUTE_ROW)
#undef FOUNDRY_LAUNCH_ATTRIBUTE_ROW
  };
  return kTable;
}

const LaunchAttributeInfo* launch_attribute_info(uint32_t id) {
  for (const LaunchAttributeInfo& row : launch_attributes()) {
    if (static_cast<uint32_t>(row.id) == id) return &row;
  }
  return nullptr;
}

std::span<const FunctionAttributeInfo> function_attributes() {
  static constexpr FunctionAttributeInfo kTable[] = {
#define FOUNDRY_FUNCTION_ATTRIBUTE_ROW(suffix, words, rule, initial) \
  {CU_FUNC_ATTRIBUTE_##suffix, words, FunctionAttributeRule::rule, initial},
      FOUNDRY_FUNCTION_ATTRIBUTES(FOUNDRY_FUNCTION_ATTRIBUTE_ROW)
#undef FOUNDRY_FUNCTION_ATTRIBUTE_ROW
  };
  return kTable;
}

const FunctionAttributeInfo* function_attribute_info(int32_t id) {
  for (const FunctionAttributeInfo& row : function_attributes()) {
    if (static_cast<int32_t>(row.id) == id) return &row;
  }
  return nullptr;
}

}  // namespace foundry::graph
