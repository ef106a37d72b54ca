/* interpreter.h: formula operators without a compiler. libopforge executes their bytecode
 * (docs/design/bytecode.md) and shows it to hosts as an ordinary kernel library (opforge/abi.h), so that
 * compiled and interpreted operators look alike.
 */
#ifndef OPFORGE_INTERPRETER_H
#define OPFORGE_INTERPRETER_H

#include "opforge/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One formula operator. Strings are UTF-8, zero-terminated, never NULL; their meaning is that of
 * opforge_operator. The blob's inputs, attributes and outputs are the signature's, in order; dtypes lists the
 * storage dtypes that T may take (f16, bf16, f32, f64). All memory may go after the call. */
typedef struct opforge_formula_description {
  uint32_t size;
  uint32_t abi;
  const char* domain;
  const char* name;
  int32_t since_version;
  uint32_t flags;
  const char* signature;
  const char* types;
  const char* autocast;
  const char* gradient;
  const char* schema_hash;
  const void* blob;
  size_t blob_size;
  const opforge_dtype* dtypes;
  int32_t n_dtypes;
  int32_t reserved0;
  void* reserved[4];
} opforge_formula_description;

/* A library of n operators. It lives as long as the process. NULL when a blob is not valid; reason then says
 * which operator and why. Thread-safe. */
OPFORGE_EXPORT const opforge_library* opforge_interpreter_library(
    const opforge_formula_description* operators, int32_t n, const char* id, const char* version,
    const char* content_hash, char* reason, size_t reason_size);

/* OPFORGE_STATUS_OK when the blob is well formed, otherwise a status with the reason. */
OPFORGE_EXPORT opforge_status opforge_bytecode_verify(const void* blob, size_t size, char* reason,
                                                      size_t reason_size);

/* The instruction set in use ("baseline", "v3", "v4") and its numeric profile ("fast" or "strict"). */
OPFORGE_EXPORT const char* opforge_isa_name(void);
OPFORGE_EXPORT const char* opforge_numeric_profile(void);

#ifdef __cplusplus
}
#endif
#endif /* OPFORGE_INTERPRETER_H */
