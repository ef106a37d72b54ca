// table.h: the heavy loops of the runtime, built once per instruction set and reached through one table.
//
// Everything here is plain data: the sources in isa/ include nothing that could leave a weak symbol compiled
// for a newer instruction set in the library. Each output element is computed by one fixed sequence of
// operations (accumulation from the bias, k ascending), so results depend neither on threads nor on vector
// width.
#pragma once

#include <cstdint>

namespace opforge {

// What follows the accumulation at once, in registers. kGate: x * clip(x*s + o, 0, 1); kGateAffine adds t.
enum class ActivationKind : int32_t { kNone = 0, kClip, kGate, kGateAffine, kHardSigmoid };
struct Activation {
  ActivationKind kind = ActivationKind::kNone;
  float lo = 0, hi = 0;       // kClip
  float s = 0, o = 0, t = 0;  // the others
  bool on_sum = false;        // of a convolution: applied after the residual instead of before it
};

// Called on finished blocks of the output while they are in cache. rows x columns floats, rows row_stride
// apart. Plain outputs: row0 and column0 are the position in the matrix. c16 outputs: rows are neighbouring
// pixels of one channel block, columns its lanes (16 or 8), column0 the first channel, row0 the pixel's index
// in the plane.
using BlockEpilogue = void (*)(void* user, float* block, int64_t rows, int64_t columns, int64_t row0,
                               int64_t column0, int64_t row_stride);

// How weights lie in memory; they are multiplied as f32.
enum class WeightKind : int32_t { kF32 = 0, kF16, kBF16, kU4, kU8 };

// How a product with weights of kBF16 takes A: as it is, or rounded to bf16 (kRounded: then f32 arithmetic;
// kPairs: the instruction that multiplies pairs of bf16, only where isa_bf16_pairs() and a_column == 1).
enum class OperandKind : int32_t { kAsTheyAre = 0, kRounded, kPairs };

// Weights of kU4 and kU8: codes, of which a weight is (code - zero) * scale. [block of 16 columns][K in whole
// words][16] words of 32 bits, each with 8 or 4 codes of one column, low bits first; scales (and zeros)
// [block][group of `rows` rows][16].
struct Codes {
  const float* scales;
  const uint8_t* zeros;  // or null: `zero` for all
  int64_t rows;          // of a group: a multiple of 8, or all
  float zero;
};

// C[m, n] = activation(A * B + bias); B packed as matmul16. Strides in elements.
struct MatmulArgs {
  const float* a;
  int64_t a_row, a_column;
  const void* b;
  const float* bias;  // padded to whole blocks, or null
  float* c;
  int64_t c_row;
  int64_t m, n, k;
  Activation activation;
  BlockEpilogue epilogue;
  void* user;
  int64_t b_rows,
      b_first;  // B was packed with so many rows (0 = k), of which the product reads k from b_first on
  WeightKind b_kind;
  OperandKind operands;
  Codes codes;
  float* unpacked;  // for weights of another kind than f32: matmul_unpacked_floats(k)
};

// One row: c[n] = sum over k of a[k * a_step] * b[k * b_row + n], in the order of a MatmulArgs product.
struct ThinArgs {
  const float* a;
  int64_t a_step;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t k;
};

// Rows of f64: c[m, n] = sum over k of a[m, k] * b[k, n] for up to double_columns() columns.
struct DoubleArgs {
  const double* a;
  int64_t a_row, a_column;
  const double* b;
  int64_t b_row;
  double* c;
  int64_t c_row;
  int64_t n, k;
};

// A c16 value: pixel (0, 0) of channel block b of image n is data + n*batch + b*plane*16 + (top*row +
// left)*lanes.
struct Image {
  float* data;
  int64_t row, plane, batch;  // pixels per row and per plane (halo included); floats per image
  int32_t images, channels, height, width;
  int32_t top, left, bottom, right;
};

struct ConvArgs {
  Image x, y;             // for "first": x.data is plain NCHW, x.row = width, x.plane = height*width
  const float* weights;   // from channel block `weights_block` on
  const float* bias;      // padded to whole blocks, or null (direct, winograd_product)
  const float* residual;  // laid out as y, or null
  int32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  int32_t x_step;         // first: floats from pixel to pixel of X, 1 or its channels (NHWC)
  int32_t weights_block;  // direct; else 0
  int32_t tile_blocks;    // dense: most output blocks of a register tile, 0 = as many as fit
  int32_t fetch_ahead;    // dense: fetch the next group's weights while this one's are used
  const void* fetch;      // dense: fetch these instead, or null
  Activation activation;
  BlockEpilogue epilogue;
  void* user;
};

struct PoolArgs {
  Image x, y;
  int32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left, pad_bottom,
      pad_right;
  int32_t average;  // 0 = max
  int32_t count_include_pad;
};

// Outputs of one row of a pool on a plain tensor, whose windows lie within the image; n is at least 4.
struct PoolRowArgs {
  const float* x;  // the first element of the first output's window
  float* y;
  int64_t n, stride;          // outputs, and elements from one window to the next
  int64_t taps[3], steps[3];  // of a window: how many, and elements from one to the next
  float counted;              // what an average divides by
  bool maximum;
};

// Attention of the heads that share K and V. Row r is query r % queries of head r / queries; strides in
// elements.
struct AttentionArgs {
  const float* q;
  const float* k_packed;     // attention: matmul16 of K^T: [key block][D][16|8]
  const float* v_packed;     // attention: matmul16 of V: [Dv block][keys][16|8]
  const float *k, *v;        // attention_step: rows k_row and v_row apart
  const float* mask;         // added to the scores, or null
  const uint8_t* mask_bits;  // 0 = not seen, or null
  float* out;
  float*
      scores;  // a copy of what `scores_mode` says, or null: 0 products, 1 capped, 2 with the mask, 3 softmax
  int64_t q_row, q_head, k_row, v_row, out_row, out_head, scores_row, scores_head;
  int64_t mask_row, mask_head, mask_column;  // 0 where broadcast
  int64_t queries, keys, depth, depth_v;
  int64_t seen;                 // keys from here on are hidden
  int64_t offset, left, right;  // query i sees keys i+offset-left to i+offset+right; -1 = open
  int32_t scores_mode;
  int32_t nan_rows;      // a row whose keys are all masked is NaN, not 0
  float scale, softcap;  // softcap 0 = none
};

// Functions of recurrent cells: ONNX's list.
enum class GateKind : int32_t {
  kSigmoid = 0,
  kTanh,
  kRelu,
  kAffine,
  kLeakyRelu,
  kThresholdedRelu,
  kScaledTanh,
  kHardSigmoid,
  kElu,
  kSoftsign,
  kSoftplus
};
struct GateFunction {
  GateKind kind = GateKind::kSigmoid;
  float alpha = 0, beta = 0;
};

// kGruReset and kGruUpdate are the halves of a GRU whose reset stands before the product.
enum class CellKind : int32_t { kRnn = 0, kLstm, kGruLinear, kGruReset, kGruUpdate };

// One row of one step. Products lie as [block of 16 units][gate][16]; states have whole blocks.
struct CellArgs {
  CellKind kind;
  GateFunction f, g, h;  // the single function of kRnn is f
  float clip;            // infinity = none
  int32_t input_forget;  // LSTM: the forget gate is 1 - the input gate
  float* x;              // product of the input; kGruReset leaves z in the place of its gate
  const float* r;        // product of the state: all gates, kGruReset: z and r, kGruUpdate: h
  const float* h_in;
  float* h_out;            // kGruReset: the reset gate times h_in
  float* c;                // LSTM only
  const float* peepholes;  // LSTM: [i, o, f][width], or null
  int64_t width;           // units in whole blocks
};

enum class Reduction : int32_t {
  kSum = 0,
  kMean,
  kMax,
  kMin,
  kProd,
  kSumSquare,
  kL1,
  kL2,
  kLogSum,
  kLogSumExp
};

// Floats from tap to tap: a line more than the data, since powers of two collide in the first cache.
inline int64_t winograd_tap(int64_t batch, int64_t channels) { return batch * ((channels + 7) / 8 * 8) + 16; }
// Bytes of packed weights that stay in the first cache beside the rows that they meet.
constexpr int64_t kIntegerWeights = 24576;
// C[m, n] = output(sum over k of A[m, k] * B[k, n] + column[n] + row[m] * row_factor[n]) of bytes: exact,
// sums are i32 and wrap. A is unsigned and B signed; other signs and zero points are corrections of the sums.
enum class IntegerOutput : int32_t { kI32, kF32, kU8, kI8 };
struct IntegerArgs {
  const uint8_t* a;  // row m at a + m * a_row; up to 3 bytes behind a segment are read (and meet zeros of B)
  int64_t a_row;
  const int64_t* segments;     // offsets of runs of bytes from a row's begin; k goes through them in order
  int64_t n_segments, groups;  // groups of 4 bytes in each
  const int8_t* b;             // [n block of 16][segment][group][16][4]
  const int32_t* column;       // padded to whole blocks
  const int32_t* row;          // or null
  const int32_t* row_factor;   // padded
  const float* scale;          // padded; not for kI32
  const float* shift;          // added after scaling, padded, or null
  double least, most;          // kU8, kI8: bounds of the scaled sum, before the zero point is added
  int32_t zero;
  IntegerOutput output;
  void* c;
  int64_t c_row;  // elements
  int64_t n;
  int32_t pairs;  // 1 = without dot-product instructions (for tests)
};

// One convolution tap after the other over channels that lie side by side: y[pixel][channel].
struct IntegerDepthwiseArgs {
  const uint8_t* x;  // pixel p of a row begins at x + p * x_pixel
  int64_t x_pixel;
  const int64_t* taps;  // offsets
  int64_t n_taps;
  const int8_t* weights;  // [tap][channels padded to 16]
  IntegerArgs output;     // column, scale and so on; c_row = elements from pixel to pixel; n = channels
};

// y = saturate(round((a's number + b's number, or their product) / scale) + zero) of codes: rounded after
// every step as the f32 words of the model are. Rows of n codes; bounds are codes.
struct BytePairArgs {
  const uint8_t *a, *b;
  uint8_t* y;
  int64_t a_row, b_row, y_row, n;
  float a_scale, b_scale, scale, inverse;  // inverse = 1 / scale
  int32_t a_zero, b_zero, zero;            // of a and b after their flip
  int32_t least, most;
  uint8_t a_flip, b_flip;  // turns the top bit of signed codes
  int32_t product;
};

struct IsaTable {
  const char* name;
  int32_t fused;  // 1 = the fast profile (fused multiply-add)

  // -- matmul.cpp -- pack_a packs rows [m0, m1) of A into a panel of matmul_panel_floats(rows, k); matmul
  // multiplies them with columns [n0, n1) of B. n0 is a multiple of 16; n1 counts up to whole blocks of 16.
  // pack_a_part does one of `parts` parts of that packing.
  void (*pack_a)(const MatmulArgs&, float* panel, int64_t m0, int64_t m1);
  void (*pack_a_part)(const MatmulArgs&, float* panel, int64_t m0, int64_t m1, int64_t part, int64_t parts);
  void (*matmul)(const MatmulArgs&, const float* panel, int64_t m0, int64_t m1, int64_t n0, int64_t n1);
  int64_t (*matmul_panel_floats)(int64_t rows, int64_t k);
  int64_t (*matmul_unpacked_floats)(int64_t k);
  // n weights, a multiple of 8, as f32.
  void (*widen)(WeightKind, const void* from, float* to, int64_t n);
  // B with element strides (row over k, column over n) into matmul16; blocks [block0, block1).
  void (*pack_b)(const float* b, int64_t row, int64_t column, int64_t k, int64_t n, float* packed,
                 int64_t block0, int64_t block1);

  // -- thin.cpp -- B as it lies: columns [n0, n1) of one row; y[r] = row r of a times x, in 16 lanes.
  void (*thin_product)(const ThinArgs&, int64_t n0, int64_t n1);
  void (*dot_rows)(const float* a, int64_t a_row, const float* x, int64_t k, float* y, int64_t rows);
  void (*double_product)(const DoubleArgs&, int64_t m0, int64_t m1);
  int64_t (*double_columns)();

  // -- conv.cpp, first.cpp, depthwise.cpp, winograd.cpp, deconv.cpp -- rows [y0, y1) of one image's output;
  // the c16 frame around the output is not touched. conv_direct: images [image0, image1), which share the
  // weights while they are in cache, and channel blocks [block0, block1).
  void (*conv_direct)(const ConvArgs&, int64_t image0, int64_t image1, int64_t y0, int64_t y1, int64_t block0,
                      int64_t block1);
  void (*conv_first)(const ConvArgs&, float* scratch, int64_t image, int64_t y0, int64_t y1);
  int64_t (*conv_first_scratch)(const ConvArgs&);
  void (*conv_depthwise)(const ConvArgs&, int64_t image, int64_t block, int64_t y0, int64_t y1);
  // Three steps over tiles [t0, t1) of 4x4 output pixels, counted row-major through all images, at most
  // `batch` of them: v = transformed input, m = v times the weights of taps [tap0, tap1), y = transformed m.
  // v and m hold 36 taps, winograd_tap floats apart.
  void (*winograd_input)(const ConvArgs&, float* v, int64_t batch, int64_t t0, int64_t t1, int64_t block0,
                         int64_t block1);
  void (*winograd_product)(const ConvArgs&, const float* v, float* m, int64_t batch, int64_t tiles,
                           int64_t tap0, int64_t tap1);
  void (*winograd_output)(const ConvArgs&, const float* m, int64_t batch, int64_t t0, int64_t t1,
                          int64_t block0, int64_t block1);
  // 2x2 stride 2 transposed; rows [y0, y1) of the input.
  void (*deconv2)(const ConvArgs&, int64_t image, int64_t y0, int64_t y1);
  // The same into a plain output of at most 4 channels: the four taps are the channels (tap * channels +
  // channel) of one 1x1 convolution, weights [C][8|16]. scratch: 16 floats per input column.
  void (*deconv2_plain)(const ConvArgs&, float* scratch, int64_t image, int64_t y0, int64_t y1);

  // -- image.cpp -- c16 values.
  void (*pool)(const PoolArgs&, int64_t image, int64_t block, int64_t y0, int64_t y1);
  void (*global_average)(const Image& x, const Image& y, int64_t image, int64_t block);
  void (*resize_nearest)(const Image& x, const Image& y, int64_t scale_h, int64_t scale_w, int64_t image,
                         int64_t block, int64_t y0, int64_t y1);  // rows of x
  void (*concat_channels)(const Image& x, const Image& y, int64_t channel0, int64_t image, int64_t y0,
                          int64_t y1);
  void (*to_plain)(const Image& x, float* y, int64_t image, int64_t y0, int64_t y1);
  void (*from_plain)(const float* x, const Image& y, int64_t image, int64_t y0, int64_t y1);
  void (*epilogue)(const ConvArgs&, int64_t image, int64_t y0, int64_t y1, int64_t block0, int64_t block1);

  // -- windows.cpp, halves.cpp --
  void (*pool_row)(const PoolRowArgs&);
  void (*widen_halves)(bool bf16, const uint16_t* x, float* y, int64_t n);
  void (*narrow_halves)(bool bf16, const float* x, uint16_t* y, int64_t n);

  // -- rows.cpp -- n rows of `width` contiguous floats; sums in 16 lanes.
  void (*softmax)(const float* x, float* y, int64_t rows, int64_t width, int32_t log);
  void (*layer_norm)(const float* x, const float* scale, const float* bias, float* y, float* mean,
                     float* inv_std, int64_t rows, int64_t width, float epsilon);
  void (*rms_norm)(const float* x, const float* scale, float* y, int64_t rows, int64_t width, float epsilon);
  void (*reduce_rows)(Reduction, const float* x, float* y, int64_t rows, int64_t width);
  // x[outer][width][inner] over the middle; elements [begin, end) of outer*inner.
  void (*reduce_middle)(Reduction, const float* x, float* y, int64_t width, int64_t inner, int64_t begin,
                        int64_t end);
  // y = x*scale + shift for one channel of n contiguous floats.
  void (*scale_shift)(const float* x, float* y, int64_t n, float scale, float shift);

  // -- attention.cpp -- rows [row0, row1) of one head; scratch: attention_scratch. A step takes rows [0,
  // rows) with K and V as they lie; scratch: rows * (keys in whole blocks of 16).
  void (*attention)(const AttentionArgs&, float* scratch, int64_t row0, int64_t row1);
  void (*attention_step)(const AttentionArgs&, float* scratch, int64_t rows);
  int64_t (*attention_rows)();
  int64_t (*attention_scratch)(int64_t keys, int64_t depth, int64_t depth_v);

  // -- cell.cpp -- blocks [block0, block1) of 16 units.
  void (*cell)(const CellArgs&, int64_t block0, int64_t block1);

  // -- integer.cpp -- rows [m0, m1) and blocks of 16 columns [block0, block1).
  void (*integer_product)(const IntegerArgs&, int64_t m0, int64_t m1, int64_t block0, int64_t block1);
  void (*integer_depthwise)(const IntegerDepthwiseArgs&, int64_t pixels);
  // Rows of bytes into rows of to_row bytes: each byte ^ flip, zeros behind; sums (or null) are those of the
  // new bytes.
  void (*integer_rows)(const uint8_t* from, int64_t from_row, uint8_t flip, int64_t rows, int64_t k,
                       uint8_t* to, int64_t to_row, int32_t* sums);
  // to[c][r] = from[r][c] ^ flip.
  void (*transpose_bytes)(const uint8_t* from, int64_t from_row, int64_t rows, int64_t columns, uint8_t* to,
                          int64_t to_row, uint8_t flip);
  // y = saturate(round(x / scale) + zero); NaN gives 0.
  void (*quantize_bytes)(const float* x, uint8_t* y, int64_t n, float scale, int32_t zero, bool is_signed);

  // -- bytes.cpp -- the second: to[i] = table[from[i]], perhaps in place.
  void (*byte_pairs)(const BytePairArgs&, int64_t rows);
  void (*byte_table)(const uint8_t* table, const uint8_t* from, uint8_t* to, int64_t n);
};

// The table for this machine: the best that the CPU runs, or what OPFORGE_ISA names. Chosen once.
const IsaTable& isa_table();
// Whether that table has products of pairs of bf16 and the CPU runs them.
bool isa_bf16_pairs();

#define OPFORGE_DECLARE_ISA(ISA) \
  namespace ISA {                \
  extern const IsaTable table;   \
  }
OPFORGE_DECLARE_ISA(baseline)
OPFORGE_DECLARE_ISA(v3)
OPFORGE_DECLARE_ISA(v4)
OPFORGE_DECLARE_ISA(neon)
#undef OPFORGE_DECLARE_ISA

}  // namespace opforge
