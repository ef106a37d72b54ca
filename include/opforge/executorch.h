/* executorch.h: operators of kernel libraries in ExecuTorch. A C or C++ application compiles
 * adapters/executorch/executorch.cpp against its ExecuTorch, links libopforge, and calls
 * opforge_executorch_load (or _register, for a library that it links) before it loads a method of a .pte.
 *
 * Functions that can fail return OPFORGE_STATUS_OK or another status, and then write zero-terminated words to
 * `error`. */
#ifndef OPFORGE_EXECUTORCH_H
#define OPFORGE_EXECUTORCH_H

#include "opforge/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a kernel library and registers its operators with ExecuTorch, under the names that a lowered model
 * has: "com_example::custom_gelu.out" for com.example::CustomGELU. Doing it again changes nothing. */
OPFORGE_EXPORT int32_t opforge_executorch_load(const char* path, char* error, size_t size);

/* The same for a library that is in the process already: the table that its opforge_library_v1 gives. */
OPFORGE_EXPORT int32_t opforge_executorch_register(const opforge_library* library, char* error, size_t size);

/* Registers one operator under a name, for one that was declared with host_name=. */
OPFORGE_EXPORT int32_t opforge_executorch_define(const opforge_operator* table, const char* name, char* error,
                                                 size_t size);

/* How many threads of opforge's pool the kernels of later calls from this thread take; 0 = all of it. */
OPFORGE_EXPORT void opforge_executorch_threads(int32_t threads);

/* Status and words of this thread's last failure in a kernel, which is forgotten then; 0 where there is none.
 * ExecuTorch itself hands on a number; the words go to its log as well. */
OPFORGE_EXPORT int32_t opforge_executorch_last_failure(char* text, size_t size);

#ifdef __cplusplus
}
#endif
#endif /* OPFORGE_EXECUTORCH_H */
