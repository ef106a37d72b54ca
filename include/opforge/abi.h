/* abi.h: the kernel ABI of opforge, in plain C.
 *
 * A kernel library exports one symbol, opforge_library_v1, which gives a table of operators and their
 * kernels. Hosts (frameworks, engines, the opforge runtime) reach every operator through that table only.
 *
 * Rules of change
 *   - Structs are append-only. Each begins with {size, abi}; a reader uses a field only if it lies within
 *     `size`. Value structs that travel in arrays (opforge_tensor, opforge_string, opforge_attribute,
 *     opforge_arguments) carry no such head: their layout is frozen with the entry symbol's suffix (_v1).
 *   - Enumerators are never renumbered.
 *   - OPFORGE_ABI is 0 while the ABI is unstable (see docs/design/stability.md).
 */
#ifndef OPFORGE_ABI_H
#define OPFORGE_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPFORGE_ABI 0u

#if defined(_WIN32)
#define OPFORGE_EXPORT __declspec(dllexport)
#elif defined(__CUDACC_RTC__) /* compiles for a device alone, where nothing is exported */
#define OPFORGE_EXPORT
#else
#define OPFORGE_EXPORT __attribute__((visibility("default")))
#endif

/* ---- status ------------------------------------------------------------------------------------------ */
typedef int32_t opforge_status;
enum {
  OPFORGE_STATUS_OK = 0,
  OPFORGE_STATUS_INVALID_ARGUMENT = 1, /* a value the caller passed is wrong: the user's mistake */
  OPFORGE_STATUS_TYPE = 2,             /* a dtype or attribute type is wrong: the user's mistake */
  OPFORGE_STATUS_UNSUPPORTED = 3,      /* valid, but no kernel or feature here serves it */
  OPFORGE_STATUS_OUT_OF_MEMORY = 4,
  OPFORGE_STATUS_CORRUPT = 5, /* a file or buffer is damaged or hostile */
  OPFORGE_STATUS_NOT_FOUND = 6,
  OPFORGE_STATUS_INTERNAL = 7 /* a mistake of opforge or of the kernel's author */
};

/* ---- tensors: DLPack's DLTensor, field by field ------------------------------------------------------- */
enum {
  OPFORGE_DEVICE_CPU = 1,
  OPFORGE_DEVICE_CUDA = 2,
  OPFORGE_DEVICE_CUDA_HOST = 3,
  OPFORGE_DEVICE_ROCM = 10,
  OPFORGE_DEVICE_EXT = 12
};

/* DLPack type codes. */
enum {
  OPFORGE_CODE_INT = 0,
  OPFORGE_CODE_UINT = 1,
  OPFORGE_CODE_FLOAT = 2,
  OPFORGE_CODE_OPAQUE = 3,
  OPFORGE_CODE_BFLOAT = 4,
  OPFORGE_CODE_COMPLEX = 5,
  OPFORGE_CODE_BOOL = 6,
  OPFORGE_CODE_FLOAT8_E4M3FN = 10,
  OPFORGE_CODE_FLOAT8_E4M3FNUZ = 11,
  OPFORGE_CODE_FLOAT8_E5M2 = 12,
  OPFORGE_CODE_FLOAT8_E5M2FNUZ = 13,
  OPFORGE_CODE_FLOAT8_E8M0FNU = 14,
  OPFORGE_CODE_FLOAT4_E2M1FN = 17,
  OPFORGE_CODE_STRING = 64 /* opforge only: data points to opforge_string elements, bits = 128 */
};

typedef struct opforge_dtype { /* DLDataType */
  uint8_t code;
  uint8_t bits;
  uint16_t lanes; /* 1 everywhere in this ABI */
} opforge_dtype;

typedef struct opforge_device { /* DLDevice */
  int32_t type;
  int32_t id;
} opforge_device;

/* strides are in elements; NULL means dense row-major. data may be NULL where a dimension is 0. Element 0
 * lies at (char*)data + byte_offset. Types of less than a byte (int4, uint4, float4,
 * int2, uint2) are packed without gaps between rows, low bits first; the last byte may be part-filled. */
typedef struct opforge_tensor { /* DLTensor */
  void* data;
  opforge_device device;
  int32_t ndim;
  opforge_dtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} opforge_tensor;

typedef struct opforge_string { /* UTF-8, not necessarily terminated by a zero */
  const char* data;
  int64_t size;
} opforge_string;

/* ---- attributes --------------------------------------------------------------------------------------- */
enum {
  OPFORGE_ATTRIBUTE_INT = 1,
  OPFORGE_ATTRIBUTE_FLOAT = 2, /* a float32 value, widened to double */
  OPFORGE_ATTRIBUTE_STRING = 3,
  OPFORGE_ATTRIBUTE_BOOL = 4, /* in value.i, 0 or 1 */
  OPFORGE_ATTRIBUTE_INTS = 5,
  OPFORGE_ATTRIBUTE_FLOATS = 6,
  OPFORGE_ATTRIBUTE_STRINGS = 7,
  OPFORGE_ATTRIBUTE_BOOLS = 8
};

typedef struct opforge_attribute {
  int32_t kind;
  int32_t reserved;
  int64_t count; /* elements of a list; 1 for a scalar */
  union {
    int64_t i;
    double f;
    opforge_string s;
    const int64_t* ints; /* also bools */
    const double* floats;
    const opforge_string* strings;
  } value;
} opforge_attribute;

/* ---- the call ----------------------------------------------------------------------------------------- */
/* Tensors of all parameters, flat, in the order of the signature; counts[p] says how many of them belong to
 * parameter p: 0 = absent optional (or an output that the caller does not want), 1 = plain, n = variadic. */
typedef struct opforge_arguments {
  opforge_tensor* tensors;
  const int32_t* counts;
  int32_t n_tensors;
  int32_t n_parameters;
} opforge_arguments;

typedef void (*opforge_range_fn)(void* user, int64_t begin, int64_t end);

enum { OPFORGE_LOG_DEBUG = 0, OPFORGE_LOG_INFO = 1, OPFORGE_LOG_WARNING = 2, OPFORGE_LOG_ERROR = 3 };

typedef struct opforge_context opforge_context;
struct opforge_context {
  uint32_t size;
  uint32_t abi;
  opforge_device device;
  void* stream;            /* the host's current stream on a device; NULL on the CPU */
  void* host;              /* the host's own; a kernel leaves it alone */
  const void* kernel_data; /* opforge_kernel.data of the kernel that runs */
  /* Calls body over [0, n) in chunks of about `grain`. Chunks do not depend on the number of threads; a
   * nested call runs serially; body must not throw. */
  opforge_status (*parallel_for)(opforge_context*, int64_t n, int64_t grain, opforge_range_fn body,
                                 void* user);
  /* Memory that lives until the kernel returns; NULL when there is none. Not callable inside parallel_for. */
  void* (*scratch)(opforge_context*, size_t bytes, size_t alignment);
  /* For outputs whose shape depends on data: sets outputs.tensors[index] (flat index). */
  opforge_status (*allocate_output)(opforge_context*, int32_t index, const int64_t* shape, int32_t ndim);
  /* Records text (copied) and returns code, so that a kernel ends with `return ctx->error(ctx, ...)`. */
  opforge_status (*error)(opforge_context*, opforge_status code, const char* text);
  void (*log)(opforge_context*, int32_t level, const char* text);
  uint64_t seed; /* counter-based random numbers: state = (seed, offset) */
  uint64_t offset;
  void* reserved[8];
};

typedef opforge_status (*opforge_kernel_fn)(opforge_context* context, const opforge_arguments* inputs,
                                            const opforge_arguments* outputs,
                                            const opforge_attribute* attributes);

/* ---- the table ---------------------------------------------------------------------------------------- */
enum {                                  /* opforge_kernel.flags */
       OPFORGE_KERNEL_STRIDED = 1u << 0 /* takes any strides; otherwise the host passes dense tensors */
};

enum { /* opforge_operator.flags */
       OPFORGE_OPERATOR_PURE = 1u << 0,
       OPFORGE_OPERATOR_DETERMINISTIC = 1u << 1,
       OPFORGE_OPERATOR_DIFFERENTIABLE = 1u << 2, /* has a gradient program */
       OPFORGE_OPERATOR_FORMULA = 1u << 3,        /* derived from a formula; inputs broadcast */
       OPFORGE_OPERATOR_GRADIENT = 1u << 4        /* a generated gradient operator */
};

/* One instance for one device and one choice of dtypes. dtypes[k] is the dtype of the k-th type variable, in
 * the order of first appearance in the signature. inplace: n_inplace pairs (input, output) whose buffers may
 * be one. */
typedef struct opforge_kernel {
  uint32_t size;
  uint32_t abi;
  int32_t device_type;
  uint32_t flags;
  const opforge_dtype* dtypes;
  int32_t n_dtypes;
  uint32_t alignment; /* of data pointers in bytes; 0 = that of the element */
  opforge_kernel_fn run;
  const void* data; /* handed to the kernel as context->kernel_data */
  const int32_t* inplace;
  int32_t n_inplace;
  int32_t reserved0;
  void* reserved[4];
} opforge_kernel;

/* Strings are UTF-8, zero-terminated, never NULL ("" = none). */
typedef struct opforge_operator {
  uint32_t size;
  uint32_t abi;
  const char* domain;
  const char* name;
  int32_t since_version;
  uint32_t flags;
  const char* signature; /* docs/design/schema.md */
  const char* types;     /* "T: f16 bf16 f32 f64; I: i32 i64": the dtypes each variable may take */
  const char* autocast;  /* "promote" | "f32" | "lower" | "none" */
  const char* gradient;  /* gradient program (docs/design/schema.md), "" = not differentiable */
  const char* schema_hash;
  const opforge_kernel* const* kernels;
  int32_t n_kernels;
  int32_t reserved0;
  void* reserved[8];
} opforge_operator;

typedef struct opforge_library {
  uint32_t size;
  uint32_t abi;
  const char* id; /* the operator package's name */
  const char* version;
  const char* content_hash;
  const char* build; /* compiler, flags and profile, for people */
  const opforge_operator* const* operators;
  int32_t n_operators;
  int32_t reserved0;
  const char* architectures; /* of devices whose code it embeds, "sm_80 sm_90 compute_90"; NULL or "": none */
  void* reserved[7];
} opforge_library;

/* What the caller offers to the library. */
typedef struct opforge_host {
  uint32_t size;
  uint32_t abi;
  const char* name;
  const char* version;
  /* The library writes here, zero-terminated, why it returned NULL. */
  char* reason;
  size_t reason_size;
  void* reserved[8];
} opforge_host;

/* Returns a table that lives as long as the process, or NULL with host->reason set. */
typedef const opforge_library* (*opforge_library_fn)(const opforge_host* host);
OPFORGE_EXPORT const opforge_library* opforge_library_v1(const opforge_host* host);

#ifdef __cplusplus
}
#endif
#endif /* OPFORGE_ABI_H */
