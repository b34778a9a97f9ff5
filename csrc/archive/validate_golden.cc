// Semantic checks of golden.fdry, by itself and against the files that it speaks of.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "csrc/archive/checker.h"
#include "csrc/archive/content.h"
#include "csrc/archive/validate.h"

namespace foundry::archive {
namespace {

struct Interval {
  uint64_t begin, end;
};

// [begin, end) of mutable tensors, merged, by address.
std::vector<Interval> mutable_memory(const File& memory) {
  std::vector<Interval> parts;
  for (const TensorRecord& tensor : memory.section<Section::tensors>()) {
    if ((tensor.flags & kMutable) != 0 && tensor.bytes != 0)
      parts.push_back({tensor.address, tensor.address + tensor.bytes});
  }
  std::sort(parts.begin(), parts.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> merged;
  for (const Interval& part : parts) {
    if (!merged.empty() && part.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, part.end);
    } else {
      merged.push_back(part);
    }
  }
  return merged;
}

bool holds(const std::vector<Interval>& parts, uint64_t begin, uint64_t end) {
  const auto next = std::upper_bound(parts.begin(), parts.end(), begin,
                                     [](uint64_t address, const Interval& part) { return address < part.begin; });
  return next != parts.begin() && end <= std::prev(next)->end;
}

void check_outputs(Checker& check, const File& file) {
  const auto outputs = file.section<Section::golden_outputs>();
  const uint64_t values = file.raw_section(Section::golden_values).size();
  uint64_t used = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const GoldenOutputRecord& output = outputs[i];
    check.at(Section::golden_outputs, i);
    check.require(output.comparison >= 1 && output.comparison <= 3, "the comparison is unknown");
    const double spread = std::bit_cast<double>(output.spread);
    if (output.comparison == static_cast<uint32_t>(Comparison::spread)) {
      check.require(std::isfinite(spread) && spread >= 0, "its spread is no finite number");
      check.range("values", output.values, output.bytes, Section::golden_values, values);
      check.require(output.values >= used, "its values belong to another output");
      used = output.values + output.bytes;
    } else {
      check.require(output.spread == 0 && output.values == 0,
                    "it has a spread or values that its comparison does not use");
    }
  }
}

void check_inputs(Checker& check, const File& file) {
  const auto inputs = file.section<Section::golden_inputs>();
  std::vector<Interval> stored;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check.at(Section::golden_inputs, i);
    check.reserved(inputs[i].reserved);
    check.require(inputs[i].bytes > 0, "it is empty");
    check.addresses("address and bytes", inputs[i].address, inputs[i].bytes);
    check.require(inputs[i].fill == kNone || inputs[i].fill <= 0xff, "its fill is no byte");
    check.require(i == 0 || inputs[i - 1].address + inputs[i - 1].bytes <= inputs[i].address,
                  "it does not lie behind the one before it");
    if (inputs[i].fill != kNone) continue;
    // A block may run on from one input into the next where no byte lies between them.
    if (!stored.empty() && stored.back().end == inputs[i].address) {
      stored.back().end += inputs[i].bytes;
    } else {
      stored.push_back({inputs[i].address, inputs[i].address + inputs[i].bytes});
    }
  }
  const auto blocks = file.section<Section::golden_blocks>();
  const auto units = content_units(blocks, file.raw_section(Section::golden_content));
  if (!units.ok()) throw Damage{{units.error().kind, 0, file.name() + ", " + units.error().text}};
  for (size_t i = 0; i < blocks.size(); ++i) {
    check.at(Section::golden_blocks, i);
    check.require(holds(stored, blocks[i].address, blocks[i].address + blocks[i].bytes), "it belongs to no input");
  }
}

void check_run_inputs(Checker& check, const File& file) {
  const size_t runs = file.section<Section::golden_runs>().size();
  const uint64_t content = file.raw_section(Section::golden_run_content).size();
  uint32_t last = 0;
  size_t index = 0;
  for (const GoldenRunInputRecord& input : file.section<Section::golden_run_inputs>()) {
    check.at(Section::golden_run_inputs, index++);
    check.reserved(input.reserved);
    check.index("run", input.run, Section::golden_runs, runs);
    check.require(input.run >= last, "its run comes before that of the one before it");
    check.require(input.bytes > 0, "it is empty");
    check.addresses("address and bytes", input.address, input.bytes);
    check.range("content", input.content, input.bytes, Section::golden_run_content, content);
    last = input.run;
  }
}

}  // namespace

void validate_golden(const File& file) {
  Checker check(file);
  check.strings();
  const auto runs = file.section<Section::golden_runs>();
  const size_t outputs = file.section<Section::golden_outputs>().size();
  for (size_t i = 0; i < runs.size(); ++i) {
    check.at(Section::golden_runs, i);
    check.name("name", runs[i].name);
    check.range("first_output", runs[i].first_output, runs[i].output_count, Section::golden_outputs, outputs);
    check.require(i == 0 || runs[i].first_output >= runs[i - 1].first_output + uint64_t{runs[i - 1].output_count},
                  "its outputs belong to another run");
  }
  check_outputs(check, file);
  check_inputs(check, file);
  check_run_inputs(check, file);
}

Status validate_golden_with(const File& golden, const File& graphs, const File& memory) try {
  Checker check(golden);
  const auto graph_records = graphs.section<Section::graphs>();
  const auto runs = golden.section<Section::golden_runs>();
  for (size_t i = 0; i < runs.size(); ++i) {
    check.at(Section::golden_runs, i);
    check.index("graph", runs[i].graph, Section::graphs, graph_records.size());
    const GraphRecord& graph = graph_records[runs[i].graph];
    check.require((graph.flags & (kGraphIsChild | kGraphLeftOut)) == 0, "nobody restores its graph");
    check.require(graphs.view(graph.name) == golden.view(runs[i].name), "its graph has another name");
  }
  const auto tensors = memory.section<Section::tensors>();
  const auto outputs = golden.section<Section::golden_outputs>();
  for (size_t i = 0; i < outputs.size(); ++i) {
    check.at(Section::golden_outputs, i);
    check.index("tensor", outputs[i].tensor, Section::tensors, tensors.size());
    check.require(outputs[i].bytes <= tensors[outputs[i].tensor].bytes, "it has more bytes than its tensor");
  }
  const std::vector<Interval> writable = mutable_memory(memory);
  const auto inputs = golden.section<Section::golden_inputs>();
  for (size_t i = 0; i < inputs.size(); ++i) {
    check.at(Section::golden_inputs, i);
    check.require(holds(writable, inputs[i].address, inputs[i].address + inputs[i].bytes),
                  "it is not the memory of mutable tensors");
  }
  const auto run_inputs = golden.section<Section::golden_run_inputs>();
  for (size_t i = 0; i < run_inputs.size(); ++i) {
    check.at(Section::golden_run_inputs, i);
    check.require(holds(writable, run_inputs[i].address, run_inputs[i].address + run_inputs[i].bytes),
                  "it is not the memory of mutable tensors");
  }
  return success();
} catch (Damage& damage) {
  return std::move(damage.error);
}

}  // namespace foundry::archive
