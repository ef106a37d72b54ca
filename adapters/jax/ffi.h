// ffi.h: the part of XLA's foreign function interface (version 0.1 and newer) that the adapter uses, in our
// own declarations. tests/unit/jax holds names, offsets and numbers against the header of the installed
// jaxlib.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opforge::jax_host::ffi {

// Every struct begins with its size, as its writer knows it, and a chain of extensions.
struct Extension {
  size_t size;
  int32_t type;  // kMetadataExtension
  Extension* next;
};

struct Version {
  size_t size;
  Extension* extensions;
  int major;
  int minor;
};

struct Error;
struct Context;
struct Internal;

struct ErrorCreate {
  size_t size;
  Extension* extensions;
  const char* message;
  int32_t code;
};

struct Buffer {
  size_t size;
  Extension* extensions;
  int32_t dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct Span {
  const char* data;
  size_t size;
};

struct Scalar {
  int32_t dtype;
  void* value;
};

struct Array {
  int32_t dtype;
  size_t size;
  void* data;
};

struct Buffers {  // arguments and results
  size_t size;
  Extension* extensions;
  int64_t count;
  int32_t* types;  // kBuffer
  void** values;   // Buffer*
};

struct Attributes {  // sorted by name
  size_t size;
  Extension* extensions;
  int64_t count;
  int32_t* types;  // AttributeType
  Span** names;
  void** values;
};

using Task = void(void*);

struct Schedule {
  size_t size;
  Extension* extensions;
  Context* context;
  Task* task;
  void* data;
};

struct ThreadCount {
  size_t size;
  Extension* extensions;
  Context* context;
  int64_t* count;
};

struct StreamGet {
  size_t size;
  Extension* extensions;
  Context* context;
  void* stream;
};

struct OrdinalGet {
  size_t size;
  Extension* extensions;
  Context* context;
  int32_t ordinal;
};

struct MemoryAllocate {
  size_t size;
  Extension* extensions;
  Context* context;
  size_t bytes;
  size_t alignment;
  void* data;
};

struct MemoryFree {
  size_t size;
  Extension* extensions;
  Context* context;
  size_t bytes;
  void* data;
};

struct ErrorMessage {
  size_t size;
  Extension* extensions;
  Error* error;
  const char* message;
};

struct ErrorDestroy {
  size_t size;
  Extension* extensions;
  Error* error;
};

// Functions that the adapter does not call stand here for their places alone.
struct Api {
  size_t size;
  Extension* extensions;
  Version version;
  const Internal* internal;
  Error* (*create_error)(ErrorCreate*);
  void (*error_message)(ErrorMessage*);
  void (*destroy_error)(ErrorDestroy*);
  void* register_handler;
  Error* (*stream)(StreamGet*);
  void* register_type;
  void* execution_context;
  void* set_state;
  void* get_state;
  Error* (*allocate)(MemoryAllocate*);
  Error* (*free)(MemoryFree*);
  Error* (*schedule)(Schedule*);
  Error* (*thread_count)(ThreadCount*);
  void* create_future;
  void* set_future;
  void* fail_future;
  void* run_id;
  Error* (*ordinal)(OrdinalGet*);
};

struct CallFrame {
  size_t size;
  Extension* extensions;
  const Api* api;
  Context* context;
  int32_t stage;  // Stage
  Buffers arguments;
  Buffers results;
  Attributes attributes;
};

struct Metadata {
  size_t size;
  Version version;
  uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

enum : int32_t { kMetadataExtension = 1 };
enum : int32_t { kBuffer = 1 };
enum Stage : int32_t { kInstantiate = 0, kPrepare = 1, kInitialize = 2, kExecute = 3 };
enum AttributeType : int32_t { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };
enum ErrorCode : int32_t {
  kInvalidArgument = 3,
  kNotFound = 5,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternalError = 13,
};

enum DataType : int32_t {
  kBool = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 16,
  kF8E5M2 = 19,
  kF8E4M3FN = 20,
  kF8E5M2FNUZ = 24,
  kF8E4M3FNUZ = 25,
  kF8E8M0FNU = 33,
};

}  // namespace opforge::jax_host::ffi
