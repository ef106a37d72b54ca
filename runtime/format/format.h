// format.h: constants and records of the .bin format (FORMAT.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace opforge::format {

constexpr uint8_t kMagic[8] = {0x89, 'O', 'F', 'B', 0x0D, 0x0A, 0x1A, 0x0A};
constexpr uint32_t kVersion = 0;
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kBlock = 1 << 20;   // bytes of weights under one checksum
constexpr uint64_t kSmall = 64 << 10;  // constants up to this size come first
constexpr uint32_t kMaxSections = 64;
constexpr uint64_t kMaxBytes = 1ull << 46;    // of a file, of a tensor
constexpr uint64_t kMaxSection = 1ull << 30;  // other than weights
constexpr uint32_t kMaxRecords = 1u << 22;
constexpr uint32_t kMaxPerNode = 4096;    // inputs, outputs
constexpr uint32_t kMaxAttributes = 256;  // of one node
constexpr uint32_t kMaxGraphs = 65536;
constexpr uint32_t kMaxNesting = 64;  // graphs around a graph
constexpr uint32_t kMaxBlobs = 1u << 20;
constexpr uint32_t kMaxOperators = 1024;              // from libraries
constexpr uint32_t kMaxDepth = 64, kMaxTerms = 4096;  // of a dimension expression

enum Kind : uint32_t {
  kStrings = 1,
  kDimensions = 2,
  kValues = 3,
  kProgram = 4,
  kBytecode = 5,
  kSignature = 6,
  kOperators = 7,
  kTarget = 8,
  kMetadata = 9,
  kChecksums = 10,
  kWeights = 11,
  kPlan = 12,
  kDebug = 13,
  kKinds = 14  // one more than the last
};

struct Header {
  uint8_t magic[8];
  uint32_t version, min_reader, sections, flags;
  uint64_t file_size, table_offset;
  uint32_t entry_size;
  uint8_t reserved[12];
  uint32_t table_crc, header_crc;
};
static_assert(sizeof(Header) == 64, "FORMAT.md section 2");

struct SectionEntry {
  uint32_t kind, flags, dtype, crc;
  uint64_t offset, size;
  char name[24];
  uint32_t count, reserved;
};
static_assert(sizeof(SectionEntry) == 64, "FORMAT.md section 3");
constexpr uint32_t kSectionRequired = 1;

enum DimensionOp : uint32_t {
  kNumber = 0,
  kSymbol = 1,
  kRuntime = 2,
  kAdd = 3,
  kSub = 4,
  kMul = 5,
  kFloorDiv = 6,
  kCeilDiv = 7,
  kMin = 8,
  kMax = 9
};
struct Dimension {
  uint32_t op, a;
  int64_t b;
};

struct Value {
  uint32_t name;
  uint8_t dtype;
  int8_t rank;
  uint8_t layout, flags;
  uint8_t halo[4];
  uint32_t first_dimension;
  uint64_t offset, size;
  uint32_t packing;
  uint8_t quantisation;
  int8_t quantisation_axis;
  uint16_t quantisation_block;
  int32_t scale, zero_point;
  uint8_t kind;  // ValueKind
  uint8_t reserved[15];
};
static_assert(sizeof(Value) == 64, "FORMAT.md section 4.3");
constexpr uint8_t kValueConstant = 1;

// What a value holds; dtype and dimensions of the others are those of the tensors inside.
enum ValueKind : uint8_t {
  kTensorValue = 0,
  kSequenceValue = 1,
  kOptionalValue = 2,
  kOptionalSequenceValue = 3
};

struct ProgramHead {
  uint32_t graphs, nodes, attributes, ids, integers, floats;
  uint64_t reserved;
};
struct Graph {
  uint32_t name, first_node, nodes, first_input, inputs, first_output, outputs, first_capture, captures,
      reserved;
};
struct Node {
  uint32_t domain, op, since_version, flags, first_input, inputs, first_output, outputs, first_attribute,
      attributes;
  uint64_t reserved;
};
struct Attribute {
  uint32_t name, kind, count, reserved;
  uint64_t payload;
};
static_assert(sizeof(ProgramHead) == 32 && sizeof(Graph) == 40 && sizeof(Node) == 48 &&
                  sizeof(Attribute) == 24,
              "FORMAT.md section 4.4");
constexpr uint32_t kNodeOptional = 1;

enum AttributeKind : uint32_t {
  kInt = 1,
  kFloat = 2,
  kText = 3,
  kInts = 5,
  kFloats = 6,
  kTexts = 7,
  kBlob = 9,
  kSubgraph = 10
};

struct Blob {
  uint64_t offset, size;
};
struct Named {  // signature and metadata: two ids
  uint32_t name, id;
};
struct Operator {
  uint32_t domain, name;
  int32_t version;
  uint32_t library, schema_hash, content_hash, signature, types;
};
static_assert(sizeof(Operator) == 32, "FORMAT.md section 4.7");
struct PlanEntry {
  uint32_t kind, id;
  uint64_t offset, size;
};

}  // namespace opforge::format
