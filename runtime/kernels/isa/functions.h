// functions.h: the functions behind IsaTable, as each instruction set has them. Same order as the table.
#pragma once

#include "kernels/isa/table.h"

#ifndef OPFORGE_ISA
#define OPFORGE_ISA baseline
#endif

namespace opforge {
namespace OPFORGE_ISA {

void pack_a(const MatmulArgs&, float* panel, int64_t m0, int64_t m1);
void pack_a_part(const MatmulArgs&, float* panel, int64_t m0, int64_t m1, int64_t part, int64_t parts);
void matmul(const MatmulArgs&, const float* panel, int64_t m0, int64_t m1, int64_t n0, int64_t n1);
int64_t matmul_panel_floats(int64_t rows, int64_t k);
int64_t matmul_unpacked_floats(int64_t k);
void widen(WeightKind kind, const void* from, float* to, int64_t n);
void pack_b(const float* b, int64_t row, int64_t column, int64_t k, int64_t n, float* packed, int64_t block0,
            int64_t block1);
void thin_product(const ThinArgs&, int64_t n0, int64_t n1);
void dot_rows(const float* a, int64_t a_row, const float* x, int64_t k, float* y, int64_t rows);
void double_product(const DoubleArgs&, int64_t m0, int64_t m1);
int64_t double_columns();
void conv_direct(const ConvArgs&, int64_t image0, int64_t image1, int64_t y0, int64_t y1, int64_t block0,
                 int64_t block1);
void conv_first(const ConvArgs&, float* scratch, int64_t image, int64_t y0, int64_t y1);
int64_t conv_first_scratch(const ConvArgs&);
void conv_depthwise(const ConvArgs&, int64_t image, int64_t block, int64_t y0, int64_t y1);
void winograd_input(const ConvArgs&, float* v, int64_t batch, int64_t t0, int64_t t1, int64_t block0,
                    int64_t block1);
void winograd_product(const ConvArgs&, const float* v, float* m, int64_t batch, int64_t tiles, int64_t tap0,
                      int64_t tap1);
void winograd_output(const ConvArgs&, const float* m, int64_t batch, int64_t t0, int64_t t1, int64_t block0,
                     int64_t block1);
void deconv2(const ConvArgs&, int64_t image, int64_t y0, int64_t y1);
void deconv2_plain(const ConvArgs&, float* scratch, int64_t image, int64_t y0, int64_t y1);
void pool(const PoolArgs&, int64_t image, int64_t block, int64_t y0, int64_t y1);
void global_average(const Image& x, const Image& y, int64_t image, int64_t block);
void resize_nearest(const Image& x, const Image& y, int64_t scale_h, int64_t scale_w, int64_t image,
                    int64_t block, int64_t y0, int64_t y1);
void concat_channels(const Image& x, const Image& y, int64_t channel0, int64_t image, int64_t y0, int64_t y1);
void to_plain(const Image& x, float* y, int64_t image, int64_t y0, int64_t y1);
void from_plain(const float* x, const Image& y, int64_t image, int64_t y0, int64_t y1);
void epilogue(const ConvArgs&, int64_t image, int64_t y0, int64_t y1, int64_t block0, int64_t block1);
void pool_row(const PoolRowArgs&);
void widen_halves(bool bf16, const uint16_t* x, float* y, int64_t n);
void narrow_halves(bool bf16, const float* x, uint16_t* y, int64_t n);
void softmax(const float* x, float* y, int64_t rows, int64_t width, int32_t log);
void layer_norm(const float* x, const float* scale, const float* bias, float* y, float* mean, float* inv_std,
                int64_t rows, int64_t width, float epsilon);
void rms_norm(const float* x, const float* scale, float* y, int64_t rows, int64_t width, float epsilon);
void reduce_rows(Reduction, const float* x, float* y, int64_t rows, int64_t width);
void reduce_middle(Reduction, const float* x, float* y, int64_t width, int64_t inner, int64_t begin,
                   int64_t end);
void scale_shift(const float* x, float* y, int64_t n, float scale, float shift);
void attention(const AttentionArgs&, float* scratch, int64_t row0, int64_t row1);
void attention_step(const AttentionArgs&, float* scratch, int64_t rows);
int64_t attention_rows();
int64_t attention_scratch(int64_t keys, int64_t depth, int64_t depth_v);
void cell(const CellArgs&, int64_t block0, int64_t block1);
void integer_product(const IntegerArgs&, int64_t m0, int64_t m1, int64_t block0, int64_t block1);
void integer_depthwise(const IntegerDepthwiseArgs&, int64_t pixels);
void integer_rows(const uint8_t* from, int64_t from_row, uint8_t flip, int64_t rows, int64_t k, uint8_t* to,
                  int64_t to_row, int32_t* sums);
void transpose_bytes(const uint8_t* from, int64_t from_row, int64_t rows, int64_t columns, uint8_t* to,
                     int64_t to_row, uint8_t flip);
void quantize_bytes(const float* x, uint8_t* y, int64_t n, float scale, int32_t zero, bool is_signed);
void byte_pairs(const BytePairArgs&, int64_t rows);
void byte_table(const uint8_t* table, const uint8_t* from, uint8_t* to, int64_t n);

}  // namespace OPFORGE_ISA
}  // namespace opforge
