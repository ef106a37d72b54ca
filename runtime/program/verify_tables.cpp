// verify_tables.cpp: proves the tables of a .bin: texts, dimensions, values, bytecode, and what describes the
// file.
#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "bytecode/interpreter.h"
#include "program/cursor.h"

namespace opforge {
namespace {

using format::kMaxRecords;

Error& corrupt(Error* error, format::Kind kind, const char* what) {
  return error->fail(OPFORGE_STATUS_CORRUPT, "%s", what).at("section '%s'", format::kind_name(kind));
}

Status strings(Program* program, Error* error) {
  Cursor cursor(*program, format::kStrings, error);
  const auto* head = cursor.array<uint32_t>(2, 2);
  if (head == nullptr) return *error;
  program->n_strings = head[0];
  program->ends = cursor.array<uint32_t>(head[0], kMaxRecords);
  if (program->ends == nullptr) return *error;
  program->texts = reinterpret_cast<const char*>(cursor.rest());
  uint32_t begin = 0;
  for (uint32_t k = 0; k < program->n_strings; ++k) {
    const uint32_t end = program->ends[k];
    if (end < begin || end > cursor.remaining() || (k == 0 && end != 0)) {
      return corrupt(error, format::kStrings, "a text lies outside the section").found("text %u", k);
    }
    const size_t size = end - begin;
    bool good = valid_utf8(program->texts + begin, size);
    for (size_t i = 0; i < size; ++i) good = good && program->texts[begin + i] != '\0';
    if (!good) {
      return corrupt(error, format::kStrings, "a text is not valid UTF-8").found("text %u", k);
    }
    begin = end;
  }
  if (program->n_strings == 0 || begin != cursor.remaining()) {
    return corrupt(error, format::kStrings, "the texts do not fill the section");
  }
  return OPFORGE_STATUS_OK;
}

Status dimensions(Program* program, Bump* scratch, Error* error) {
  Cursor cursor(*program, format::kDimensions, error);
  const auto* head = cursor.array<uint32_t>(2, 2);
  if (head == nullptr) return *error;
  program->n_dimensions = head[0];
  program->dimensions = cursor.array<format::Dimension>(head[0], kMaxRecords);
  if (program->dimensions == nullptr || cursor.finish()) return *error;
  auto* terms = scratch->array<uint16_t>(head[0]);
  auto* depth = scratch->array<uint16_t>(head[0]);
  if (terms == nullptr || depth == nullptr) {
    return error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory to verify the file");
  }
  for (uint32_t k = 0; k < program->n_dimensions; ++k) {
    const format::Dimension& d = program->dimensions[k];
    terms[k] = depth[k] = 1;
    bool good = d.op <= format::kMax;
    if (d.op == format::kNumber) good = d.b >= 0 && d.b <= static_cast<int64_t>(format::kMaxBytes);
    if (d.op == format::kSymbol) good = d.a < program->n_strings && d.a != 0;
    if (good && d.op > format::kRuntime) {
      good = d.a < k && d.b >= 0 && d.b < k;
      if (good) {
        const uint32_t n = terms[d.a] + terms[d.b] + 1u;
        const uint32_t deep = 1u + (depth[d.a] > depth[d.b] ? depth[d.a] : depth[d.b]);
        good = n <= format::kMaxTerms && deep <= format::kMaxDepth;
        terms[k] = static_cast<uint16_t>(n);
        depth[k] = static_cast<uint16_t>(deep);
      }
    }
    if (!good)
      return corrupt(error, format::kDimensions, "an expression is not valid").found("dimension %u", k);
  }
  return OPFORGE_STATUS_OK;
}

Status constant(const Program& program, uint32_t k, Error* error) {
  const format::Value& v = program.values[k];
  const format::Section& weights = program.file.sections[format::kWeights];
  const StringView name = program.text(v.name);
  Shape shape;
  Layout layout{static_cast<LayoutKind>(v.layout), v.halo[0], v.halo[1], v.halo[2], v.halo[3]};
  if (!static_shape(program, k, &shape) || !good_shape(static_cast<DType>(v.dtype), shape, layout)) {
    return corrupt(error, format::kValues, "a constant has no possible shape")
        .found("value %u '%.*s'", k, static_cast<int>(name.size), name.data);
  }
  if (weights.data == nullptr || v.offset % format::kAlignment != 0 || v.size > weights.size ||
      v.offset > weights.size - v.size) {
    return corrupt(error, format::kValues, "a constant lies outside the weights")
        .found("value %u '%.*s'", k, static_cast<int>(name.size), name.data);
  }
  const StringView packing = program.text(v.packing);
  const bool packed = packing.size != 0;
  if (packed && v.layout != 0) {  // its size is that of the packing, which a layout may exceed
    return corrupt(error, format::kValues, "a packed constant has a layout")
        .found("value %u '%.*s'", k, static_cast<int>(name.size), name.data);
  }
  const int64_t bytes = packed ? packed_bytes(packing, static_cast<DType>(v.dtype), shape)
                               : storage_bytes(static_cast<DType>(v.dtype), shape, layout);
  if (bytes < 0) {
    return error->fail(OPFORGE_STATUS_UNSUPPORTED, "a packing is unknown or does not fit the shape")
        .at("section 'values'")
        .found("value %u '%.*s', packing '%.*s'", k, static_cast<int>(name.size), name.data,
               static_cast<int>(packing.size), packing.data);
  }
  const uint64_t need = static_cast<uint64_t>(bytes);
  if (packed ? v.size < need : v.size != need) {
    return corrupt(error, format::kValues, "a constant does not have the size of its shape")
        .wanted("%llu bytes", static_cast<unsigned long long>(need))
        .found("value %u '%.*s' with %llu bytes", k, static_cast<int>(name.size), name.data,
               static_cast<unsigned long long>(v.size));
  }
  return OPFORGE_STATUS_OK;
}

Status values(Program* program, Error* error) {
  Cursor cursor(*program, format::kValues, error);
  const auto* head = cursor.array<uint32_t>(4, 4);
  if (head == nullptr) return *error;
  program->n_values = head[0];
  program->n_dimension_ids = head[1];
  program->values = cursor.array<format::Value>(head[0], kMaxRecords);
  if (program->values == nullptr) return *error;
  program->dimension_ids = cursor.array<uint32_t>(head[1], kMaxRecords * uint64_t{kMaxRank});
  if (program->dimension_ids == nullptr || cursor.finish()) return *error;
  for (uint32_t k = 0; k < program->n_dimension_ids; ++k) {
    if (program->dimension_ids[k] >= program->n_dimensions) {
      return corrupt(error, format::kValues, "a dimension id is out of range");
    }
  }
  const int64_t n = program->n_values;
  for (uint32_t k = 0; k < program->n_values; ++k) {
    const format::Value& v = program->values[k];
    const uint32_t rank = v.rank < 0 ? 0 : static_cast<uint32_t>(v.rank);
    const bool halo = v.halo[0] != 0 || v.halo[1] != 0 || v.halo[2] != 0 || v.halo[3] != 0;
    const bool good =
        v.name < program->n_strings && v.packing < program->n_strings && known_dtype(v.dtype) &&
        (v.dtype != static_cast<uint8_t>(DType::kString) || (v.layout == 0 && v.packing == 0)) &&
        v.rank >= -1 && v.rank <= kMaxRank && v.layout <= 3 && (v.layout == 0 ? !halo : v.rank == 4) &&
        v.first_dimension <= program->n_dimension_ids &&
        rank <= program->n_dimension_ids - v.first_dimension && v.quantisation <= 3 && v.scale >= -1 &&
        v.scale < n && v.zero_point >= -1 && v.zero_point < n &&
        (v.kind == format::kTensorValue ||
         (v.kind <= format::kOptionalSequenceValue && v.layout == 0 && v.packing == 0 &&
          v.quantisation == 0 && !program->is_constant(k)));
    if (!good) return corrupt(error, format::kValues, "a record is not valid").found("value %u", k);
    if (program->is_constant(k) && constant(*program, k, error)) return *error;
  }
  return OPFORGE_STATUS_OK;
}

Status blobs(Program* program, Error* error) {
  if (program->file.sections[format::kBytecode].data == nullptr) return OPFORGE_STATUS_OK;
  Cursor cursor(*program, format::kBytecode, error);
  const auto* head = cursor.array<uint32_t>(2, 2);
  if (head == nullptr) return *error;
  program->n_blobs = head[0];
  program->blobs = cursor.array<format::Blob>(head[0], format::kMaxBlobs);
  if (program->blobs == nullptr) return *error;
  const uint64_t size = program->file.sections[format::kBytecode].size;
  uint64_t total = 0;  // blobs that overlap would make verification take as long as a file likes
  for (uint32_t k = 0; k < program->n_blobs; ++k) {
    const format::Blob& blob = program->blobs[k];
    total += blob.size <= size ? blob.size : size + 1;
    if (blob.offset % 8 != 0 || blob.size > size || blob.offset > size - blob.size || total > size) {
      return corrupt(error, format::kBytecode, "a blob lies outside the section").found("blob %u", k);
    }
    char reason[256] = "";
    const BytecodeView view = program->blob(k);
    if (Status status = bytecode::verify(view.data, view.size, reason, sizeof reason)) {
      return error->fail(status, "bytecode is not valid")
          .at("section 'bytecode', blob %u", k)
          .found("%s", reason);
    }
  }
  return OPFORGE_STATUS_OK;
}

Status operators(Program* program, Error* error) {
  if (program->file.sections[format::kOperators].data == nullptr) return OPFORGE_STATUS_OK;
  Cursor cursor(*program, format::kOperators, error);
  const auto* head = cursor.array<uint32_t>(2, 2);
  if (head == nullptr) return *error;
  program->n_operators = head[0];
  program->operators = cursor.array<format::Operator>(head[0], format::kMaxOperators);
  if (program->operators == nullptr || cursor.finish()) return *error;
  for (uint32_t k = 0; k < program->n_operators; ++k) {
    const format::Operator& op = program->operators[k];
    for (uint32_t id :
         {op.domain, op.name, op.library, op.schema_hash, op.content_hash, op.signature, op.types}) {
      if (id >= program->n_strings) return corrupt(error, format::kOperators, "a text id is out of range");
    }
  }
  return OPFORGE_STATUS_OK;
}

// Ids first: texts with different ids share no bytes, so that sorting them takes no longer than the file is.
Status metadata_keys_differ(const Program& program, Bump* scratch, Error* error) {
  auto* keys = scratch->array<uint32_t>(program.n_metadata);
  if (keys == nullptr) return error->fail(OPFORGE_STATUS_OUT_OF_MEMORY, "no memory to verify the file");
  for (uint32_t k = 0; k < program.n_metadata; ++k) keys[k] = program.metadata[k].name;
  uint32_t* end = keys + program.n_metadata;
  std::sort(keys, end);
  uint32_t* twice = std::adjacent_find(keys, end);
  if (twice == end) {
    std::sort(keys, end, [&](uint32_t a, uint32_t b) {
      const StringView x = program.text(a), y = program.text(b);
      const int order = std::memcmp(x.data, y.data, static_cast<size_t>(std::min(x.size, y.size)));
      return order != 0 ? order < 0 : x.size < y.size;
    });
    twice = std::adjacent_find(
        keys, end, [&](uint32_t a, uint32_t b) { return same_text(program.text(a), program.text(b)); });
  }
  if (twice == end) return OPFORGE_STATUS_OK;
  const StringView key = program.text(*twice);
  return corrupt(error, format::kMetadata, "two entries have the same key")
      .found("'%.*s'", static_cast<int>(std::min<int64_t>(key.size, 200)), key.data);
}

Status target_and_metadata(Program* program, Bump* scratch, Error* error) {
  Cursor cursor(*program, format::kTarget, error);
  const auto* head = cursor.array<uint32_t>(2, 2);
  if (head == nullptr) return *error;
  program->target = head[0];
  program->n_features = head[1];
  program->features = cursor.array<uint32_t>(head[1], 256);
  if (program->features == nullptr || cursor.finish()) return *error;
  bool good = program->target < program->n_strings;
  for (uint32_t k = 0; k < program->n_features; ++k) good = good && program->features[k] < program->n_strings;
  if (!good) return corrupt(error, format::kTarget, "a text id is out of range");
  if (program->file.sections[format::kMetadata].data == nullptr) return OPFORGE_STATUS_OK;
  Cursor metadata(*program, format::kMetadata, error);
  head = metadata.array<uint32_t>(2, 2);
  if (head == nullptr) return *error;
  program->n_metadata = head[0];
  program->metadata = metadata.array<format::Named>(head[0], 65536);
  if (program->metadata == nullptr || metadata.finish()) return *error;
  for (uint32_t k = 0; k < program->n_metadata; ++k) {
    if (program->metadata[k].name >= program->n_strings || program->metadata[k].id >= program->n_strings) {
      return corrupt(error, format::kMetadata, "a text id is out of range");
    }
  }
  return metadata_keys_differ(*program, scratch, error);
}

Status plan(Program* program, Error* error) {
  if (program->file.sections[format::kPlan].data == nullptr) return OPFORGE_STATUS_OK;
  Cursor cursor(*program, format::kPlan, error);
  const auto* head = cursor.array<uint32_t>(2, 2);
  if (head == nullptr) return *error;
  const auto* bytes = cursor.array<uint64_t>(1, 1);
  if (bytes == nullptr) return *error;
  program->n_plan = head[0];
  program->plan_bytes = *bytes;
  program->plan = cursor.array<format::PlanEntry>(head[0], 2 * uint64_t{kMaxRecords});
  if (program->plan == nullptr || cursor.finish()) return *error;
  for (uint32_t k = 0; k < program->n_plan; ++k) {
    const format::PlanEntry& entry = program->plan[k];
    const uint32_t limit = entry.kind == 0 ? program->n_values : program->counts.nodes;
    if (entry.kind > 1 || entry.id >= limit || *bytes > format::kMaxBytes || entry.size > *bytes ||
        entry.offset > *bytes - entry.size || entry.offset % format::kAlignment != 0) {
      return corrupt(error, format::kPlan, "an entry is not valid").found("entry %u", k);
    }
  }
  return OPFORGE_STATUS_OK;
}

}  // namespace

Status verify_tables(Program* program, Bump* scratch, Error* error) {
  if (Status status = strings(program, error)) return status;
  if (Status status = dimensions(program, scratch, error)) return status;
  if (Status status = values(program, error)) return status;
  if (Status status = blobs(program, error)) return status;
  if (Status status = operators(program, error)) return status;
  if (Status status = target_and_metadata(program, scratch, error)) return status;
  if (Status status = verify_graphs(program, scratch, error)) return status;
  return plan(program, error);
}

size_t verify_memory(const format::File& file) {
  // Two 16-bit numbers per dimension, eight bytes per value, two per graph, four per metadata entry; record
  // counts are bounded by size.
  return file.sections[format::kDimensions].size + file.sections[format::kValues].size / 4 +
         file.sections[format::kProgram].size / 16 + file.sections[format::kMetadata].size / 2 + 4096;
}

Status verify(const format::File& file, Program* program, void* memory, size_t size, Error* error) {
  *program = Program();
  program->file = file;
  Bump scratch(memory, size);
  return verify_tables(program, &scratch, error);
}

}  // namespace opforge
