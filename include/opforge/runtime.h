/* runtime.h: the C API of the opforge runtime: open a .bin, look at its inputs and outputs, run it.
 *
 * Everything here is plain C. Functions return a status; on failure opforge_last_error() tells what failed,
 * where, what was expected, what was got and what to do. A session may be used from any number of threads at
 * once. Results do not depend on the number of threads. Value and option structs begin with their size, so
 * that fields can be appended: fill it with sizeof, and zero the rest.
 */
#ifndef OPFORGE_RUNTIME_H
#define OPFORGE_RUNTIME_H

#include "opforge/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32) && !defined(OPFORGE_BUILDING)
#define OPFORGE_API __declspec(dllimport)
#else
#define OPFORGE_API OPFORGE_EXPORT
#endif

/* ---- errors ------------------------------------------------------------------------------------------- */
/* Any text may be "" but none is NULL. */
typedef struct opforge_error {
  opforge_status status;
  const char* what;     /* one sentence without a final full stop */
  const char* where;    /* file, section, node, input */
  const char* expected; /* what would have been right */
  const char* got;      /* what was found */
  const char* hint;     /* what to do */
  const char* text;     /* all of the above as people read it, several lines */
} opforge_error;

/* The error of the last call on this thread that failed; valid until the next call on this thread. */
OPFORGE_API const opforge_error* opforge_last_error(void);

/* "0.1.0" */
OPFORGE_API const char* opforge_runtime_version(void);
/* The instruction set that the kernels use here: "baseline", "v3", "v4"; aarch64 "baseline", "neon". */
OPFORGE_API const char* opforge_runtime_isa(void);

/* Has faults of kernels told on standard error from now on (SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL): which
 * operator of a session was running on the thread, with which tensors, from which library, and how its line
 * is found. Then follows what was set for the signal before: by default the process ends by it. Where SIGINT
 * has a handler, the second one during one call of a kernel ends the process with 130. For sessions that are
 * opened later; OPFORGE_REPORT_FAULTS=1 in the environment does the same when a session is opened. A program
 * with signal handlers of its own sets them first. Harmless when repeated. */
OPFORGE_API void opforge_report_faults(void);
/* The same, and a fault that no kernel of a session makes is told as one of what the process does from now
 * on: "onnxruntime runs model.onnx", at most 255 bytes; NULL or "" = nothing. */
OPFORGE_API void opforge_report_faults_of(const char* what);

/* ---- threads ------------------------------------------------------------------------------------------ */
/* The size of the one pool of this process: OPFORGE_NUM_THREADS, else what affinity and cgroup allow. */
OPFORGE_API int32_t opforge_thread_count(void);
/* Calls body over [0, n) in chunks [k*grain, (k+1)*grain) on at most `threads` threads (0 = all), the caller
 * among them; returns when all is done. Chunks do not depend on the number of threads. A nested call runs
 * serially. body must not throw. */
OPFORGE_API void opforge_parallel_for(int64_t n, int64_t grain, opforge_range_fn body, void* user,
                                      int32_t threads);

/* ---- CRC-32C ------------------------------------------------------------------------------------------ */
/* The Castagnoli checksum of the bin format; pass 0, or the result so far to continue. */
OPFORGE_API uint32_t opforge_crc32c(uint32_t crc, const void* data, size_t size);

/* ---- sessions ----------------------------------------------------------------------------------------- */
enum { OPFORGE_VERIFY_LAZY = 0, OPFORGE_VERIFY_FULL = 1 };

typedef struct opforge_session_options {
  size_t size;
  int32_t threads;              /* 0 = the whole pool, 1 = the calling thread alone */
  int32_t verify;               /* weights: LAZY = on first touch, FULL = when the session is opened */
  int32_t no_mmap;              /* 1 = copy the file, so that a later truncation cannot hurt */
  int32_t refuse_native;        /* 1 = never open a kernel library */
  const char* const* libraries; /* kernel libraries, or folders with some: searched first */
  int32_t n_libraries;
  int32_t n_search; /* folders or libraries of installed packages: searched after OPFORGE_LIBRARY_PATH */
  const char* const* search;
  void (*log)(void* user, int32_t level, const char* text); /* NULL = warnings go to stderr */
  void* log_user;
  /* For files of strangers; 0 = no limit. Bytes of the arena, of a tensor and of scratch, and of all values
   * of a run that places them one by one; iterations of a Loop. */
  int64_t memory_limit;
  int64_t loop_limit;
  int32_t no_reuse; /* 1 = every value has memory of its own (for finding faults; OPFORGE_NO_REUSE=1 too) */
  int32_t reserved;
} opforge_session_options;

typedef struct opforge_session opforge_session;

/* options may be NULL. The file stays mapped; whoever truncates it meanwhile causes a bus error (use no_mmap
 * where that can happen). */
OPFORGE_API opforge_status opforge_session_open(const char* path, const opforge_session_options* options,
                                                opforge_session** session);
/* The bytes must stay until the session is closed, unless no_mmap asks for a copy. */
OPFORGE_API opforge_status opforge_session_open_memory(const void* bytes, size_t size,
                                                       const opforge_session_options* options,
                                                       opforge_session** session);
/* No run may be in progress. NULL is allowed. */
OPFORGE_API void opforge_session_close(opforge_session* session);

/* ---- inputs, outputs, metadata ------------------------------------------------------------------------ */
/* What an input or output is; dtype, ndim and shape of the others are those of the tensors inside. */
enum {
  OPFORGE_VALUE_TENSOR = 0,
  OPFORGE_VALUE_SEQUENCE = 1,          /* of tensors */
  OPFORGE_VALUE_OPTIONAL = 2,          /* a tensor or nothing */
  OPFORGE_VALUE_OPTIONAL_SEQUENCE = 3, /* a sequence or nothing */
};

typedef struct opforge_value_info {
  const char* name;
  opforge_dtype dtype;
  int32_t onnx_dtype;            /* TensorProto.DataType */
  int32_t ndim;                  /* -1 = unknown rank */
  const int64_t* shape;          /* -1 where the dimension is not a number */
  const char* const* dimensions; /* each as text: "3", "N", "2*N+1", "?" */
  int32_t kind;                  /* OPFORGE_VALUE_... */
} opforge_value_info;

OPFORGE_API int32_t opforge_session_input_count(const opforge_session* session);
OPFORGE_API int32_t opforge_session_output_count(const opforge_session* session);
/* Valid as long as the session; NULL when index is out of range. */
OPFORGE_API const opforge_value_info* opforge_session_input(const opforge_session* session, int32_t index);
OPFORGE_API const opforge_value_info* opforge_session_output(const opforge_session* session, int32_t index);

OPFORGE_API int32_t opforge_session_metadata_count(const opforge_session* session);
/* Both texts are valid as long as the session. */
OPFORGE_API opforge_status opforge_session_metadata(const opforge_session* session, int32_t index,
                                                    const char** key, const char** value);

/* ---- runs --------------------------------------------------------------------------------------------- */
/* Gives memory for output `index` (of the run's outputs), at least `bytes` bytes, aligned to 64 where it can;
 * NULL = out of memory. It is called on the thread that runs, at most once per output. */
typedef void* (*opforge_allocate_fn)(void* user, int32_t index, int32_t onnx_dtype, const int64_t* shape,
                                     int32_t ndim, size_t bytes);

typedef struct opforge_run {
  size_t size;
  /* NULL = inputs in the order of the session; else one name per input. */
  const char* const* input_names;
  const opforge_tensor* inputs; /* dense, on the CPU */
  int32_t n_inputs;
  int32_t n_outputs;
  /* NULL = outputs in the order of the session; else the names of those that are wanted. */
  const char* const* output_names;
  /* A tensor with data: the caller's buffer; dtype, ndim and shape must be those of the result (an input's
   * buffer must not overlap it). A tensor with NULL data: allocated by `allocate`, and all fields are set;
   * its shape pointer then stays valid until the next run on this thread. */
  opforge_tensor* outputs;
  opforge_allocate_fn allocate; /* NULL = by the runtime: release each with opforge_free */
  void* allocate_user;
} opforge_run;

/* Models whose inputs and outputs are tensors; for others there is opforge_session_run_values. */
OPFORGE_API opforge_status opforge_session_run(opforge_session* session, opforge_run* run);
OPFORGE_API void opforge_free(void* data);

/* ---- sequences and optionals -------------------------------------------------------------------------- */
/* One value: a tensor (count 1), the tensors of a sequence, or an optional that is empty (count -1). */
typedef struct opforge_value {
  const opforge_tensor* tensors; /* dense, on the CPU */
  int32_t count;
  int32_t reserved;
} opforge_value;

typedef struct opforge_results opforge_results;

/* Runs any model: one value per input, in the order of the session. The results hold all outputs in memory of
 * their own until they are released with opforge_results_free. */
OPFORGE_API opforge_status opforge_session_run_values(opforge_session* session, const opforge_value* inputs,
                                                      int32_t n_inputs, opforge_results** results);
/* Output `index` of the session: its tensors stay valid as long as the results. */
OPFORGE_API opforge_status opforge_results_value(const opforge_results* results, int32_t index,
                                                 opforge_value* value);
/* NULL is allowed. */
OPFORGE_API void opforge_results_free(opforge_results* results);

/* Plans a run for these input shapes (only ndim, shape and dtype are read; inputs in the order of the
 * session), so that the first run does not have to. */
OPFORGE_API opforge_status opforge_session_prepare(opforge_session* session, const opforge_tensor* inputs,
                                                   int32_t n_inputs);

/* The memory plan used last, as the plan section of a file holds it (runtime/format/FORMAT.md). */
typedef struct opforge_plan_entry {
  int32_t kind; /* 0 = value, 1 = scratch of a node */
  int32_t id;
  int64_t offset;
  int64_t size;
} opforge_plan_entry;
/* Number of entries, 0 without a plan; fills at most `capacity` of them. */
OPFORGE_API int32_t opforge_session_plan(const opforge_session* session, opforge_plan_entry* entries,
                                         int32_t capacity);

/* A buffer of the plan used last: some values (a result, its views, what is written over it) or scratch. */
typedef struct opforge_buffer {
  int32_t kind;   /* 0 = values, 1 = scratch of a node */
  int32_t id;     /* the first of the values, or the node */
  int32_t values; /* how many values lie on it */
  int32_t first;  /* the node that writes it first */
  int32_t last;   /* the node that reads it last; the number of nodes for what is copied at the end */
  int32_t reserved;
  int64_t offset, size;
} opforge_buffer;
/* Number of buffers, 0 without a plan; fills at most `capacity` of them. */
OPFORGE_API int32_t opforge_session_buffers(const opforge_session* session, opforge_buffer* buffers,
                                            int32_t capacity);

/* What a session holds, in bytes and counts, for reports. */
typedef struct opforge_session_statistics {
  size_t size;
  int64_t nodes;          /* of the program */
  int64_t plans;          /* kept, one per set of input shapes */
  int64_t executed_nodes; /* of the plan used last */
  int64_t arena_bytes;    /* of the plan used last */
  int64_t live_bytes;     /* its lower bound: the largest set of buffers that live at one time */
  int64_t dynamic;        /* 1 = a shape depends on data: nodes are placed one by one */
  int64_t views;          /* of the plan used last: values that are another's memory seen otherwise */
  int64_t in_place;       /* of the plan used last: results that are written over an input */
} opforge_session_statistics;
OPFORGE_API opforge_status opforge_session_get_statistics(const opforge_session* session,
                                                          opforge_session_statistics* statistics);

/* Time per node of the program, summed over the runs since it was switched on. */
typedef struct opforge_node_time {
  const char* domain;
  const char* op;
  const char* output; /* name of its first output */
  int64_t runs;
  int64_t nanoseconds;
} opforge_node_time;
/* Begins from zero, or ends. A run that nobody profiles reads no clock for it. */
OPFORGE_API void opforge_session_profile(opforge_session* session, int32_t on);
OPFORGE_API opforge_status opforge_session_node_time(const opforge_session* session, int32_t node,
                                                     opforge_node_time* time);

/* One thing that happened in a profiled run. */
enum {
  OPFORGE_EVENT_NODE = 0,  /* a node, on the thread that called it */
  OPFORGE_EVENT_AGAIN = 1, /* a further call of a node in the same run: for its next few images */
  OPFORGE_EVENT_HELP = 2,  /* a worker that helped a node (-1: several, which are events of their own) */
  OPFORGE_EVENT_RUN = 3,   /* the whole run; node -1 */
  OPFORGE_EVENT_COPIES = 4 /* outputs that are copied at the end; node -1 */
};
typedef struct opforge_event {
  int32_t kind;             /* OPFORGE_EVENT_... */
  int32_t node;             /* of the program */
  int32_t thread;           /* a small number for each thread of the process that took part in a profile */
  int32_t run;              /* from 0 on since the profile began */
  int64_t begin_ns, end_ns; /* of the monotonic clock */
} opforge_event;

/* Like opforge_session_profile(session, 1), and keeps the first `most` events as well. every: one run in so
 * many is watched, 1 = all; for runs of few microseconds, of which two readings of a clock are a part. */
OPFORGE_API opforge_status opforge_session_profile_events(opforge_session* session, int64_t most,
                                                          int32_t every);
/* Copies at most `capacity` events in the order in which they were handed over; returns how many, or how many
 * there are when events is NULL. lost (may be NULL): how many came after the first `most`. */
OPFORGE_API int64_t opforge_session_events(opforge_session* session, opforge_event* events, int64_t capacity,
                                           int64_t* lost);

/* An input or output of a node as a run sees it. */
typedef struct opforge_node_tensor {
  int32_t onnx_dtype;
  int32_t ndim;  /* -1 = absent, or not known */
  int64_t bytes; /* with borders and filled up channels; of packed weights those of the plain tensor */
  int64_t shape[8];
} opforge_node_tensor;
/* Inputs, then outputs of a node in the plan or run used last; *count is 0 where the node is not executed
 * (known when planned, or a view). Where a node runs for a few images at a time, those of one time. */
OPFORGE_API opforge_status opforge_session_node_tensors(const opforge_session* session, int32_t node,
                                                        opforge_node_tensor* tensors, int32_t capacity,
                                                        int32_t* count);

/* ---- the machine -------------------------------------------------------------------------------------- */
/* What `threads` threads of the pool (0 = all) reach at most, measured now (some 50 ms each): f32 operations
 * a second, two per multiply-add; bytes read and written a second by copies inside `bytes` bytes in all. */
OPFORGE_API double opforge_measure_flops(int32_t threads);
OPFORGE_API double opforge_measure_copy(int32_t threads, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif /* OPFORGE_RUNTIME_H */
