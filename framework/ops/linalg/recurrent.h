// One step of a recurrent network. x: [N, I], h and c: [N, H], weights as PyTorch stores them: w_ih [G H, I], w_hh [G H, H], biases
// [G H] or undefined, G gates. Without N: x [I], h and c [H]. An undefined h or c is zero. Autocast: low; inside, the gates are
// float32 and never rounded. By name: tensors in this order, as in torch._VF.lstm_cell(x, (h, c), w_ih, ...) laid flat.
#pragma once

#include "framework/tensor/tensor.h"

namespace halfstep {

// Gates i f g o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'). Returns (h', c').
std::pair<Tensor, Tensor> lstm_cell(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& w_ih, const Tensor& w_hh,
                                    const Tensor& b_ih = Tensor(), const Tensor& b_hh = Tensor());
// Gates r z n: n = tanh(x_n + sigmoid(r) h_n), h' = (1 - sigmoid(z)) n + sigmoid(z) h.
Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih = Tensor(),
                const Tensor& b_hh = Tensor());
// h' = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh), or its ReLU.
Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih = Tensor(),
                     const Tensor& b_hh = Tensor());
Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih = Tensor(),
                     const Tensor& b_hh = Tensor());

}  // namespace halfstep
