// api.h: the part of ncnn's C API that is called here, declared by ourselves: names, arguments and the table
// of a layer's functions are all that a caller and a library of C share.
#pragma once

#include <cstddef>

extern "C" {

using ncnn_handle =
    void*;  // nets, tensors, parameters, options: ncnn hands out pointers to what it keeps to itself

// A layer: the first word is ncnn's, the functions are the layer's.
struct opforge_ncnn_layer {
  void* pthis;
  int (*load_param)(opforge_ncnn_layer*, ncnn_handle params);
  int (*load_model)(opforge_ncnn_layer*, ncnn_handle weights);
  int (*create_pipeline)(opforge_ncnn_layer*, ncnn_handle option);
  int (*destroy_pipeline)(opforge_ncnn_layer*, ncnn_handle option);
  int (*forward_1)(opforge_ncnn_layer*, ncnn_handle bottom, ncnn_handle* top, ncnn_handle option);
  int (*forward_n)(opforge_ncnn_layer*, const ncnn_handle* bottoms, int n, ncnn_handle* tops, int n2,
                   ncnn_handle option);
  int (*forward_inplace_1)(opforge_ncnn_layer*, ncnn_handle blob, ncnn_handle option);
  int (*forward_inplace_n)(opforge_ncnn_layer*, ncnn_handle* blobs, int n, ncnn_handle option);
};

opforge_ncnn_layer* ncnn_layer_create(void);
void ncnn_layer_destroy(opforge_ncnn_layer*);
void ncnn_layer_set_one_blob_only(opforge_ncnn_layer*, int);
void ncnn_layer_set_support_inplace(opforge_ncnn_layer*, int);
void ncnn_layer_set_support_vulkan(opforge_ncnn_layer*, int);
void ncnn_layer_set_support_packing(opforge_ncnn_layer*, int);
void ncnn_layer_set_support_bf16_storage(opforge_ncnn_layer*, int);
void ncnn_layer_set_support_fp16_storage(opforge_ncnn_layer*, int);

ncnn_handle ncnn_mat_create(void);
ncnn_handle ncnn_mat_create_1d_elem(int w, size_t elemsize, int elempack, ncnn_handle allocator);
ncnn_handle ncnn_mat_create_2d_elem(int w, int h, size_t elemsize, int elempack, ncnn_handle allocator);
ncnn_handle ncnn_mat_create_3d_elem(int w, int h, int c, size_t elemsize, int elempack,
                                    ncnn_handle allocator);
ncnn_handle ncnn_mat_create_4d_elem(int w, int h, int d, int c, size_t elemsize, int elempack,
                                    ncnn_handle allocator);
void ncnn_mat_destroy(ncnn_handle);
int ncnn_mat_get_dims(ncnn_handle);
int ncnn_mat_get_w(ncnn_handle);
int ncnn_mat_get_h(ncnn_handle);
int ncnn_mat_get_d(ncnn_handle);
int ncnn_mat_get_c(ncnn_handle);
size_t ncnn_mat_get_elemsize(ncnn_handle);
int ncnn_mat_get_elempack(ncnn_handle);
size_t ncnn_mat_get_cstep(ncnn_handle);
void* ncnn_mat_get_data(ncnn_handle);

int ncnn_paramdict_get_type(ncnn_handle, int id);
int ncnn_paramdict_get_int(ncnn_handle, int id, int otherwise);
float ncnn_paramdict_get_float(ncnn_handle, int id, float otherwise);
ncnn_handle ncnn_paramdict_get_array(ncnn_handle, int id, ncnn_handle otherwise);  // the caller's to destroy

int ncnn_option_get_num_threads(ncnn_handle);

void ncnn_net_register_custom_layer_by_type(ncnn_handle net, const char* type,
                                            opforge_ncnn_layer* (*create)(void* user),
                                            void (*destroy)(opforge_ncnn_layer*, void* user), void* user);
}
