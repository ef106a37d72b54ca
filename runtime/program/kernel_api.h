// kernel_api.h: what a kernel of the runtime sees: tensors, attributes, the three phases load, infer, run.
//
// A kernel is a row in a table that its file in runtime/kernels/ops/ defines; the build finds the files
// (kernels/ops/NAME.cpp must define `const opforge::KernelTable opforge_kernels_NAME`). No kernel uses the
// heap, exceptions or iostreams: state and scratch come from the session's arenas. Kernels are reentrant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "opforge/abi.h"

namespace opforge {

using Status = opforge_status;
constexpr int kMaxRank = 8;

// Numbers are those of ONNX's TensorProto.DataType.
enum class DType : uint8_t {
  kUndefined = 0,
  kF32 = 1,
  kU8 = 2,
  kI8 = 3,
  kU16 = 4,
  kI16 = 5,
  kI32 = 6,
  kI64 = 7,
  kString = 8,
  kBool = 9,
  kF16 = 10,
  kF64 = 11,
  kU32 = 12,
  kU64 = 13,
  kBF16 = 16,
  kF8E4M3FN = 17,
  kF8E4M3FNUZ = 18,
  kF8E5M2 = 19,
  kF8E5M2FNUZ = 20,
  kU4 = 21,
  kI4 = 22,
  kF4E2M1 = 23,
  kF8E8M0 = 24,
  kU2 = 25,
  kI2 = 26,
};

// kC16: logical NCHW held as [N][ceil(C/16)][H+halo][W+halo][16]; when C % 16 is 1..8 the last block is 8
// wide. The halo (pixels of zeros around the image) belongs to the value, not to a consumer.
enum class LayoutKind : uint8_t { kPlain = 0, kC16 = 1, kNHWC = 2, kNHWC16 = 3 };
struct Layout {
  LayoutKind kind = LayoutKind::kPlain;
  uint8_t top = 0, left = 0, bottom = 0, right = 0;
};
inline bool same_layout(const Layout& a, const Layout& b) {
  return a.kind == b.kind && a.top == b.top && a.left == b.left && a.bottom == b.bottom && a.right == b.right;
}

// How a constant is packed (docs/design/runtime.md); a kernel that reads packed weights checks it.
enum class Packing : uint8_t {
  kNone = 0,
  kMatmul16,
  kConv16,
  kDepthwise16,
  kFirst16,
  kWinograd16,
  kDeconv16,
  kInteger16,
  kIntegerTaps16,
  kIntegerDepthwise16
};

struct Shape {
  int32_t rank = 0;
  int64_t dims[kMaxRank] = {};
  int64_t operator[](int axis) const { return dims[axis < 0 ? axis + rank : axis]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
};
inline bool same_shape(const Shape& a, const Shape& b) {
  if (a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.dims[i] != b.dims[i]) return false;
  return true;
}

// A tensor is dense in its layout. An absent optional one has dtype kUndefined. Buffers are 64-byte aligned,
// except those of the model's inputs and outputs, which are the caller's: aligned to the element only. data
// may be NULL when a dimension is 0. The halo of an output is zeroed by the session before the kernel runs.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kUndefined;
  Layout layout;
  Packing packing = Packing::kNone;
  Shape shape;
  bool present() const { return dtype != DType::kUndefined; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// Sub-byte types are packed, low bits first; elements of strings are numbers of texts (class Texts).
int64_t storage_bytes(DType dtype, const Shape& shape, const Layout& layout);
// Bits of one element; 0 for unknown dtypes.
int32_t dtype_bits(DType dtype);

struct StringView {
  const char* data;
  int64_t size;
};
struct BytecodeView {
  const void* data;
  size_t size;
};

// The texts of a run: those of the file, then what its inputs hold and its kernels make. A tensor of strings
// holds their numbers, u32 each, so that kernels which move elements move strings as well. All are valid
// UTF-8 and may hold zero bytes; two numbers may stand for the same text. They live as long as the run.
class Texts {
 public:
  // Any number may be asked for: one that nobody gave is the empty text, which is number 0.
  virtual StringView text(uint32_t number) const = 0;
  // Memory for a new text, to be filled with valid UTF-8; null when there is none, or not so much is allowed.
  // Not from several threads at once.
  virtual char* make(int64_t size, uint32_t* number) = 0;

 protected:
  ~Texts() = default;
};

// Typed attributes of a node; a getter returns false (or the default) when the name is absent.
class Attributes {
 public:
  virtual bool has(const char* name) const = 0;
  virtual int64_t get_int(const char* name, int64_t otherwise) const = 0;
  virtual double get_float(const char* name, double otherwise) const = 0;
  virtual StringView get_string(const char* name, const char* otherwise) const = 0;
  virtual bool get_ints(const char* name, const int64_t** values, int64_t* count) const = 0;
  virtual bool get_floats(const char* name, const float** values, int64_t* count) const = 0;
  virtual BytecodeView get_bytecode(const char* name) const = 0;  // {nullptr, 0} when absent
  virtual int32_t get_graph(const char* name) const = 0;          // subgraph index, -1 when absent
  // Element `index` of a list of texts; data is null behind the end or when the name is absent.
  virtual StringView get_text(const char* name, int64_t index) const = 0;

 protected:
  ~Attributes() = default;
};

// Once per node, when the session is created. Constant inputs (weights) are visible with data; others have
// shape rank -1 and data NULL.
struct LoadContext {
  const Attributes* attributes;
  const Tensor* inputs;
  int32_t n_inputs, n_outputs;
  void* state;         // set by load; memory from allocate() lives as long as the session
  const Texts* texts;  // those of the file
  void* (*allocate)(LoadContext*, size_t bytes);
  Status (*fail)(LoadContext*, Status code, const char* format, ...);
  void* host;
};

// Once per node and set of input shapes. Sets the shape (and dtype where it depends on inputs) of each output
// and asks for scratch. data of an input is given when its values are known at planning time (constants and
// small results computed from shapes); a kernel that needs values which are not known returns
// need_data(input).
struct InferContext {
  const Attributes* attributes;
  void* state;
  const Tensor* inputs;  // shapes, dtypes, layouts; data only where known
  Tensor* outputs;       // dtype and layout come filled from the file; shape is to be set
  int32_t n_inputs, n_outputs;
  int64_t scratch_bytes = 0;  // set by infer
  int32_t alias_input[4] = {-1, -1, -1,
                            -1};  // output k may be a view of this input (same bytes, no run needed)
  int32_t inplace_input[4] = {-1, -1, -1, -1};  // output k may be written over this input
  int32_t missing_input = -1;
  int32_t max_threads = 1;
  const Texts* texts = nullptr;  // null while a run is planned: programs with strings are not
  Status (*fail)(InferContext*, Status code, const char* format, ...);
  void* host;
  Status need_data(int32_t input) {
    missing_input = input;
    return OPFORGE_STATUS_UNSUPPORTED;
  }
};

using RangeBody = void (*)(void* user, int64_t begin, int64_t end);

struct RunContext {
  void* state;
  const Attributes* attributes;
  const Tensor* inputs;
  Tensor* outputs;
  int32_t n_inputs, n_outputs;
  void* scratch;  // scratch_bytes, 64-byte aligned
  int32_t threads;
  Texts* texts;  // null in planned runs
  // Chunk boundaries are multiples of grain and do not depend on the number of threads.
  void (*parallel_for)(RunContext*, int64_t n, int64_t grain, RangeBody body, void* user);
  Status (*fail)(RunContext*, Status code, const char* format, ...);
  void* host;

  template <class F>
  void parallel(int64_t n, int64_t grain, F&& f) {
    parallel_for(this, n, grain, [](void* u, int64_t b, int64_t e) { (*static_cast<F*>(u))(b, e); }, &f);
  }
};

enum : uint32_t {
  kShapeOnly = 1u << 0,  // depends on the shapes of the inputs only (Shape, Size): never needs their data
  kNotPure = 1u << 1,    // never computed at planning time (random numbers)
  kAllInputs = 1u << 2,  // variadic: no input may be absent
  kAnyOutput = 1u << 3,  // output 0 may be absent where another one is not
  // infer gives the largest shapes that the outputs can have, run sets the final ones and fills them densely.
  kBounded = 1u << 4,
  // All outputs have one first dimension N, and index n of them depends on index n of those inputs alone that
  // have as many dimensions and N first: the session may run a few indices at a time.
  kPerImage = 1u << 5,
  kStrings = 1u << 6,  // takes or gives tensors of strings; nodes of other kernels that do are refused
};

struct OpKernel {
  const char* domain;  // "" = ONNX, "opforge" = made by the compiler
  const char* name;
  int32_t since_first, since_last;  // range of since_version served
  Status (*load)(LoadContext&);     // may be null
  Status (*infer)(InferContext&);
  Status (*run)(RunContext&);
  uint32_t flags = 0;
  // So many inputs are there (not absent) in every node; the session refuses others before load. Which of the
  // rest are there the kernel looks up itself. tests/unit/bin holds the numbers against ONNX's schemas.
  int32_t required_inputs = 1;
  // A node has no more than these; the session refuses others, since nobody would write or look at the rest.
  // Inputs: 0 = as many as are required, with kAllInputs any number.
  int32_t most_inputs = 0;
  int32_t most_outputs = 1;
};
constexpr int32_t kMany = INT32_MAX;  // of inputs or outputs: load and infer look themselves

struct KernelTable {
  const OpKernel* rows;
  int32_t count;
};

// The last line of a file in kernels/ops: OPFORGE_KERNELS(softmax, kRows), after `constexpr OpKernel kRows[]
// = {...}`. (A const at namespace scope needs the extern declaration to be visible to the registry.)
#define OPFORGE_KERNELS(name, rows)                           \
  extern const ::opforge::KernelTable opforge_kernels_##name; \
  const ::opforge::KernelTable opforge_kernels_##name = {     \
      rows, static_cast<int32_t>(sizeof(rows) / sizeof(rows[0]))}

}  // namespace opforge
