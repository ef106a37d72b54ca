/* opforge_ncnn.h: operators of opforge as layers of ncnn's C API. */
#ifndef OPFORGE_NCNN_H
#define OPFORGE_NCNN_H

#ifdef __cplusplus
extern "C" {
#endif

/* Registers with a net every operator of a kernel library (what `opforge build PACKAGE` writes), before the
 * net loads a model that `opforge compile --target ncnn` converted. `net` is an ncnn_net_t. Returns how many
 * kinds of layers were registered, or -1: then opforge_ncnn_error says why. The library stays open. */
int opforge_ncnn_register(void* net, const char* library);

/* The same for a library that is linked into the program: `entry` is its opforge_library_v1. */
int opforge_ncnn_register_linked(void* net, const void* (*entry)(const void* host));

/* What the last failure on this thread was, of a registration or of a layer; "" if there was none. */
const char* opforge_ncnn_error(void);

#ifdef __cplusplus
}
#endif
#endif
